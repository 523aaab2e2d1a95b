"""Signed changes of relations in files for Spark: each is made once per step and shared by all views that take it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.engine.home import Home
from headwater.relation.changes import Changes
from headwater.relation.overlay import Overlays
from headwater.view.images import Went

KEPT_S = 30.0  # for views that take the same step later
NOTHING = 0


@dataclass(frozen=True, slots=True)
class Signed:
    """The change of a relation between two epochs.

    `table` has its signed rows; None if there are too many for that: then `went` has what the log has of them.
    """

    rows: int
    append_only: bool
    table: pa.Table | None
    went: Went | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """A change whose signed rows, if it has a path, are in a file."""

    rows: int
    append_only: bool
    path: str
    went: Went | None


@dataclass(slots=True)
class _Kept:
    """What is known of one step of one relation."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    files: ExitStack = field(default_factory=ExitStack)
    delta: Delta | None = None
    users: int = NOTHING
    used_at: float = 0.0


class Deltas:
    """Deltas by relation and step. Thread-safe: whoever asks first makes one, others wait for it."""

    def __init__(self, home: Home, changes: Changes) -> None:
        # apart from the readers' own cache, whose entries for the same relation it would drop
        self.overlays = Overlays(home.storage, home.meta, changes=changes, settings=home.settings)
        self._kept: dict[Hashable, _Kept] = {}
        self._lock = threading.Lock()

    @contextmanager
    def use(self, step: Hashable, make: Callable[[], Signed]) -> Iterator[Delta]:
        """The delta of a step; its file is kept until the block ends, and a while longer."""
        with self._lock:
            kept = self._kept.setdefault(step, _Kept())
            kept.users += 1
        try:
            with kept.lock:
                if kept.delta is None:
                    kept.delta = self._made(kept, make())
            yield kept.delta
        finally:
            with self._lock:
                kept.users -= 1
                kept.used_at = time.monotonic()
                old = [k for k, v in self._kept.items() if self._is_old(v)]
                dead = [self._kept.pop(k) for k in old]
            for each in dead:
                each.files.close()

    def close(self) -> None:
        """Removes all files that nobody uses."""
        with self._lock:
            dead = [self._kept.pop(k) for k, v in list(self._kept.items()) if not v.users]
        for each in dead:
            each.files.close()

    def _is_old(self, kept: _Kept) -> bool:
        failed = kept.delta is None
        return not kept.users and (failed or time.monotonic() - kept.used_at > KEPT_S)

    def _made(self, kept: _Kept, found: Signed) -> Delta:
        path = ""
        if found.table is not None:
            (path,) = kept.files.enter_context(self.overlays.written([found.table]))
        return Delta(found.rows, found.append_only, path, found.went)
