"""CREATE VIEW and CREATE MATERIALIZED VIEW: checked by Spark over empty inputs, then stored; the server fills them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlalchemy.engine import Connection

from headwater.engine.home import Home
from headwater.engine.view.anew import stored_columns, stored_order
from headwater.errors import SqlError
from headwater.meta import plain_views, relations, views
from headwater.model import Column
from headwater.sql.outcome import Outcome, Storable
from headwater.sql.parse import parse
from headwater.sql.refusal import refusal
from headwater.sql.statements import CreateMaterializedView, CreateView, ObjectKind, Query
from headwater.sql.view import known as known_names
from headwater.sql.view import names, text
from headwater.sql.view.analyse import Analysed, analyse
from headwater.sql.view.checks import check_columns, check_incremental, check_inputs, clustered, unusable
from headwater.sql.view.known import Known
from headwater.view import InputSchema, Shape, read_plan, shape
from headwater.view.inputs import input_schema

T = TypeVar("T", covariant=True)


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
        return stored_columns(self.shape)


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
    options = {
        **statement.options,
        **clustered(statement.options, {c.name: c.type for c in planned.shape.shown_columns}),
    }
    named_plain = [name for name in found.names if known[name.lower()].query]

    def store(c: Connection, block: int) -> None:
        store_view(c, statement.name, planned, options, statement.canonical(), named_plain)

    made = Known(statement.name, planned.columns, planned.shape.visible, planned.shape.key, is_view=True)
    return Storable(Outcome(f"materialized view {statement.name} created"), store, known=made)


def _plan(
    session: SparkSession, statement: CreateMaterializedView, known: Mapping[str, Known]
) -> tuple[Analysed, Planned]:
    found = analyse(session, statement, known)
    relations_below, plain_below = _below(found.names, known)
    check_inputs(statement, found, plain_below)
    check_columns(found.columns)
    queries = [statement.query.text, *(p.query for p in plain_below)]
    if not relations_below:
        raise unusable(
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


def store_view(
    c: Connection,
    name: str,
    planned: Planned,
    options: Mapping[str, str],
    statement: str,
    named_plain: Sequence[str],
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
    )
    views.add(
        c,
        id,
        query=planned.query,
        inputs=list(ids.values()),
        uses={ids[name]: columns for name, columns in planned.uses.items()},
        visible=planned.shape.visible,
        order=stored_order(planned.shape),
        limit=planned.shape.limit,
        offset=planned.shape.offset,
        plain_views=named_plain,
    )
