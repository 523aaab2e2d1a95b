"""Compiled functions that look at a log's bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(signature: str) -> Callable[[_Function], _Function]:
    """Compiles a function for one signature: when first imported, then from the disk; it runs without the GIL."""
    compile: Callable[[_Function], _Function] = numba.njit(signature, cache=True, nogil=True)
    return compile
