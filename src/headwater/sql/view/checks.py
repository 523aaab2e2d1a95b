"""What a query must be, so that its rows can be stored and kept up to date as a materialized view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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

from headwater.errors import DefinitionError, SqlError
from headwater.relation.schema import CLUSTER
from headwater.source.names import why_unstorable
from headwater.sql.statements import CreateMaterializedView
from headwater.sql.view import text
from headwater.sql.view.analyse import Analysed
from headwater.sql.view.known import Known
from headwater.view import Shape
from headwater.view.rules import Rule

HIDDEN = "__"  # how the names of columns begin that no reader sees
STORED = (NumericType, BooleanType, BinaryType, DateType, TimestampType, TimestampNTZType, DecimalType)


def check_inputs(statement: CreateMaterializedView, found: Analysed, plain: Sequence[Known]) -> None:
    """Raises unless everything that the query reads, also through these plain views, can be followed."""
    if text.calls_in([statement.query.text, *(p.query for p in plain)]):
        raise unusable(
            f"the query of {statement.name} calls changelog(…) or changes(…)",
            "Read the table or view itself: a materialized view follows its changes. Run such calls as queries.",
        )
    if found.files:
        raise unusable(
            f"the query of {statement.name} reads files directly",
            "Read tables and views of this home: changes of other files cannot be followed.",
        )


def unusable(message: str, hint: str) -> DefinitionError:
    """The error for a query that reads something that a view cannot follow."""
    return DefinitionError("view.input", message, hint)


def check_columns(columns: StructType) -> None:
    """Raises unless every column has a name of its own and a type that Delta stores."""
    seen: set[str] = set()
    for number, field in enumerate(columns.fields, 1):
        name = field.name
        if why_unstorable(name) or not name:
            raise _column_name(f"column {number} has no name that can be stored: {name}{why_unstorable(name)}")
        if name.startswith(HIDDEN):
            raise _column_name(f"column {number} is named {name}: names that begin with {HIDDEN} are reserved")
        if name.lower() in seen:
            raise _column_name(f"column {number} has the same name as another one: {name}")
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
    """Raises unless a view can be refreshed without recomputing it."""
    if not made.reason:
        return
    operator = next((rule.operator for rule in _rules(made.rules) if rule.word == "full"), made.rules.operator)
    raise DefinitionError(
        "view.not_incremental",
        f"{name} cannot be refreshed incrementally: {operator}: {made.reason}",
        "Omit refresh = 'incremental', or rewrite that part of the query.",
    )


def _rules(rule: Rule) -> list[Rule]:
    return [rule, *(found for below in rule.below for found in _rules(below))]


def clustered(options: Mapping[str, str], visible: Mapping[str, str]) -> dict[str, str]:
    """The option `cluster.by` with names as they are spelled in the view; raises if it has no such column to order by.

    `visible` are the view's columns with their types.
    """
    if CLUSTER not in options:
        return {}
    spelled = {name.lower(): name for name in visible}
    wanted = options[CLUSTER].split(", ")
    missing = [name for name in wanted if name.lower() not in spelled]
    if missing:
        raise SqlError(
            "sql.bad_option",
            f"option cluster.by: the view has no column {missing[0]}",
            f"Its columns are {', '.join(visible)}.",
        )
    named = [spelled[name.lower()] for name in wanted]
    maps = [name for name in named if "MAP<" in visible[name]]
    if maps:
        raise SqlError(
            "sql.bad_option",
            f"option cluster.by: column {maps[0]} holds maps, which have no order",
            "Choose columns of other types.",
        )
    return {CLUSTER: ", ".join(named)}
