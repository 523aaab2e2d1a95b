"""Random tables, queries over them, and changes, for views. No query asks for what an open order decides."""

from __future__ import annotations

import datetime
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from headwater.view import InputColumn, InputSchema
from support.views import Table, Values, settle

KINDS = ("INT", "BIGINT", "DECIMAL(10,2)", "STRING", "BOOLEAN", "DATE", "DOUBLE")
LOOSE = "LOOSE"  # a double that depends on the order of additions: selected, never compared


@dataclass(frozen=True)
class Column:
    name: str
    kind: str


@dataclass(frozen=True)
class Relation:
    """A query and its columns."""

    sql: str
    columns: tuple[Column, ...]

    def of(self, *kinds: str) -> list[Column]:
        return [c for c in self.columns if c.kind in kinds]

    @property
    def exact(self) -> list[Column]:
        return [c for c in self.columns if c.kind != LOOSE]


def value_of(source: random.Random, kind: str) -> Any:
    """A value from a domain so small that rows meet."""
    if source.random() < 0.2:
        return None
    few = source.randrange(4)
    match kind:
        case "INT" | "BIGINT":
            return few
        case "DECIMAL(10,2)":
            return Decimal(few) / 4
        case "STRING":
            return "abc"[:few]
        case "BOOLEAN":
            return few > 1
        case "DATE":
            return datetime.date(2024, 1, 1 + few)
        case _:
            return few / 8


def random_tables(source: random.Random) -> dict[str, Table]:
    """Two or three tables with keys of one or two columns."""
    tables = {}
    for number in range(source.randrange(2, 4)):
        key = tuple(f"k{i}" for i in range(source.randrange(1, 3)))
        columns = [InputColumn(name, "INT", False) for name in key]
        columns += [InputColumn(f"x{i}", source.choice(KINDS)) for i in range(source.randrange(2, 5))]
        tables[f"t{number}"] = Table(InputSchema(tuple(columns), key))
    for table in tables.values():
        for _ in range(8):
            table.put(_row(source, table))
    settle(tables)
    return tables


def _row(source: random.Random, table: Table, key: Values = ()) -> Values:
    keys = key or tuple(source.randrange(9) for _ in table.schema.key)
    rest = table.schema.columns[len(keys) :]
    return (*keys, *(value_of(source, c.type) for c in rest))


def random_change(source: random.Random, tables: dict[str, Table]) -> None:
    """New, changed and removed rows in one or more tables."""
    for name in source.sample(sorted(tables), source.randrange(1, len(tables) + 1)):
        table = tables[name]
        only_new = source.random() < 0.2
        for _ in range(source.randrange(1, 5)):
            if table.rows and not only_new and source.random() < 0.6:
                key = source.choice(sorted(table.rows))
                if source.random() < 0.5:
                    table.drop(key)
                else:
                    table.put(_row(source, table, key))
            else:
                row = _row(source, table)
                if table.key_of(row) not in table.rows:
                    table.put(row)


class Queries:
    """Makes random queries over tables."""

    def __init__(self, source: random.Random, tables: dict[str, Table]) -> None:
        self._source = source
        self._tables = tables
        self._aliases = 0

    def query(self, depth: int) -> str:
        return self.relation(depth).sql

    def relation(self, depth: int) -> Relation:
        if depth == 0:
            name = self._source.choice(sorted(self._tables))
            columns = self._tables[name].schema.columns
            found = tuple(Column(f"c{i}", c.type) for i, c in enumerate(columns))
            names = ", ".join(f"{c.name} as {f.name}" for c, f in zip(columns, found, strict=True))
            return Relation(f"select {names} from {name}", found)
        steps = [self._filtered, self._joined, self._joined, self._grouped, self._grouped, self._windowed]
        steps += [self._set_operation, self._matched, self._exploded, self._distinct, self._computed]
        return self._source.choice(steps)(depth)

    def _alias(self) -> str:
        self._aliases += 1
        return f"q{self._aliases}"

    def _filtered(self, depth: int) -> Relation:
        child = self.relation(depth - 1)
        return Relation(f"select * from ({child.sql}) where {self._condition(child)}", child.columns)

    def _condition(self, child: Relation) -> str:
        column = self._source.choice(child.exact)
        match column.kind:
            case "INT" | "BIGINT" | "DECIMAL(10,2)" | "DOUBLE":
                return f"{column.name} {self._source.choice(['>', '<=', '<>'])} {self._source.randrange(3)}"
            case "BOOLEAN":
                return f"not {column.name}"
            case _:
                return f"{column.name} is {self._source.choice(['null', 'not null'])}"

    def _computed(self, depth: int) -> Relation:
        child = self.relation(depth - 1)
        numbers = child.of("INT", "BIGINT")
        if not numbers:
            return child
        column = self._source.choice(numbers)
        more = f"case when {column.name} > 1 then {column.name} * 2 end"
        made = Column(f"c{len(child.columns)}", column.kind)
        return Relation(f"select *, {more} as {made.name} from ({child.sql})", (*child.columns, made))

    def _joined(self, depth: int) -> Relation:
        left, right = self.relation(depth - 1), self.relation(self._source.randrange(depth))
        one, two = self._alias(), self._alias()
        condition = self._pair(left, right, one, two)
        if condition is None:
            return left
        how = self._source.choice(["join", "join", "left join", "right join", "full join"])
        taken = [(one, c) for c in left.columns] + [(two, c) for c in right.columns]
        found = tuple(Column(f"c{i}", c.kind) for i, (_, c) in enumerate(taken))
        names = ", ".join(f"{a}.{c.name} as {f.name}" for (a, c), f in zip(taken, found, strict=True))
        return Relation(f"select {names} from ({left.sql}) {one} {how} ({right.sql}) {two} on {condition}", found)

    def _pair(self, left: Relation, right: Relation, one: str, two: str) -> str | None:
        pairs = [(a, b) for a in left.exact for b in right.exact if a.kind == b.kind]
        if not pairs:
            return None
        a, b = self._source.choice(pairs)
        condition = f"{one}.{a.name} {self._source.choice(['=', '=', '=', '<=>'])} {two}.{b.name}"
        if self._source.random() < 0.3:
            a, b = self._source.choice(pairs)
            condition += f" and {one}.{a.name} <= {two}.{b.name}"
        return condition

    def _matched(self, depth: int) -> Relation:
        left, right = self.relation(depth - 1), self.relation(self._source.randrange(depth))
        one, two = self._alias(), self._alias()
        condition = self._pair(left, right, one, two)
        if condition is None:
            return left
        kind = self._source.choice(["semi", "anti", "or", "in", "not in"])
        if kind in ("semi", "anti"):
            sql = f"select {one}.* from ({left.sql}) {one} left {kind} join ({right.sql}) {two} on {condition}"
        elif kind == "or":
            inside = f"exists (select 1 from ({right.sql}) {two} where {condition})"
            sql = f"select {one}.* from ({left.sql}) {one} where {inside} or {self._condition(left)}"
        else:
            a, b = next((a, b) for a in left.exact for b in right.exact if a.kind == b.kind)
            sql = f"select * from ({left.sql}) where {a.name} {kind} (select {b.name} from ({right.sql}))"
        return Relation(sql, left.columns)

    def _grouped(self, depth: int) -> Relation:
        child = self.relation(depth - 1)
        groups = self._source.sample(child.exact, self._source.randrange(min(3, len(child.exact)) + 1))
        calls = [self._call(child) for _ in range(self._source.randrange(1, 4))]
        taken = [(c.name, c.kind) for c in groups] + calls
        found = tuple(Column(f"c{i}", kind) for i, (_, kind) in enumerate(taken))
        names = ", ".join(f"{text} as {f.name}" for (text, _), f in zip(taken, found, strict=True))
        by = ", ".join(c.name for c in groups)
        if not groups:
            return Relation(f"select {names} from ({child.sql})", found)
        how = self._source.choice([by, by, by, f"rollup({by})", f"cube({by})"])
        having = self._source.choice(["", "", " having count(*) > 1"])
        return Relation(f"select {names} from ({child.sql}) group by {how}{having}", found)

    def _call(self, child: Relation) -> tuple[str, str]:
        column = self._source.choice(child.columns)
        where = f" filter (where {self._condition(child)})" if self._source.random() < 0.2 else ""
        choices = [("count(*)", "BIGINT"), (f"count({column.name})", "BIGINT")]
        if column.kind in ("DOUBLE", LOOSE):
            choices += [(f"sum({column.name})", LOOSE), (f"avg({column.name})", LOOSE)]
        if column.kind in ("INT", "BIGINT"):
            choices += [(f"sum({column.name})", "BIGINT"), (f"avg({column.name})", "DOUBLE")]
        if column.kind == "DECIMAL(10,2)":
            choices += [(f"sum({column.name})", "DECIMAL(20,2)"), (f"avg({column.name})", "DECIMAL(14,6)")]
        if column.kind == "BOOLEAN":
            choices += [(f"bool_and({column.name})", "BOOLEAN"), (f"count_if({column.name})", "BIGINT")]
        if column.kind != LOOSE:
            choices += [(f"max({column.name})", column.kind), (f"min({column.name})", column.kind)]
            choices += [(f"count(distinct {column.name})", "BIGINT")]
        text, kind = self._source.choice(choices)
        return text + where, kind

    def _windowed(self, depth: int) -> Relation:
        child = self.relation(depth - 1)
        by = ", ".join(
            c.name for c in self._source.sample(child.exact, self._source.randrange(1, 3) % len(child.exact) or 1)
        )
        order = ", ".join(c.name for c in child.exact)
        made = Column(f"c{len(child.columns)}", "BIGINT")
        loose = any(c.kind == LOOSE for c in child.columns)  # rows that are equal but for these are no ties
        text = self._source.choice(
            [
                f"cast(rank() over (partition by {by} order by {order}) as bigint)",
                f"count(*) over (partition by {by})",
                "cast(null as bigint)"
                if loose
                else f"cast(row_number() over (partition by {by} order by {order}) as bigint)",
                f"count(*) over (partition by {by} order by {order} rows between 1 preceding and current row)",
            ]
        )
        return Relation(f"select *, {text} as {made.name} from ({child.sql})", (*child.columns, made))

    def _set_operation(self, depth: int) -> Relation:
        left, right = self.relation(depth - 1), self.relation(self._source.randrange(depth))
        pairs = [(a, b) for a in left.exact for b in right.exact if a.kind == b.kind]
        if not pairs:
            return left
        taken = self._source.sample(pairs, self._source.randrange(1, min(3, len(pairs)) + 1))
        found = tuple(Column(f"c{i}", a.kind) for i, (a, _) in enumerate(taken))
        one = ", ".join(f"{a.name} as {f.name}" for (a, _), f in zip(taken, found, strict=True))
        two = ", ".join(b.name for _, b in taken)
        how = self._source.choice(["union all", "union", "except", "except all", "intersect", "intersect all"])
        return Relation(f"select {one} from ({left.sql}) {how} select {two} from ({right.sql})", found)

    def _distinct(self, depth: int) -> Relation:
        child = self.relation(depth - 1)
        taken = self._source.sample(child.exact, self._source.randrange(1, len(child.exact) + 1))
        return Relation(f"select distinct {', '.join(c.name for c in taken)} from ({child.sql})", tuple(taken))

    def _exploded(self, depth: int) -> Relation:
        child = self.relation(depth - 1)
        made = Column(f"c{len(child.columns)}", "INT")
        counts = child.of("INT")
        if not counts:
            return child
        outer = self._source.choice(["", "outer "])
        array = f"slice(array(1, 1, 2, 3), 1, least(greatest({counts[0].name}, 0), 4))"
        view = f"lateral view {outer}explode({array}) {self._alias()} as {made.name}"
        return Relation(f"select * from ({child.sql}) {self._alias()} {view}", (*child.columns, made))
