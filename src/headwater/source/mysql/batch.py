"""One batch of a binlog: the kernels walk, and what they do not know is looked at here, message by message."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headwater.model import LogColumn, Op
from headwater.source.base import Bytes, Longs
from headwater.source.frames import Frames, Memory, Progress, Relation, Transactions
from headwater.source.mysql import ddl, xa
from headwater.source.mysql import events as ev
from headwater.source.mysql import groups as g
from headwater.source.mysql import kernels as k
from headwater.source.mysql.carry import Held, Own, Server
from headwater.source.mysql.history import History
from headwater.source.mysql.maps import Maps
from headwater.source.mysql.partial import whole_rows
from headwater.source.mysql.position import table_number
from headwater.source.mysql.unpack import damaged, lenenc

BYTES_PER_ROW = 64  # a guess: room for rows is doubled when it is not enough
ROW_IMAGE = (
    "rows came without all columns (binlog_row_image); run SET GLOBAL binlog_row_image = FULL and reconnect the writers"
)


class Batch:
    """The framing of one batch, from `before` on; see `Framing.frame`."""

    def __init__(
        self, server: Server, history: History, maps: Maps, before: Progress, memory: Memory, size: int
    ) -> None:
        own: Own = before.own
        self._server, self._history, self._maps, self._memory = server, history, maps, memory
        self._before, self._own = before, own
        self._followed = memory.followed()
        maps.follow(self._followed)
        self._op = np.empty(size // BYTES_PER_ROW + 64, np.int8)
        self._longs = np.empty((4, len(self._op)), np.int64)
        self._done = np.empty((5, 256), np.int64)
        self._runs = np.empty((3, 64), np.int64)
        self._sources = np.zeros((4, k.SOURCE_BYTES), np.uint8)
        self._source_count = 0
        self._source = np.zeros(k.SOURCE_BYTES, np.uint8)
        self._relations: list[Relation] = []
        self._described = dict(own.described)
        self._broken: set[int] = set()
        self._extra: list[bytes] = []  # what stands behind the batch's own bytes in the frames' data
        self._size = size
        self._base = 0  # where the messages that are being walked stand there
        self._aside, self._kept = own.aside, list[bytes]()
        self._s = np.zeros(k.STATE_LENGTH, np.int64)
        self._restore(own)

    def run(self, data: Bytes, lengths: Longs, base: int = 0) -> None:
        """Walks messages to their end; their bytes stand at `base` in the frames' data."""
        s, outer, first = self._s, self._base, int(self._s[k.ROW])
        s[k.MESSAGE] = s[k.AT] = 0
        self._base = base
        while code := self._walk(data, lengths):
            if code == k.FULL:
                self._grow()
            elif code == k.SOURCE_UNKNOWN:
                self._add_source(self._source)
            elif code == k.DAMAGED:
                raise damaged("an event is cut off or out of order")
            else:
                size = int(lengths[s[k.MESSAGE]])
                self._look(data, int(s[k.AT]), int(s[k.AT]) + size)
                s[k.MESSAGE] += 1
                s[k.AT] += size
        if base:
            self._longs[2, first : s[k.ROW]] += base
        self._base = outer

    def finish(self, data: Bytes) -> tuple[Frames, Progress]:
        """The frames, and where framing stands; the last row of an open transaction stays behind."""
        s, own = self._s, self._own
        if self._aside is not None:
            self._aside = self._aside.keep(self._kept, self._memory)
        if self._extra:
            data = np.concatenate([data, *(np.frombuffer(e, np.uint8) for e in self._extra)])
        held = self._hold_back(data)
        rows, kept = int(s[k.ROW]), int(s[k.KEPT])
        frames = Frames(
            data=data,
            first_index=self._before.next_index,
            op=self._op[:rows],
            txn=self._longs[0, :rows],
            upstream_id=self._longs[1, :rows],
            start=self._longs[2, :rows],
            length=self._longs[3, :rows],
            transactions=Transactions(*(self._done[i, :kept] for i in range(5))),
            relations=tuple(replace(r, row=min(r.row, rows)) for r in self._relations),
        )
        gtids = own.gtids.add(
            (self._source_bytes(source), first, last) for source, first, last in self._runs[:, : s[k.RUNS]].T.tolist()
        )
        number = int(s[k.POSITION])
        moved = number > own.number or kept > 0
        return frames, Progress(
            next_index=int(s[k.NEXT]),
            position=str(own.place.at(number, str(gtids))) if moved else self._before.position,
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
                source=self._source_bytes(int(s[k.SOURCE])),
                gno=int(s[k.GNO]),
                aside=self._aside,
                held=held,
                active=dict(self._maps.active),
                described=self._described,
            ),
        )

    def _restore(self, own: Own) -> None:
        s, before = self._s, self._before
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
            self._add_row(own.held.op, own.held.table, own.held.payload)

    def _walk(self, data: Bytes, lengths: Longs) -> int:
        maps = self._maps
        return k.walk(
            data, lengths, self._s, self._op, self._longs, self._done, self._runs,
            self._sources, self._source_count, self._source,
            maps.keys, maps.slots, maps.info, maps.columns, maps.steps, maps.contents,
        )  # fmt: skip

    def _hold_back(self, data: Bytes) -> Held | None:
        s = self._s
        if s[k.GROUP] != ev.INSIDE or s[k.NEXT] <= max(int(s[k.FIRST]), self._before.next_index):
            return None
        s[k.ROW] -= 1
        s[k.NEXT] -= 1
        row = int(s[k.ROW])
        start, length = int(self._longs[2, row]), int(self._longs[3, row])
        return Held(int(self._op[row]), int(self._longs[1, row]), data[start : start + length].tobytes())

    # growing and noting

    def _grow(self) -> None:
        """Doubles whatever is full."""
        s = self._s
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

    def _source_bytes(self, source: int) -> bytes:
        if source < 0:
            return b""
        row = self._sources[source]
        return bytes(row[1 : 1 + int(row[0])])

    def _add_row(self, op: int, table: int, payload: bytes) -> None:
        s = self._s
        while s[k.ROW] >= len(self._op):
            self._grow()
        row = int(s[k.ROW])
        self._op[row] = op
        self._longs[:, row] = (s[k.TXN], table, self._size - self._base, len(payload))
        if payload:
            self._extra.append(payload)
            self._size += len(payload)
        s[k.ROW] += 1
        s[k.NEXT] += 1

    def _complete(self, number: int, moment_us: int) -> None:
        while not k.complete(self._s, number, moment_us, self._done, self._runs):
            self._grow()
        self._aside, self._kept = None, []

    # what the kernels do not know

    def _look(self, data: Bytes, at: int, end: int) -> None:
        kind = int(data[at + ev.NUMBER_BYTES + ev.TYPE])
        number, moment_us = g.number(data, at, 8), g.header_time_us(data, at)
        message = data[at:end].tobytes()
        if self._s[k.ASIDE] and (kind in _ROWS or kind == ev.TABLE_MAP):
            self._keep_aside(message)
        elif kind == ev.TABLE_MAP:
            self._meet_table(message)
        elif kind == ev.MARIA_GTID:
            self._begin_aside(xa.name_of_gtid(message[ev.NUMBER_BYTES :]))
        elif kind == ev.PARTIAL_UPDATE_ROWS:
            self._meet_partial(message)
        elif kind in _ROWS:
            self._meet_rows(message)
        elif kind == ev.QUERY or kind == ev.EXECUTE_LOAD_QUERY:
            self._meet_statement(message, number, moment_us)
        elif kind == ev.XA_PREPARE:
            self._meet_prepare(message, number, moment_us)
        elif kind == ev.INCIDENT:
            self._break_all("the upstream reported an incident: changes may be missing from its log")
            if self._s[k.GROUP] != ev.INSIDE:
                self._complete(number, moment_us)
        elif kind == ev.FORMAT_DESCRIPTION:
            self._undo("the upstream's log ends inside a transaction")
            self._complete(int(self._s[k.POSITION]), moment_us)
        elif kind == ev.XID:  # of no group, or of one that was begun as a prepared one
            if self._aside is not None:
                self._replay(self._aside.name)
            self._complete(number, moment_us)

    def _meet_table(self, message: bytes) -> None:
        content = message[ev.BODY + 8 :]
        slot = self._maps.slot(content)
        self._maps.use(int.from_bytes(message[ev.BODY : ev.BODY + 6], "little"), slot)
        info = self._maps.info[slot]
        if not info[k.FOLLOWED] or info[k.DESCRIBED]:
            return
        table = self._maps.tables[slot]
        columns = table.columns if table.complete else self._history.columns(table, self._memory)
        if isinstance(columns, str):
            self._break(table.id, table.schema, table.table, columns)
            return
        self._relations.append(Relation(int(self._s[k.ROW]), table.id, table.schema, table.table, "f", columns))
        self._described[table.id] = (slot, columns)
        self._maps.describe(table.id, slot)

    def _meet_rows(self, message: bytes) -> None:
        """Rows that are not whole, or of a table without a description."""
        slot = self._maps.active.get(int.from_bytes(message[ev.BODY : ev.BODY + 6], "little"))
        if slot is None:
            raise damaged("rows of a table come without its description")
        table = self._maps.tables[slot]
        self._break(table.id, table.schema, table.table, ROW_IMAGE)

    def _meet_partial(self, message: bytes) -> None:
        slot = self._maps.active.get(int.from_bytes(message[ev.BODY : ev.BODY + 6], "little"))
        if slot is None:
            raise damaged("rows of a table come without its description")
        info, table = self._maps.info[slot], self._maps.tables[slot]
        if not info[k.FOLLOWED] or not info[k.DESCRIBED]:
            return
        event = message[ev.BODY :]
        place = 8 + int.from_bytes(event[8:10], "little")
        width, place = lenenc(event, place)
        present = np.frombuffer(event, np.uint8)[place:].copy()
        if not k.all_set(present, 0, width) or not k.all_set(present, (width + 7) // 8, width):
            self._break(table.id, table.schema, table.table, ROW_IMAGE)
            return
        for payload in whole_rows(event, table):
            self._add_row(Op.UPDATE, table.id, payload)

    # statements

    def _meet_statement(self, message: bytes, number: int, moment_us: int) -> None:
        s = self._s
        if s[k.GROUP] == ev.OUTSIDE:  # a server that writes no GTID events
            s[k.TXN] = number - int.from_bytes(message[8 + ev.SIZE : 12 + ev.SIZE], "little")
            s[k.FIRST] = s[k.NEXT]
            s[k.SOURCE] = -1
            s[k.GROUP] = ev.EXPECTING
        schema, text = _statement(message)
        word = text[:12].upper()
        ends = s[k.GROUP] == ev.EXPECTING
        if word == "BEGIN":
            s[k.GROUP] = ev.INSIDE
            return
        if word.startswith("XA START"):
            s[k.GROUP] = ev.INSIDE
            self._begin_aside(xa.name_of_statement(text))
            return
        if word.startswith("XA END"):
            return
        if word.startswith("XA COMMIT"):
            self._replay(xa.name_of_statement(text))
        elif word.startswith("XA ROLLBACK"):
            self._memory.remove(xa.name_of_statement(text))
        elif word == "COMMIT":
            if self._aside is not None:
                self._replay(self._aside.name)
            ends = True
        elif word == "ROLLBACK":
            self._undo("a transaction was logged and rolled back")
            ends = True
        elif word.startswith("ROLLBACK TO"):
            self._break_written("a part of a transaction was logged and rolled back")
        else:
            self._apply(text, schema, number)
        if ends:
            self._complete(number, moment_us)

    def _apply(self, text: str, schema: str, number: int) -> None:
        """What a statement does to the tables that are followed."""
        try:
            effects = ddl.effects(text, schema)
        except ddl.Unreadable:
            for id in self._followed:
                known = self._memory.version(id)
                if known is None or known.table.lower() in text.lower():
                    self._break_known(id, "a statement about it could not be read")
            return
        for e in effects:
            if e.does is ddl.Does.DROP_SCHEMA:
                if self._fold(e.schema) == self._fold(self._server.database):
                    self._break_all(e.reason)
                continue
            name = self._fold(e.schema), self._fold(e.table)
            id = table_number(*name)
            if id in self._followed and e.does is ddl.Does.TRUNCATE:
                self._truncate(id, *name)
            elif id in self._followed and e.does is ddl.Does.BREAK:
                self._break(id, *name, e.reason)
            if e.does is not ddl.Does.TRUNCATE and (id in self._followed or self._memory.version(id) is not None):
                self._forget_description(id)
                wrong = self._history.met_ddl(id, number, self._memory)
                if wrong and id in self._followed:
                    self._break(id, *name, wrong)

    def _fold(self, name: str) -> str:
        return name.lower() if self._server.fold_names else name

    def _truncate(self, id: int, schema: str, table: str) -> None:
        if id not in self._described:
            columns = self._columns(id)
            self._relations.append(Relation(int(self._s[k.ROW]), id, schema, table, "f", columns))
        self._add_row(Op.TRUNCATE, id, b"")

    def _columns(self, id: int) -> tuple[LogColumn, ...]:
        """The last description of a table, for rows that carry no values."""
        if id in self._described:
            return self._described[id][1]
        known = self._memory.version(id)
        return known.columns if known is not None else ()

    def _forget_description(self, id: int) -> None:
        self._described.pop(id, None)
        self._maps.describe(id, None)

    def _break(self, id: int, schema: str, table: str, reason: str) -> None:
        """One row that says that the table cannot be followed past here; one for each table and batch."""
        if id not in self._broken:
            self._broken.add(id)
            row = int(self._s[k.ROW])
            self._relations.append(Relation(row, id, schema, table, "f", self._columns(id), broken=reason))
            self._add_row(Op.BREAK, id, b"")
        self._forget_description(id)

    def _break_known(self, id: int, reason: str) -> None:
        known = self._memory.version(id)
        table = next((t for t in self._maps.tables if t.id == id), None)
        name = ("", "") if table is None else (table.schema, table.table)
        self._break(id, *((known.schema, known.table) if known is not None else name), reason)

    def _break_all(self, reason: str) -> None:
        for id in sorted(self._followed):
            self._break_known(id, reason)

    def _break_written(self, reason: str) -> None:
        """Breaks the tables that the open transaction wrote: all of them if its beginning is not at hand."""
        s = self._s
        if s[k.FIRST] < self._before.next_index:
            self._break_all(reason)
            return
        for id in np.unique(self._longs[1, s[k.ROW] - (s[k.NEXT] - s[k.FIRST]) : s[k.ROW]]).tolist():
            self._break_known(id, reason)

    def _undo(self, reason: str) -> None:
        """Forgets the rows of the open transaction, which did not happen."""
        s = self._s
        if s[k.FIRST] < self._before.next_index:
            self._break_all(reason)  # some of them are published
            return
        s[k.ROW] -= s[k.NEXT] - s[k.FIRST]
        s[k.NEXT] = s[k.FIRST]

    # transactions in two phases

    def _begin_aside(self, name: str) -> None:
        self._aside, self._kept = xa.Aside(name), []
        self._s[k.ASIDE] = 1

    def _keep_aside(self, message: bytes) -> None:
        if self._aside is None:
            raise damaged("a prepared transaction has no id")
        self._kept.append(message)

    def _meet_prepare(self, message: bytes, number: int, moment_us: int) -> None:
        if self._aside is None:
            raise damaged("a transaction is prepared that was not begun")
        if xa.commits_at_once(message[ev.NUMBER_BYTES :]):
            self._replay(self._aside.name)
        else:
            self._aside.keep(self._kept, self._memory)
        self._complete(number, moment_us)

    def _replay(self, name: str) -> None:
        """Makes the rows of a prepared group rows of the open transaction."""
        mine = self._aside is not None and self._aside.name == name
        kept = self._memory.get(name) if not mine or (self._aside is not None and self._aside.parts) else b""
        if kept is None:
            self._break_all("a transaction committed that was prepared before the connection began")
            return
        data, lengths = xa.unpack(kept + (xa.pack(self._kept) if mine else b""))
        s = self._s
        here, self._aside, self._kept = (int(s[k.MESSAGE]), int(s[k.AT]), int(s[k.GROUP])), None, []
        s[k.ASIDE], s[k.GROUP] = 0, ev.INSIDE
        base = self._size
        self._extra.append(data.tobytes())
        self._size += len(data)
        self.run(data, lengths, base)
        s[k.MESSAGE], s[k.AT], s[k.GROUP] = here
        self._memory.remove(name)


_ROWS = frozenset(
    {ev.WRITE_ROWS_V1, ev.UPDATE_ROWS_V1, ev.DELETE_ROWS_V1, ev.WRITE_ROWS, ev.UPDATE_ROWS, ev.DELETE_ROWS}
    | {ev.PARTIAL_UPDATE_ROWS}
)


def _statement(message: bytes) -> tuple[str, str]:
    """The schema and the text of a statement."""
    body = message[ev.BODY :]
    schema_size, variables = body[8], int.from_bytes(body[11:13], "little")
    load = 13 if message[ev.NUMBER_BYTES + ev.TYPE] == ev.EXECUTE_LOAD_QUERY else 0
    at = 13 + load + variables
    schema, text = body[at : at + schema_size], body[at + schema_size + 1 :]
    return schema.decode("utf-8", "replace"), text.decode("utf-8", "replace")
