"""CREATE VIEW and CREATE MATERIALIZED VIEW: checked by Spark over empty inputs, then stored; the server fills them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from sqlalchemy.engine import Connection

from headwater.engine.home import Home
from headwater.errors import DefinitionError, SqlError
from headwater.meta import plain_views, relations, views
from headwater.model import Column, Ordering, UpstreamType
from headwater.sql.outcome import Outcome, Storable
from headwater.sql.parse import parse
from headwater.sql.refusal import refusal
from headwater.sql.statements import CreateMaterializedView, CreateView, ObjectKind, Query
from headwater.sql.view import known as known_names
from headwater.sql.view import names, text
from headwater.sql.view.analyse import Analysed, analyse
from headwater.sql.view.known import Known
from headwater.view import InputSchema, Shape, read_plan, shape
from headwater.view.inputs import input_schema
from headwater.view.rules import Rule

T = TypeVar("T", covariant=True)

HIDDEN = "__"  # how the names of columns begin that no reader sees
UNSTORABLE = re.compile(r"[ ,;{}()\n\t=]")  # in a column's name, for Delta
STORED = (NumericType, BooleanType, BinaryType, DateType, TimestampType, TimestampNTZType, DecimalType)


class Analysing(Protocol):
    """Calls a function with a Spark session, which may have to start first."""

    def __call__(self, work: Callable[[SparkSession], T], /) -> T: ...


@dataclass(frozen=True, slots=True)
class Planned:
    """A materialized view's query as it is stored, and what it stores and uses."""

    query: str
    shape: Shape
    inputs: tuple[Known, ...]
    uses: Mapping[str, Mapping[str, str]]  # by input: the columns and their types

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(c.name, c.type, UpstreamType("", 0), c.nullable) for c in self.shape.columns)


def plan_plain_view(home: Home, statement: CreateView, new: Mapping[str, Known], analysing: Analysing) -> Storable:
    """Checks that the query of a plain view is one that Spark can run; `new` are tables and views of the same block."""
    with home.meta.read() as c:
        known = {**known_names.everything(c), **new}
        existing = names.existing(c, statement)
    if existing is not None:
        return Storable(Outcome(f"view {existing.name} already exists"))
    found = analysing(lambda session: analyse(session, statement, known))
    query = statement.query.text

    def store(c: Connection, block: int) -> None:
        plain_views.add(c, name=statement.name, query=query, inputs=found.names, statement=statement.canonical())

    made = Known(statement.name, query=query, inputs=found.names)
    return Storable(Outcome(f"view {statement.name} created"), store, known=made)


def plan_view(
    home: Home, statement: CreateMaterializedView, new: Mapping[str, Known], analysing: Analysing
) -> Storable:
    """Checks that a query can be stored as a materialized view; `new` are tables and views of the same block."""
    with home.meta.read() as c:
        known = {**known_names.everything(c), **new}
        existing = names.existing(c, statement)
    if existing is not None:
        return Storable(Outcome(f"materialized view {existing.name} already exists"))

    def plan(session: SparkSession) -> tuple[Analysed, Planned]:
        return _plan(session, statement, known)

    found, planned = analysing(plan)
    if statement.options["refresh"] == "incremental":
        check_incremental(statement.name, planned.shape)
    options = {**statement.options, **clustered(statement.options, [c.name for c in _visible(planned.shape)])}
    named_plain = [name for name in found.names if known[name.lower()].query]

    def store(c: Connection, block: int) -> None:
        store_view(c, statement.name, planned, options, statement.canonical(), named_plain)

    made = Known(statement.name, planned.columns, planned.shape.visible, planned.shape.key, is_view=True)
    return Storable(Outcome(f"materialized view {statement.name} created"), store, known=made)


def _plan(
    session: SparkSession, statement: CreateMaterializedView, known: Mapping[str, Known]
) -> tuple[Analysed, Planned]:
    found = analyse(session, statement, known)
    _check_inputs(statement, found, known)
    _check_columns(found.columns)
    relations_below, plain_below = _below(found.names, known)
    queries = [statement.query.text, *(p.query for p in plain_below)]
    if not relations_below:
        raise _input(
            f"the query of {statement.name} reads no table", "Write CREATE VIEW: such a query has nothing to follow."
        )
    inputs = {k.name: input_schema(k.columns, k.key, k.is_view) for k in relations_below}
    columns: dict[str, Sequence[str]] = {k.name: [c.name for c in k.shown] for k in relations_below}
    whole = text.whole_text(statement.query, relations_below, plain_below, columns)
    made = planned(session, whole, inputs)
    if not text.takes_whole_rows(queries):
        for more in (set(), text.words(queries)):  # a column may be named in a place that makes no difference
            columns = {k.name: _needed(k, made, more) for k in relations_below}
            whole = text.whole_text(statement.query, relations_below, plain_below, columns)
            with contextlib.suppress(SqlError):
                made = planned(session, whole, inputs)
                break
    uses = {k.name: _uses(k, columns[k.name]) for k in relations_below}
    return found, Planned(whole, made, relations_below, uses)


def planned(session: SparkSession, query: str, inputs: Mapping[str, InputSchema]) -> Shape:
    """What a view with this whole text stores; raises `sql.query` if Spark refuses it."""
    try:
        return shape(read_plan(session, query, inputs))
    except PySparkException as e:
        (parsed,) = parse(query)
        assert isinstance(parsed, Query)
        raise refusal(e, parsed, names=list(inputs)) from e


def _needed(known: Known, made: Shape, mentioned: set[str]) -> list[str]:
    """The columns of an input that the query uses or names; at least one."""
    used = set(made.inputs.get(known.name, ()))
    names = [c.name for c in known.shown]
    return [n for n in names if n in used or n.lower() in mentioned] or names[:1]


def _uses(known: Known, columns: Sequence[str]) -> dict[str, str]:
    return {c.name: c.lake_type for c in known.columns if c.name in columns or c.name in known.key}


def _below(named: Sequence[str], known: Mapping[str, Known]) -> tuple[tuple[Known, ...], tuple[Known, ...]]:
    """The relations that a query reads, also through plain views; and these, each after those that it names."""
    found: dict[str, Known] = {}
    plain: dict[str, Known] = {}

    def visit(name: str) -> None:
        each = known[name.lower()]
        if not each.query:
            found[each.name] = each
        elif each.name not in plain:
            for below in each.inputs:
                visit(below)
            plain[each.name] = each

    for name in named:
        visit(name)
    return tuple(found.values()), tuple(plain.values())


def _check_inputs(statement: CreateMaterializedView, found: Analysed, known: Mapping[str, Known]) -> None:
    _, plain = _below(found.names, known)
    if text.calls_in([statement.query.text, *(p.query for p in plain)]):
        raise _input(
            f"the query of {statement.name} calls changelog(…) or changes(…)",
            "Read the table or view itself: a materialized view follows its changes. Run such calls as queries.",
        )
    if found.files:
        raise _input(
            f"the query of {statement.name} reads files directly",
            "Read tables and views of this home: changes of other files cannot be followed.",
        )


def _input(message: str, hint: str) -> DefinitionError:
    return DefinitionError("view.input", message, hint)


def _check_columns(columns: StructType) -> None:
    seen: set[str] = set()
    for number, field in enumerate(columns.fields, 1):
        name = field.name
        if UNSTORABLE.search(name) or not name:
            raise _column_name(f"column {number} has no name that can be stored: {name}")
        if name.startswith(HIDDEN):
            raise _column_name(f"column {number} is named {name}: names that begin with {HIDDEN} are reserved")
        if name.lower() in seen:
            raise _column_name(f"column {number} has the name of another one: {name}")
        seen.add(name.lower())
        if not _storable(field.dataType):
            kind = field.dataType.simpleString()
            hint = f"Cast it in the query, for example CAST({name} AS string) AS {name}."
            raise DefinitionError(
                "view.column_type", f"column {name} has the type {kind}, which Delta does not store", hint
            )


def _column_name(message: str) -> DefinitionError:
    return DefinitionError("view.column_name", message, "Name it in the query: SELECT expression AS name.")


def _storable(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _storable(kind.elementType)
        case MapType():
            return _storable(kind.keyType) and _storable(kind.valueType)
        case StructType():
            return all(_storable(f.dataType) for f in kind.fields)
        case StringType():
            return kind.simpleString() == "string"  # without a collation
        case _:
            return isinstance(kind, STORED)


def check_incremental(name: str, made: Shape) -> None:
    """Raises unless a view can be refreshed without computing everything again."""
    if not made.reason:
        return
    operator = next((rule.operator for rule in _rules(made.rules) if rule.word == "full"), made.rules.operator)
    raise DefinitionError(
        "view.not_incremental",
        f"{name} cannot be refreshed incrementally: {operator}: {made.reason}",
        "Leave out refresh = 'incremental', or rewrite that part of the query.",
    )


def _rules(rule: Rule) -> list[Rule]:
    return [rule, *(found for below in rule.below for found in _rules(below))]


def clustered(options: Mapping[str, str], visible: Sequence[str]) -> dict[str, str]:
    """The option `cluster.by` with names as they are spelled in the view; raises if it has no such column."""
    if "cluster.by" not in options:
        return {}
    spelled = {name.lower(): name for name in visible}
    wanted = options["cluster.by"].split(", ")
    missing = [name for name in wanted if name.lower() not in spelled]
    if missing:
        raise SqlError(
            "sql.bad_option",
            f"option cluster.by: the view has no column {missing[0]}",
            f"Its columns are {', '.join(visible)}.",
        )
    return {"cluster.by": ", ".join(spelled[name.lower()] for name in wanted)}


def _visible(made: Shape) -> Sequence[Named]:
    return made.columns[: made.visible]


class Named(Protocol):
    """Something with a name."""

    @property
    def name(self) -> str: ...


def store_view(
    c: Connection,
    name: str,
    planned: Planned,
    options: Mapping[str, str],
    statement: str,
    named_plain: Sequence[str],
    *,
    replaces: int = 0,
) -> None:
    """Stores a view. Its inputs get their ids now: some may have been stored in the same transaction."""
    ids = {}
    for known in planned.inputs:
        found = relations.find(c, known.name)
        if found is None:
            raise names.unknown(c, ObjectKind.TABLE, known.name)
        ids[known.name] = found.id
    id = relations.add(
        c,
        name=name,
        connection_id=0,
        upstream_schema="",
        upstream_table="",
        upstream_id=0,
        columns=planned.columns,
        key=planned.shape.key,
        options=dict(options),
        statement=statement,
        replaces=replaces,
    )
    order = [Ordering(o.name, not o.ascending, o.nulls_first) for o in planned.shape.order]
    views.add(
        c,
        id,
        query=planned.query,
        inputs=list(ids.values()),
        uses={ids[name]: columns for name, columns in planned.uses.items()},
        visible=planned.shape.visible,
        order=order,
        limit=planned.shape.limit,
        offset=planned.shape.offset,
        plain_views=named_plain,
    )
