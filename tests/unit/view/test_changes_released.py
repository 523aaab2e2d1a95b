"""What a refresh has made is released with it: DataFrames in a cycle would keep what Spark has broadcast for them."""

from __future__ import annotations

import gc
import weakref

from headwater.view.changes import Changes


def test_the_changes_of_a_refresh_are_in_no_cycle() -> None:
    gc.disable()
    try:
        made = Changes({})
        left = weakref.ref(made)
        del made
        assert left() is None
    finally:
        gc.enable()
