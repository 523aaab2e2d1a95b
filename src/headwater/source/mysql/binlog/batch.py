"""One batch of a binlog: the kernels walk it, and messages they do not know are handled here, one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headwater.errors import DataError
from headwater.model import Op
from headwater.source.base import Bytes, Longs
from headwater.source.frames import FramedTo, Frames, Memory
from headwater.source.mysql.binlog import events as ev
from headwater.source.mysql.binlog import groups as g
from headwater.source.mysql.binlog import state as k
from headwater.source.mysql.binlog import xa
from headwater.source.mysql.binlog.carry import Carried, Sender
from headwater.source.mysql.binlog.history import History
from headwater.source.mysql.binlog.images import all_set, columns_place
from headwater.source.mysql.binlog.maps import Maps
from headwater.source.mysql.binlog.partial import whole_rows
from headwater.source.mysql.binlog.tables import Tables
from headwater.source.mysql.binlog.written import Written
from headwater.source.mysql.client.unpack import damaged, lenenc
from headwater.source.mysql.ddl.statement import Statement, read_statement

ROW_IMAGE = "its rows lack columns (binlog_row_image); run SET GLOBAL binlog_row_image = FULL and reconnect the writers"
MISFIT = "its rows in the log do not match the log's own description of it"
_ROWS = frozenset(
    {ev.WRITE_ROWS_V1, ev.UPDATE_ROWS_V1, ev.DELETE_ROWS_V1, ev.WRITE_ROWS, ev.UPDATE_ROWS, ev.DELETE_ROWS}
    | {ev.PARTIAL_UPDATE_ROWS}
)


class Batch:
    """The framing of one batch, starting at `before`; see `Framing.frame`."""

    def __init__(
        self, server: Sender, history: History, maps: Maps, before: FramedTo, memory: Memory, size: int
    ) -> None:
        self._own: Carried = before.own
        self._server = server
        self._before, self._memory, self._maps = before, memory, maps
        self._written = Written(before, size)
        self._tables = Tables(server, history, maps, memory, self._written, self._own)
        self._s = self._written.state
        self._aside, self._kept = self._own.aside, list[bytes]()

    def run(self, data: Bytes, lengths: Longs, base: int = 0) -> None:
        """Walks messages to their end; their bytes are at `base` in the frames' data."""
        s, outer, first = self._s, self._written.base, self._written.row
        s[k.MESSAGE] = s[k.AT] = 0
        self._written.base = base
        while code := self._written.walk(data, lengths, self._maps):
            if code == k.DAMAGED:
                raise damaged("an event is truncated or out of order")
            end = int(s[k.AT] + lengths[s[k.MESSAGE]])
            self._look(data, int(s[k.AT]), end)
            s[k.MESSAGE] += 1
            s[k.AT] = end
        self._written.move(first, base)
        self._written.base = outer

    def finish(self, data: Bytes) -> tuple[Frames, FramedTo]:
        """The frames, and the state of framing after them."""
        s, own = self._s, self._own
        if self._aside is not None:
            self._aside = self._aside.keep(self._kept, self._memory)
        frames, held = self._written.frames(data)
        gtids = own.gtids.add(self._written.runs())
        number = int(s[k.POSITION])
        moved = number > own.number or len(frames.transactions) > 0
        return frames, FramedTo(
            next_index=int(s[k.NEXT]),
            position=str(own.position.at(number, str(gtids))) if moved else self._before.position,
            last_txn=int(s[k.TXN]) or self._before.last_txn,
            open=bool(s[k.GROUP]),
            txn=int(s[k.TXN]),
            first_index=int(s[k.FIRST]),
            own=replace(
                own,
                number=number,
                gtids=gtids,
                group=int(s[k.GROUP]),
                time_us=int(s[k.TIME]),
                source=self._written.source(int(s[k.SOURCE])),
                gno=int(s[k.GNO]),
                aside=self._aside,
                held=held,
                active=dict(self._maps.active),
                described=self._tables.described,
            ),
        )

    def _complete(self, number: int, moment_us: int) -> None:
        self._written.complete(number, moment_us)
        self._aside, self._kept = None, []

    def _look(self, data: Bytes, at: int, end: int) -> None:
        """Handles a message that the kernels do not know."""
        kind = int(data[at + ev.NUMBER_BYTES + ev.TYPE])
        number, moment_us = g.number(data, at, 8), g.header_time_us(data, at)
        message = data[at:end].tobytes()
        if self._s[k.ASIDE] and (kind in _ROWS or kind == ev.TABLE_MAP):
            self._kept.append(message)
        elif kind == ev.TABLE_MAP:
            self._tables.describe(message)
        elif kind in _ROWS:
            self._meet_rows(message, kind)
        elif kind in (ev.QUERY, ev.EXECUTE_LOAD_QUERY):
            self._meet_statement(message, number, moment_us)
        elif kind == ev.MARIA_GTID:
            self._begin_aside(xa.name_of_gtid(message[ev.NUMBER_BYTES :]))
        elif kind == ev.XA_PREPARE:
            self._meet_prepare(message, number, moment_us)
        elif kind == ev.INCIDENT:
            self._tables.break_all("the upstream reported an incident: changes may be missing from its log")
            if self._s[k.GROUP] != ev.INSIDE:
                self._complete(number, moment_us)
        elif kind == ev.FORMAT_DESCRIPTION:
            self._tables.undo("the upstream's log ends inside a transaction")
            self._s[k.SOURCE] = -1
            self._complete(int(self._s[k.POSITION]), moment_us)
        elif kind == ev.XID:  # outside any group, or in one that began as a prepared one
            if self._aside is not None:
                self._replay(self._aside.name)
            self._complete(number, moment_us)

    def _meet_rows(self, message: bytes, kind: int) -> None:
        """Handles rows that are not whole, that do not match their table, or an update with partial JSON values."""
        table = self._tables.of_rows(message)
        if table is None:
            return
        reason = MISFIT if _is_whole(message, kind) else ROW_IMAGE
        if kind == ev.PARTIAL_UPDATE_ROWS and reason is MISFIT:
            try:
                rows = list(whole_rows(message[ev.BODY :], table))
            except DataError as e:
                reason = e.message
            else:
                for payload in rows:
                    self._written.add_row(Op.UPDATE, table.id, payload)
                return
        self._tables.break_table(table.id, table.schema, table.table, reason)

    def _meet_statement(self, message: bytes, number: int, moment_us: int) -> None:
        s = self._s
        if s[k.GROUP] == ev.OUTSIDE:  # a server that writes no GTID events
            s[k.TXN] = number - int.from_bytes(message[8 + ev.SIZE : 12 + ev.SIZE], "little")
            s[k.FIRST] = s[k.NEXT]
            s[k.SOURCE] = -1
            s[k.GROUP] = ev.EXPECTING
        statement = read_statement(message, self._server.mariadb)
        text = statement.text
        word = text[:12].upper()
        if word == "BEGIN" or word.startswith("XA START"):
            s[k.GROUP] = ev.INSIDE
            if word != "BEGIN":
                self._begin_aside(xa.name_of_statement(text))
        elif not word.startswith("XA END"):
            self._carry_out(word, statement, number)
            if s[k.GROUP] == ev.EXPECTING or word in ("COMMIT", "ROLLBACK"):
                self._complete(number, moment_us)

    def _carry_out(self, word: str, statement: Statement, number: int) -> None:
        """Applies a statement; `word` is how it begins."""
        text = statement.text
        if word.startswith("XA COMMIT"):
            self._replay(xa.name_of_statement(text))
        elif word.startswith("XA ROLLBACK"):
            self._memory.remove(xa.name_of_statement(text))
        elif word == "COMMIT":
            if self._aside is not None:
                self._replay(self._aside.name)
        elif word == "ROLLBACK":
            self._tables.undo("a transaction was logged and rolled back")
        elif word.startswith("ROLLBACK TO"):
            self._tables.break_open("a part of a transaction was logged and rolled back")
        else:
            self._tables.apply(statement, number)

    def _begin_aside(self, name: str) -> None:
        self._aside, self._kept = xa.Aside(name), []
        self._s[k.ASIDE] = 1

    def _meet_prepare(self, message: bytes, number: int, moment_us: int) -> None:
        if self._aside is None:
            raise damaged("a transaction was prepared that had not begun")
        if xa.commits_at_once(message[ev.NUMBER_BYTES :]):
            self._replay(self._aside.name)
        else:
            self._aside.keep(self._kept, self._memory)
        self._complete(number, moment_us)

    def _replay(self, name: str) -> None:
        """Turns the rows of a prepared group into rows of the open transaction."""
        kept: bytes | None = b""
        if self._aside is None or self._aside.parts:
            kept = self._memory.get(name)
        if kept is None:
            self._tables.break_all("a transaction committed that was prepared before the connection began")
            return
        data, lengths = xa.unpack(kept + xa.pack(self._kept))
        s = self._s
        here = int(s[k.MESSAGE]), int(s[k.AT]), int(s[k.GROUP])
        self._aside, self._kept = None, []
        s[k.ASIDE], s[k.GROUP] = 0, ev.INSIDE
        self.run(data, lengths, self._written.append(data.tobytes()))
        s[k.MESSAGE], s[k.AT], s[k.GROUP] = here
        self._memory.remove(name)


def _is_whole(message: bytes, kind: int) -> bool:
    """Whether a rows event has all columns."""
    data = np.frombuffer(bytearray(message), np.uint8)
    width, at = lenenc(message, int(columns_place(data, 0, kind)))
    images = 2 if kind in (ev.UPDATE_ROWS_V1, ev.UPDATE_ROWS, ev.PARTIAL_UPDATE_ROWS) else 1
    return all(all_set(data, at + i * ((width + 7) // 8), width) for i in range(images))
