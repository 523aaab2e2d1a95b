"""What tests do to an open home that no user can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headwater.engine.home import Home


def change_settings(home: Home, **values: Any) -> None:
    """Other settings from now on, for everything that holds this home; they are fixed otherwise."""
    object.__setattr__(home, "settings", replace(home.settings, **values))
