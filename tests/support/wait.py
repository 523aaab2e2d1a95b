"""Awaiting a condition: the one place where tests poll."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

POLL_S = 0.02
MOST_S = 0.5
SHARE = 0.2  # at most this share of the time is spent polling: what is waited for needs the machine too


def wait_for(condition: Callable[[], Any], what: str = "the awaited condition", timeout_s: float = 240.0) -> Any:
    """The condition's value as soon as it is true; fails at the timeout."""
    deadline = time.monotonic() + timeout_s
    while True:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        took = time.monotonic() - began
        time.sleep(min(MOST_S, max(POLL_S, took / SHARE)))
