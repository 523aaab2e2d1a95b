"""Kernels: functions that are compiled for given signatures, once per machine, and run without the GIL.

The code is kept on disk. Whether it is still the source's Numba would tell by the function's own file alone, but a
kernel has others, and constants, of its stage and its kind of database compiled into it: here they all count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, TypeVar

import numba
from numba.core import caching

F = TypeVar("F", bound=Callable[..., Any])
PACKAGE = Path(__file__).resolve().parent


def kernel(*signatures: object, inline: str = "never") -> Callable[[F], F]:
    """Compiles for exactly these signatures, when first imported."""
    compile: Callable[[F], F] = numba.njit(list(signatures), cache=True, nogil=True, inline=inline)
    return compile


@lru_cache
def stamp(folder: Path) -> str:
    """What the code of a folder's functions is made from."""
    parts = folder.relative_to(PACKAGE).parts
    stage, kind = PACKAGE / parts[0], PACKAGE.joinpath(*parts[:2])
    files = {*stage.glob("*.py"), *kind.rglob("*.py")}
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()


class _Stamped:
    _py_file: str

    def get_source_stamp(self) -> str:
        return stamp(Path(self._py_file).resolve().parent)

    @classmethod
    def from_function(cls, function: object, file: str) -> Self | None:
        if not Path(file).resolve().is_relative_to(PACKAGE):
            return None
        found: Self | None = super().from_function(function, file)  # type: ignore[misc]
        return found


class _Given(_Stamped, caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """In the user's NUMBA_CACHE_DIR."""


class _Beside(_Stamped, caching.InTreeCacheLocator):  # type: ignore[misc]
    """Beside the source."""


class _AtHome(_Stamped, caching.UserWideCacheLocator):  # type: ignore[misc]
    """In the user's own cache, where the source cannot be written."""


caching.CacheImpl._locator_classes[:0] = [_Given, _Beside, _AtHome]
