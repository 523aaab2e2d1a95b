"""Where an error belongs and when its work is retried, for everything a server does. (The error says whether.)

An error belongs to the table, connection or loop that raised it. It is shown there until the same work succeeds, and
the work is retried after a pause that doubles. Only a lost lease (`FencedError`) affects the whole server.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import sqlalchemy as sa

from headwater.backoff import Backoff
from headwater.engine.counters import Counters
from headwater.errors import (
    FencedError,
    HeadwaterError,
    JobError,
    MachineError,
    Retry,
    base_damaged,
    disk_full,
    is_full,
    machine_error,
)

BACKOFF = Backoff(0.5, 60.0)

# how Spark and Delta report that a file in the log is missing
MISSING_FILE = ("FILE_NOT_EXIST", "DELTA_FILE_NOT_FOUND", "FileNotFoundException", "FILE_NOT_FOUND")

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Who:
    """The owner of work: a job of the server, for one table or connection if it has an id."""

    job: str
    table: int = 0
    connection: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """The last error of some work, and when the work is retried."""

    error: HeadwaterError
    wait_s: float
    again_at: float


class Failures:
    """Work that has failed and has not succeeded since. Thread-safe."""

    def __init__(self, counters: Counters, clock: Callable[[], float] = time.monotonic) -> None:
        self._counters = counters
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[Who, Failure] = {}
        self.ending = False  # Spark is shutting down, so errors from now on are not reported

    def backing_off(self, who: Who) -> bool:
        """Whether it is too early to retry."""
        failure = self._known.get(who)
        return failure is not None and self._clock() < failure.again_at

    def attempt(self, who: Who, work: Callable[[], T], otherwise: T) -> T:
        """Does the work unless it is backing off, and records its error. Only a lost lease is raised."""
        if self.backing_off(who):
            return otherwise
        try:
            result = work()
        except FencedError:
            raise
        except Exception as e:
            self.failed(who, e)
            return otherwise
        self.succeeded(who)
        return result

    def failed(self, who: Who, error: Exception) -> Failure:
        """Records and counts the error; returns when to retry."""
        known = described(error)
        with self._lock:
            before = self._known.get(who)
            wait_s = BACKOFF.after(0.0 if before is None else before.wait_s)
            failure = self._known[who] = Failure(known, wait_s, self._clock() + wait_s)
        if self.ending:
            return failure
        self._counters.add("headwater_errors_total", of=known.code)
        log.warning(
            "%s failed table=%s connection=%s code=%s again_in_s=%.1f: %s",
            *(who.job, who.table, who.connection, known.code, wait_s, known.message),
            exc_info=error if is_defect(error) else None,
        )
        return failure

    def succeeded(self, who: Who) -> None:
        """Clears the failure of work that has succeeded."""
        if who in self._known:
            with self._lock:
                self._known.pop(who, None)

    def forget(self, *, table: int = 0, connection: int = 0) -> None:
        """Clears the failures of a table or connection that is gone."""
        with self._lock:
            for who in [w for w in self._known if (w.table, w.connection) == (table, connection)]:
                del self._known[who]

    def of(self, *, table: int = 0, connection: int = 0) -> list[tuple[str, HeadwaterError]]:
        """(job, error) pairs of one table or connection; without an id, of the server's own loops."""
        with self._lock:
            return [(w.job, f.error) for w, f in self._known.items() if (w.table, w.connection) == (table, connection)]


def described(error: Exception) -> HeadwaterError:
    """Any error as a HeadwaterError: with a code, a hint, and whether a retry can help."""
    if isinstance(error, HeadwaterError):
        return error
    text, first = str(error), _first_line(error)
    if "No space left on device" in text or (isinstance(error, OSError) and is_full(error)):
        return disk_full()
    if "warehouse" in text and (any(mark in text for mark in MISSING_FILE) or "No such file" in text):
        return base_damaged("a file of the base is missing: it was removed by something else")
    if isinstance(error, sa.exc.DBAPIError | sa.exc.PendingRollbackError):
        return MachineError("meta.unreachable", f"meta does not answer: {first}", "Start its database.", Retry.AUTO)
    if isinstance(error, ConnectionError) or type(error).__module__.split(".")[0] in ("pyspark", "py4j"):
        hint = "See logs/spark.log in the home; Headwater retries."
        return MachineError("spark.failed", f"Spark failed: {first}", hint, Retry.AUTO)
    if isinstance(error, OSError):
        return machine_error(error)
    hint = "See logs/server.log in the home and report it; Headwater retries."
    return JobError("job.failed", f"unexpected: {first}", hint, Retry.AUTO)


def is_defect(error: Exception) -> bool:
    """Whether the error is unexpected, and so is logged with its traceback."""
    return not isinstance(error, HeadwaterError) and isinstance(described(error), JobError)


def _first_line(error: Exception) -> str:
    line = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {line}"[:500] if line else type(error).__name__
