"""The seam between Headwater and an upstream: what the capture needs from any database's log."""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from headwater.source.frames import Framing

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

EPOCH_S = 946_684_800  # 2000-01-01 UTC: changelogs count the time of commits from it
INBOX_KEEP_BYTES = 64 << 20  # an inbox that a giant message made larger than this releases its memory


class Inbox:
    """Raw messages back to back, as received: filled by a `Log`, framed by the changelog.

    `add` is all that happens per row, so callers may bind `data.write` and `lengths.append` and call them directly. The
    arrays of `arrays()` share the memory: drop them before the inbox is filled again.
    """

    __slots__ = ("data", "lengths")

    def __init__(self) -> None:
        self.data = io.BytesIO()
        self.lengths: array[int] = array("q")

    @property
    def size(self) -> int:
        """Bytes received."""
        return self.data.tell()

    @property
    def count(self) -> int:
        """Messages received."""
        return len(self.lengths)

    def add(self, message: bytes | memoryview) -> None:
        self.data.write(message)
        self.lengths.append(len(message))

    def extend(self, messages: Iterable[bytes]) -> None:
        for message in messages:
            self.add(message)

    def arrays(self) -> tuple[Bytes, Longs]:
        """The bytes received and each message's length."""
        if not self.count:
            return np.empty(0, np.uint8), np.empty(0, np.int64)
        return np.frombuffer(self.data.getbuffer(), np.uint8)[: self.size], np.frombuffer(self.lengths, np.int64)

    def carry(self, into: Inbox, messages: int, bytes: int) -> None:
        """Appends everything after the first `messages` messages (`bytes` bytes) to another inbox."""
        with self.data.getbuffer() as view:
            into.data.write(view[bytes : self.size])
        into.lengths.extend(self.lengths[messages:])

    def without(self, messages: int, bytes: int) -> Inbox:
        """An inbox with everything after the first `messages` messages (`bytes` bytes)."""
        if messages == self.count:
            self.clear()
            return self
        rest = Inbox()
        self.carry(rest, messages, bytes)
        return rest

    def first(self, messages: int) -> Inbox:
        """An inbox with the first `messages` messages."""
        kept = Inbox()
        size = sum(self.lengths[:messages])
        with self.data.getbuffer() as view:
            kept.data.write(view[:size])
        kept.lengths.extend(self.lengths[:messages])
        return kept

    def clear(self) -> None:
        """Empties it; the memory is kept for the next messages."""
        if self.size > INBOX_KEEP_BYTES:
            self.data = io.BytesIO()
        self.data.seek(0)
        self.lengths = array("q")


@dataclass(frozen=True, slots=True)
class Standing:
    """The server that answered when the log was opened.

    `identity` is what meta stores about the server itself. `life` changes when the server restarts. `next_txn` is the
    upstream's next 64-bit transaction number: every transaction the log can still send is within 2^31 of it.
    """

    identity: dict[str, str]
    life: str
    next_txn: int


class Log(Protocol):
    """A running read of an upstream's log, starting at the end of a commit. Used by one thread, except `wake`.

    It never acknowledges on its own: the upstream discards only what `acknowledge` names.
    """

    standing: Standing
    framing: Framing

    def begin(self, position: str) -> None:
        """Starts the flow after `position`. Called once, after meta was cut back to it and stored the standing."""

    def receive(self, into: Inbox, until: float, limit: int) -> None:
        """Appends whatever arrives, in order, without inspecting it.

        Returns when the inbox holds `limit` bytes, at the monotonic time `until`, when woken, or when something
        arrived and no more is available. Raises SourceError (`source.disconnected`, retry auto) when the flow breaks.
        """

    def acknowledge(self, position: str, *, ask: bool = False) -> None:
        """Tells the upstream that everything committed at or before `position` is durable, in segments and in meta.

        `ask` requests a reply with the upstream's own position. Safe to repeat.
        """

    def beat(self) -> None:
        """Makes the upstream's log advance, so that an idle database releases what its busy neighbours wrote.

        May be called from any thread. Raises SourceError when the log no longer carries what it should.
        """

    def now(self) -> tuple[str, int]:
        """The position that the upstream's log has reached, and its clock just before, in microseconds since 2000."""

    def wake(self) -> None:
        """Makes `receive` return soon. May be called from any thread."""

    def close(self) -> None:
        """Ends the flow; anything not acknowledged is sent again. Safe to repeat."""


class Source(Protocol):
    """What the capture needs from an upstream. One implementation per kind of database, in its own folder."""

    def open_log(self, position: str, identity: dict[str, str]) -> Log:
        """Connects, and checks that the upstream still has everything after `position`.

        Called at every (re)connect. Raises SourceError: retry auto if waiting helps (unreachable, slot still busy),
        otherwise with a hint: the slot is missing, lost or was moved, another server answers, the log has the wrong
        level. Never continues silently. Nothing flows before `Log.begin`.
        """
