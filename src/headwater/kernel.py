"""Kernels: functions compiled for given signatures, once per machine, that run without the GIL.

The code is cached on disk. Numba would check only the function's own file for changes, but a kernel has others, and
constants, of its stage and its kind of database compiled into it: here they all count.
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
    """A fingerprint of everything that a folder's kernels are compiled from."""
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
    """Next to the source."""


class _AtHome(_Stamped, caching.UserWideCacheLocator):  # type: ignore[misc]
    """In the user's own cache, if the source's folder is not writable."""


caching.CacheImpl._locator_classes[:0] = [_Given, _Beside, _AtHome]
