"""Material as inputs of a view that follows it: the states of all tables after each transaction, made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from headwater.view import InputColumn, InputSchema
from support import view_moves
from support.view_moves import Values, View
from support.views.changes import Writer
from support.views.material import Case, Model, Row, Step, Table

State = Mapping[str, dict[Values, Row]]  # rows by key, by table


@dataclass(slots=True)
class Frames:
    """The DataFrames of states of tables. Many views read them, and a state that did not change is the same object."""

    session: SparkSession
    _made: dict[int, tuple[object, DataFrame]] = field(default_factory=dict)

    def of(self, table: view_moves.Table, rows: Mapping[Values, Values]) -> DataFrame:
        known = self._made.get(id(rows))
        if known is None:
            known = self._made[id(rows)] = rows, view_moves.Table.frame(table, self.session, rows)
        return known[1]


@dataclass
class Input(view_moves.Table):
    """A table whose DataFrames are shared."""

    frames: Frames | None = None

    def frame(self, session: SparkSession, rows: Mapping[Values, Values]) -> DataFrame:
        assert self.frames is not None and session is self.frames.session
        return self.frames.of(self, rows)


@dataclass(slots=True)
class History:
    """Tables, and their rows after each of several transactions."""

    tables: Mapping[str, Table]
    states: list[State]
    frames: Frames

    @classmethod
    def played(cls, session: SparkSession, tables: Mapping[Table, Sequence[Row]], steps: Sequence[Step]) -> History:
        """The transactions of a case."""
        model = Model.of(tables)
        made = cls(model.tables, [{n: dict(rows) for n, rows in model.rows.items()}], Frames(session))
        for step in steps:
            model.apply(step)
            made._add(model, step)
        return made

    @classmethod
    def written(cls, session: SparkSession, writer: Writer, steps: int) -> History:
        """Random transactions."""
        model = writer.model
        made = cls(model.tables, [{n: dict(rows) for n, rows in model.rows.items()}], Frames(session))
        for _ in range(steps):
            made._add(model, writer.step())
        return made

    @classmethod
    def of_case(cls, session: SparkSession, case: Case) -> History:
        return cls.played(session, case.tables, case.steps)

    def _add(self, model: Model, step: Step) -> None:
        touched = {change.table for change in step}
        self.states.append({n: dict(model.rows[n]) if n in touched else rows for n, rows in self.states[-1].items()})

    def follow(self, query: str) -> View:
        """A view that has followed every transaction, and was equal to its query after each."""
        first = self.states[0]
        inputs = {n: Input(schema(t), first[n], first[n], self.frames) for n, t in self.tables.items()}
        view = View(self.frames.session, query, inputs)
        view.check()
        for state in self.states[1:]:
            for name, table in inputs.items():
                table.before, table.rows = table.rows, state[name]
            view.follow()
            view.check()
        return view


def schema(t: Table) -> InputSchema:
    """A table as the algebra sees it: any column may be NULL but those of its key."""
    return InputSchema(tuple(InputColumn(name, kind.upper(), name not in t.key) for name, kind in t.columns), t.key)
