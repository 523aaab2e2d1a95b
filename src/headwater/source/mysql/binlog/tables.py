"""The tables that a batch touches: how their rows are described, what statements do to them, where they break."""

from __future__ import annotations

from headwater.model import LogColumn, Op
from headwater.source.frames import Described, Memory, Taken
from headwater.source.mysql.binlog import events as ev
from headwater.source.mysql.binlog import state as k
from headwater.source.mysql.binlog.carry import Carried, Sender
from headwater.source.mysql.binlog.history import History
from headwater.source.mysql.binlog.maps import Maps
from headwater.source.mysql.binlog.position import table_number
from headwater.source.mysql.binlog.tablemap import TableMap
from headwater.source.mysql.binlog.written import Written
from headwater.source.mysql.client.unpack import damaged
from headwater.source.mysql.ddl import effects as ddl
from headwater.source.mysql.ddl.alter import Touches
from headwater.source.mysql.ddl.judge import Subject, obstacle
from headwater.source.mysql.ddl.statement import Statement


class Tables:
    """Descriptions and breaks of the tables in a batch; both are written among its rows."""

    def __init__(
        self, server: Sender, history: History, maps: Maps, memory: Memory, written: Written, own: Carried
    ) -> None:
        self.described = dict(own.described)
        self._server, self._history, self._maps, self._memory = server, history, maps, memory
        self._written = written
        self._followed = memory.followed()
        self._met: dict[int, tuple[LogColumn, ...]] = {}  # the last descriptions in this batch, and those before it
        self._broken: set[int] = set()
        maps.follow(self._followed)

    def describe(self, message: bytes) -> None:
        """Handles a table map that is new, or whose table's rows are not described yet."""
        ordinal = self._maps.ordinal(message[ev.BODY + 8 :])
        self._maps.use(_table_id(message), ordinal)
        info = self._maps.info[ordinal]
        if not info[k.FOLLOWED] or info[k.DESCRIBED]:
            return
        table = self._maps.tables[ordinal]
        if table.unreadable:
            self.break_table(table.id, table.schema, table.table, table.unreadable)
            return
        columns = table.columns if table.complete else self._history.columns(table, self._memory)
        if isinstance(columns, str):
            self.break_table(table.id, table.schema, table.table, columns)
            return
        row = self._written.row
        self._written.relations.append(Described(row, table.id, table.schema, table.table, "f", columns))
        self.described[table.id] = (ordinal, columns)
        self._met[table.id] = columns
        self._history.described(table.id, self._memory)
        self._maps.describe(table.id, ordinal)

    def of_rows(self, message: bytes) -> TableMap | None:
        """The table of a rows event; None if its rows are not needed."""
        ordinal = self._maps.active.get(_table_id(message))
        if ordinal is None:
            raise damaged("rows of a table come without its description")
        info = self._maps.info[ordinal]
        return self._maps.tables[ordinal] if info[k.FOLLOWED] and info[k.DESCRIBED] else None

    def apply(self, statement: Statement, number: int) -> None:
        """Applies a statement to the followed tables."""
        for e in ddl.effects(statement):
            if e.does is ddl.Does.BREAK_ALL:
                if self._concerns(statement):
                    self.break_all(e.reason)
            elif e.does is not ddl.Does.BREAK_SCHEMA:
                self._apply_effect(e, statement, number)
            elif self._fold(e.schema) == self._fold(self._server.database):
                self.break_all(e.reason)

    def break_table(self, id: int, schema: str, table: str, reason: str) -> None:
        """Writes a row that says that the table cannot be followed past here; one per table and batch."""
        if id not in self._broken:
            self._broken.add(id)
            columns = self._columns(id)
            self._written.relations.append(Described(self._written.row, id, schema, table, "f", columns, reason))
            self._written.add_row(Op.BREAK, id, b"")
        self._forget_description(id)

    def break_all(self, reason: str) -> None:
        """Breaks every followed table."""
        for id in sorted(self._followed):
            self._break_known(id, reason)

    def break_open(self, reason: str) -> None:
        """Breaks the tables that the open transaction wrote: all tables if its beginning is no longer available."""
        for id in self._written.open_tables() if self._written.whole else sorted(self._followed):
            self._break_known(id, reason)

    def undo(self, reason: str) -> None:
        """Undoes the open transaction, which did not happen; if part of it is published, that breaks the tables."""
        if self._written.whole:
            self._written.forget_open_rows()
        else:
            self.break_all(reason)

    def _concerns(self, statement: Statement) -> bool:
        """Whether the statement may have touched our database: MySQL logs which ones it touched."""
        databases = statement.databases
        return databases is None or self._fold(self._server.database) in {self._fold(name) for name in databases}

    def _apply_effect(self, e: ddl.Effect, statement: Statement, number: int) -> None:
        schema, table = self._fold(e.schema), self._fold(e.table)
        id = table_number(schema, table)
        followed = id in self._followed
        if e.does is ddl.Does.TRUNCATE:
            if followed:
                self._truncate(id, schema, table)
            return
        reason = e.reason
        if followed and e.alterations:
            reason = obstacle(e.alterations, ddl.session_of(statement), self._subject(id, schema, table, e, number))
            if dropped := {c.name.lower() for c in e.alterations if c.touches is Touches.DROP}:
                self._history.met_drop(id, dropped, number, self._memory)
        if followed and reason:
            self.break_table(id, schema, table, reason)
        if followed or self._memory.version(id) is not None:
            self._forget_description(id)
            wrong = self._history.met_ddl(id, number, self._memory)
            if wrong and followed:
                self.break_table(id, schema, table, wrong)

    def _subject(self, id: int, schema: str, table: str, e: ddl.Effect, number: int) -> Subject:
        """A table, as far as judging an alteration needs it."""
        logged = {c.name.lower(): c for c in self._columns(id)}
        primary = frozenset(name for name, c in logged.items() if c.key)
        if not logged and any(c.touches in (Touches.INDEX, Touches.TYPE) for c in e.alterations):
            primary = self._history.primary_key(schema, table)
        taken = self._memory.taken(id) or (Taken((), ()),)
        gone = frozenset[str]() if id in self.described else self._history.gone(id, number, self._memory)
        return Subject(taken, logged, primary, self._server.hides_cascades, gone)

    def _truncate(self, id: int, schema: str, table: str) -> None:
        if id not in self.described:
            row = self._written.row
            self._written.relations.append(Described(row, id, schema, table, "f", self._columns(id)))
        self._written.add_row(Op.TRUNCATE, id, b"")

    def _break_known(self, id: int, reason: str) -> None:
        known = self._memory.version(id)
        table = next((t for t in self._maps.tables if t.id == id), None)
        name = ("", "") if table is None else (table.schema, table.table)
        self.break_table(id, *((known.schema, known.table) if known is not None else name), reason)

    def _columns(self, id: int) -> tuple[LogColumn, ...]:
        """The last description of a table, for rows that carry no values."""
        if id in self.described:
            return self.described[id][1]
        if id in self._met:
            return self._met[id]
        known = self._memory.version(id)
        return known.columns if known is not None else ()

    def _forget_description(self, id: int) -> None:
        self.described.pop(id, None)
        self._maps.describe(id, None)

    def _fold(self, name: str) -> str:
        return name.lower() if self._server.fold_names else name


def _table_id(message: bytes) -> int:
    return int.from_bytes(message[ev.BODY : ev.BODY + 6], "little")
