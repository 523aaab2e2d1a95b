"""What tests do to an open home that users cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headwater.engine.home import Home


def change_settings(home: Home, **values: Any) -> None:
    """Changes the settings from now on, for everything that holds this home; otherwise they are fixed."""
    object.__setattr__(home, "settings", replace(home.settings, **values))
