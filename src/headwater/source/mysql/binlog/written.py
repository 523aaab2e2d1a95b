"""The output of a batch: rows, completed transactions and descriptions, in arrays that grow as they fill."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headwater.source.base import Bytes, Longs
from headwater.source.frames import Described, FramedTo, Frames, Transactions
from headwater.source.mysql.binlog import events as ev
from headwater.source.mysql.binlog import state as k
from headwater.source.mysql.binlog.carry import Carried, Held
from headwater.source.mysql.binlog.gtid import Run
from headwater.source.mysql.binlog.kernels import complete, walk
from headwater.source.mysql.binlog.maps import Maps

BYTES_PER_ROW = 16  # smaller than nearly any row: unused room costs no memory, and room is doubled as needed


class Written:
    """The output of a batch while it is being framed. `state` is the walk's; see `state`.

    `size` is the number of bytes in the frames' data so far: the batch's own, and after them whatever `append` added.
    """

    def __init__(self, before: FramedTo, size: int) -> None:
        self.state: Longs = np.zeros(k.STATE_LENGTH, np.int64)
        self.relations: list[Described] = []
        self.size = size
        self.base = 0  # where the messages being walked are in the frames' data
        self._before = before
        self._op = np.empty(size // BYTES_PER_ROW + 64, np.int8)
        self._longs = np.empty((4, len(self._op)), np.int64)
        self._done = np.empty((5, 256), np.int64)
        self._runs = np.empty((3, 64), np.int64)
        self._sources = np.zeros((4, k.SOURCE_BYTES), np.uint8)
        self._source_count = 0
        self._source = np.zeros(k.SOURCE_BYTES, np.uint8)
        self._extra: list[bytes] = []
        self._restore(before.own)

    @property
    def row(self) -> int:
        """The number of the next row."""
        return int(self.state[k.ROW])

    @property
    def whole(self) -> bool:
        """Whether every row of the open transaction is still available."""
        return int(self.state[k.FIRST]) >= self._before.next_index

    def walk(self, data: Bytes, lengths: Longs, maps: Maps) -> int:
        """Walks on as far as the kernels can; see `kernels.walk`."""
        while True:
            code = walk(
                data, lengths, self.state, self._op, self._longs, self._done, self._runs,
                self._sources, self._source_count, self._source,
                maps.keys, maps.ordinals, maps.info, maps.columns, maps.steps, maps.contents,
            )  # fmt: skip
            if code == k.FULL:
                self._grow()
            elif code == k.SOURCE_UNKNOWN:
                self._add_source(self._source)
            else:
                return code

    def append(self, data: bytes) -> int:
        """Appends bytes after the batch's own; returns their offset."""
        self._extra.append(data)
        self.size += len(data)
        return self.size - len(data)

    def move(self, first: int, base: int) -> None:
        """Sets the messages of the rows from `first` on to be at `base`."""
        self._longs[2, first : self.row] += base

    def add_row(self, op: int, table: int, payload: bytes) -> None:
        """Adds a row of the open transaction that no kernel found."""
        s = self.state
        while s[k.ROW] >= len(self._op):
            self._grow()
        place = self.append(payload) if payload else self.size
        self._op[s[k.ROW]] = op
        self._longs[:, s[k.ROW]] = (s[k.TXN], table, place - self.base, len(payload))
        s[k.ROW] += 1
        s[k.NEXT] += 1

    def complete(self, number: int, moment_us: int) -> None:
        """Ends the open group at a position."""
        while not complete(self.state, number, moment_us, self._done, self._runs):
            self._grow()

    def open_tables(self) -> list[int]:
        """The tables of the open transaction's rows, if it is `whole`."""
        s = self.state
        return list(np.unique(self._longs[1, s[k.ROW] - (s[k.NEXT] - s[k.FIRST]) : s[k.ROW]]).tolist())

    def forget_open_rows(self) -> None:
        """Removes the open transaction's rows; it must be `whole`."""
        s = self.state
        s[k.ROW] -= s[k.NEXT] - s[k.FIRST]
        s[k.NEXT] = s[k.FIRST]

    def runs(self) -> list[Run]:
        """The numbers of the completed transactions."""
        found = self._runs[:, : self.state[k.RUNS]].T.tolist()
        return [(self.source(source), first, last) for source, first, last in found]

    def source(self, source: int) -> bytes:
        """The source that numbered a transaction, as the log writes it; empty for -1."""
        return bytes(self._sources[source, 1 : 1 + int(self._sources[source, 0])]) if source >= 0 else b""

    def frames(self, data: Bytes) -> tuple[Frames, Held | None]:
        """The frames, and the row held back: the last one of an open transaction."""
        if self._extra:
            data = np.concatenate([data, *(np.frombuffer(e, np.uint8) for e in self._extra)])
        held = self._hold_back(data)
        rows, kept = self.row, int(self.state[k.KEPT])
        frames = Frames(
            data=data,
            first_index=self._before.next_index,
            op=self._op[:rows],
            txn=self._longs[0, :rows],
            upstream_id=self._longs[1, :rows],
            start=self._longs[2, :rows],
            length=self._longs[3, :rows],
            transactions=Transactions(*(self._done[i, :kept] for i in range(5))),
            relations=tuple(replace(r, row=min(r.row, rows)) for r in self.relations),
        )
        return frames, held

    def _restore(self, own: Carried) -> None:
        s, before = self.state, self._before
        s[k.NEXT] = before.next_index
        s[k.POSITION] = own.number
        s[k.GROUP] = own.group
        s[k.TXN] = before.txn
        s[k.FIRST] = before.first_index
        s[k.TIME] = own.time_us
        s[k.GNO] = own.gno
        s[k.ASIDE] = own.aside is not None
        s[k.SOURCE] = -1
        if own.source:
            source = np.zeros(k.SOURCE_BYTES, np.uint8)
            source[0] = len(own.source)
            source[1 : 1 + len(own.source)] = np.frombuffer(own.source, np.uint8)
            s[k.SOURCE] = self._add_source(source)
        if own.held is not None:
            self.add_row(own.held.op, own.held.table, own.held.payload)

    def _hold_back(self, data: Bytes) -> Held | None:
        s = self.state
        if s[k.GROUP] != ev.INSIDE or s[k.NEXT] <= max(int(s[k.FIRST]), self._before.next_index):
            return None
        s[k.ROW] -= 1
        s[k.NEXT] -= 1
        row = self.row
        start, length = int(self._longs[2, row]), int(self._longs[3, row])
        return Held(int(self._op[row]), int(self._longs[1, row]), data[start : start + length].tobytes())

    def _grow(self) -> None:
        """Doubles whatever is full."""
        s = self.state
        if s[k.KEPT] >= self._done.shape[1]:
            self._done = np.concatenate([self._done, np.empty_like(self._done)], axis=1)
        elif s[k.RUNS] >= self._runs.shape[1]:
            self._runs = np.concatenate([self._runs, np.empty_like(self._runs)], axis=1)
        else:
            self._op = np.concatenate([self._op, np.empty_like(self._op)])
            self._longs = np.concatenate([self._longs, np.empty_like(self._longs)], axis=1)

    def _add_source(self, source: Bytes) -> int:
        if self._source_count == len(self._sources):
            self._sources = np.concatenate([self._sources, np.zeros_like(self._sources)])
        self._sources[self._source_count] = source
        self._source_count += 1
        return self._source_count - 1
