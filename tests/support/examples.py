"""How many examples a property test tries: a part in each run, since each run tries others; all in `make soak`."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

PART = 4
FEWEST = 10
ALL = os.environ.get("HEADWATER_EXAMPLES") == "all"


def examples(number: int, **options: Any) -> settings:
    """Settings of a test for which so many examples are enough to find what it looks for in one run."""
    return settings(max_examples=number if ALL else max(FEWEST, number // PART), **options)
