"""Frames a binlog: where each row image is, its table and its transaction. Values stay raw.

A message is the number of the position after an event (8 bytes, little-endian; 0: none), then the event without its
checksum. A transaction begins with a GTID event and ends with XID, COMMIT, or a single statement.
"""

from __future__ import annotations

from headwater.source.base import Bytes, Longs
from headwater.source.frames import Boundary, FramedTo, Frames, Memory
from headwater.source.mysql.binlog import gtid
from headwater.source.mysql.binlog.batch import Batch
from headwater.source.mysql.binlog.carry import Carried, Sender
from headwater.source.mysql.binlog.events import OUTSIDE
from headwater.source.mysql.binlog.groups import find_boundary, find_end
from headwater.source.mysql.binlog.gtid import MariaGtids, MysqlGtids
from headwater.source.mysql.binlog.history import History
from headwater.source.mysql.binlog.maps import Maps
from headwater.source.mysql.binlog.position import Position


class MysqlFraming:
    """How a binlog is split into rows (`source.frames.Framing`)."""

    def __init__(self, server: Sender, history: History) -> None:
        self._server = server
        self._history = history
        self._maps = Maps(server.mariadb)
        self._last: Carried | None = None  # the state that `_maps` reflects

    def begin(self, position: str, next_index: int, last_txn: int) -> FramedTo:
        """The state of framing before the first message of a flow."""
        at = Position.parse(position)
        gtids = gtid.parse(at.gtids) or (MariaGtids() if self._server.mariadb else MysqlGtids())
        own = Carried(position=self._server.position, number=at.number, gtids=gtids)
        return FramedTo(next_index=next_index, position=position, last_txn=last_txn, own=own)

    def number(self, position: str) -> int:
        """A position as a number."""
        return Position.parse(position).number

    def boundary(self, data: Bytes, lengths: Longs, open: bool) -> Boundary:
        """Where these messages may be split; a piece of an open transaction may end with any message."""
        return Boundary(*(int(v) for v in find_boundary(data, lengths, open)))

    def end(self, data: Bytes, lengths: Longs, open: bool, position: int, time_us: int) -> int:
        """How many of these messages lie before an end; see `Framing.end`."""
        return int(find_end(data, lengths, open, position, time_us))

    def frame(self, data: Bytes, lengths: Longs, before: FramedTo, memory: Memory) -> tuple[Frames, FramedTo]:
        """The rows, transactions and descriptions of a batch; see `Framing.frame`."""
        own: Carried = before.own
        if own is not self._last:
            self._maps.restore(own.active, (ordinal for ordinal, _ in own.described.values()))
        self._last = None  # until the batch is done, the maps reflect no state
        if own.group == OUTSIDE:
            self._maps.forget()
        batch = Batch(self._server, self._history, self._maps, before, memory, len(data))
        batch.run(data, lengths)
        frames, after = batch.finish(data)
        self._last = after.own
        return frames, after
