"""Inputs of views that change in steps, and the judge: after each step a view must equal its query."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, _parse_datatype_string

from headwater.engine.view.anew import stored_columns, stored_order
from headwater.model import RelationInfo, TableState
from headwater.origin import ViewOrigin
from headwater.view import InputColumn, InputSchema, Shape, Tree, read_plan, recompute, refresh, shape
from headwater.view.reading import shown
from headwater.view.shape import WEIGHT

Values = tuple[Any, ...]


def schema_of(ddl: str, key: str) -> InputSchema:
    """`id BIGINT, v DECIMAL(9,2)`, with the names of its key: key columns are NOT NULL."""
    parts = [part.strip().split(" ", 1) for part in ddl.split(";")]
    keys = tuple(name.strip() for name in key.split(","))
    return InputSchema(tuple(InputColumn(n, kind, n not in keys) for n, kind in parts), keys)


def local(session: SparkSession, rows: Sequence[Values], ddl: str) -> DataFrame:
    """Rows as a DataFrame that needs no job of its own: Spark holds them in its plan."""
    schema = _parse_datatype_string(ddl)
    assert isinstance(schema, StructType)
    columns = {f.name: [_for_arrow(row[i]) for row in rows] for i, f in enumerate(schema.fields)}
    types = to_arrow_schema(schema, timezone="UTC")
    return session.createDataFrame(pa.table(columns, schema=types), schema)


def _for_arrow(value: Any) -> Any:
    """A struct as Arrow takes it, which does not know Spark's rows."""
    if isinstance(value, Row):
        return {name: _for_arrow(v) for name, v in value.asDict().items()}
    return [_for_arrow(v) for v in value] if isinstance(value, list) else value


@dataclass
class Table:
    """An input: its rows by key, as they were at the last step and as they are."""

    schema: InputSchema
    rows: dict[Values, Values] = field(default_factory=dict)
    before: dict[Values, Values] = field(default_factory=dict)

    def key_of(self, row: Values) -> Values:
        names = [c.name for c in self.schema.columns]
        return tuple(row[names.index(k)] for k in self.schema.key)

    def put(self, *rows: Values) -> None:
        for row in rows:
            self.rows[self.key_of(row)] = row

    def drop(self, *keys: Any) -> None:
        for key in keys:
            del self.rows[key if isinstance(key, tuple) else (key,)]

    @property
    def ddl(self) -> str:
        return ", ".join(f"`{c.name}` {c.type}{'' if c.nullable else ' NOT NULL'}" for c in self.schema.columns)

    def frame(self, session: SparkSession, rows: Mapping[Values, Values]) -> DataFrame:
        return local(session, list(rows.values()), self.ddl)


@dataclass
class Step:
    """A `Moved` of one table between the last step and now."""

    session: SparkSession
    table: Table

    @property
    def changed(self) -> bool:
        return self.table.rows != self.table.before

    @property
    def append_only(self) -> bool:
        return all(self.table.rows.get(k) == row for k, row in self.table.before.items())

    @property
    def rows(self) -> int:
        return len(self.signed())

    def signed(self) -> list[Values]:
        before, now = self.table.before, self.table.rows
        went = [(*row, -1) for key, row in before.items() if now.get(key) != row]
        return went + [(*row, 1) for key, row in now.items() if before.get(key) != row]

    def pre(self) -> DataFrame:
        return self.table.frame(self.session, self.table.before)

    def post(self) -> DataFrame:
        return self.table.frame(self.session, self.table.rows)

    def delta(self) -> DataFrame:
        return local(self.session, self.signed(), f"{self.table.ddl}, {WEIGHT} INT NOT NULL")


@dataclass
class View:
    """A view that is kept up step by step, and checked against its query after each."""

    session: SparkSession
    query: str
    tables: Mapping[str, Table]
    move: type[Step] = Step
    tree: Tree = field(init=False)
    shape: Shape = field(init=False)
    state: dict[Values, Values] = field(init=False)
    strategies: list[str] = field(default_factory=list)
    reason: str = ""

    def __post_init__(self) -> None:
        self.tree = read_plan(self.session, self.query, {n: t.schema for n, t in self.tables.items()})
        self.shape = shape(self.tree)
        self.state = self._by_key(self.scratch().collect())

    def frames(self) -> dict[str, DataFrame]:
        return {name: table.frame(self.session, table.rows) for name, table in self.tables.items()}

    def scratch(self) -> DataFrame:
        return recompute(self.tree, self.frames())

    def stored(self) -> DataFrame:
        ddl = ", ".join(f"`{c.name}` {c.type}" for c in self.shape.columns)
        return local(self.session, list(self.state.values()), ddl)

    def _by_key(self, rows: Sequence[Row]) -> dict[Values, Values]:
        found = {self._key(row): tuple(row) for row in rows}
        assert len(found) == len(rows), f"the key {self.shape.key} is not unique: {self.query}"
        return found

    def _key(self, row: Values) -> Values:
        names = [c.name for c in self.shape.columns]
        return tuple(_hashable(row[names.index(k)]) for k in self.shape.key)

    def follow(self) -> str:
        """Moves the view to the tables as they are; gives the strategy."""
        step = refresh(self.tree, {name: self.move(self.session, t) for name, t in self.tables.items()}, self.stored())
        self.strategies.append(step.strategy)
        self.reason = step.reason
        if step.delta is not None:
            self._apply([tuple(row) for row in step.delta.collect()])
        return step.strategy

    def _apply(self, signed: list[Values]) -> None:
        went = [row[:-1] for row in signed if row[-1] == -1]
        came = [row[:-1] for row in signed if row[-1] == 1]
        assert len(went) + len(came) == len(signed), f"weights other than -1 and +1: {self.query}"
        for rows in (went, came):
            assert len({self._key(r) for r in rows}) == len(rows), f"two rows of a key: {self.query}"
        old = {self._key(row): row for row in went}
        for row in came:
            before = [_hashable(value) for value in old.get(self._key(row), ())]
            assert before != [_hashable(value) for value in row], f"an equal pair: {self.query}"
        for key, row in old.items():
            assert _canonical(self.state.get(key, ())) == _canonical(row), (
                f"a row went that was not there: {self.query}"
            )
            del self.state[key]
        for row in came:
            assert self._key(row) not in self.state, f"a row came twice: {self.query}"
            self.state[self._key(row)] = row

    def visible(self) -> list[Values]:
        """What a reader sees."""
        if self.shape.order or self.shape.limit is not None or self.shape.offset:
            return [tuple(row) for row in shown(relation_of(self.shape), self.stored()).collect()]
        kept = [row for row in self.state.values() if not self.shape.shown or row[-1]]
        return [row[: self.shape.visible] for row in kept]

    def check(self) -> None:
        """The view equals its query over the tables as they are, types and names included."""
        for name, frame in self.frames().items():
            frame.createOrReplaceTempView(name)
        wanted = self.session.sql(self.query)
        mine = [(c.name, c.type) for c in self.shape.columns[: self.shape.visible]]
        assert mine == [(f.name, _sql(wanted, i)) for i, f in enumerate(wanted.schema)]
        problem = unlike(self.visible(), [tuple(row) for row in wanted.collect()])
        assert not problem, f"{self.query}\n{self.strategies}\n{problem}"


def relation_of(view: Shape) -> RelationInfo:
    """A view of this shape as meta stores it."""
    origin = ViewOrigin("", (), view.visible, stored_order(view), view.limit, view.offset)
    return RelationInfo(1, "v", origin, stored_columns(view), view.key, {}, TableState.LIVE, None, "", 0)


def _sql(frame: DataFrame, at: int) -> str:
    return str(frame._jdf.schema().apply(at).dataType().sql())


def settle(tables: Mapping[str, Table]) -> None:
    """What the tables are becomes what they were."""
    for table in tables.values():
        table.before = dict(table.rows)


def _hashable(value: Any) -> Any:
    if isinstance(value, Row | tuple):
        return tuple(_hashable(v) for v in value)
    if isinstance(value, list):
        return ("list", *(_hashable(v) for v in value))
    if isinstance(value, dict):
        return ("map", *sorted((repr(k), _hashable(v)) for k, v in value.items()))
    if isinstance(value, float) and value != value:
        return "NaN"  # as a key it is one value, which Python's is not
    return value


def _canonical(row: Values) -> str:
    return repr([_rough(_hashable(value)) for value in row])


def _rough(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}" if value else "0"
    if isinstance(value, Decimal):
        return str(value)
    return tuple(_rough(v) for v in value) if isinstance(value, tuple) else value


def unlike(got: list[Values], wanted: list[Values]) -> str:
    """How two bags of rows differ, floating point numbers within 1e-9; "" if they do not."""
    mine, theirs = Counter(map(_canonical, got)), Counter(map(_canonical, wanted))
    if mine != theirs:
        return f"extra {dict(mine - theirs)}\nmissing {dict(theirs - mine)}"
    for one, two in zip(sorted(got, key=_canonical), sorted(wanted, key=_canonical), strict=True):
        for a, b in zip(one, two, strict=True):
            if isinstance(a, float) and not (math.isclose(a, b, rel_tol=1e-9) or (a != a and b != b)):
                return f"{a} is not {b}"
    return ""
