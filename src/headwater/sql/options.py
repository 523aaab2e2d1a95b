"""The options of connections, tables and materialized views: which are allowed, and which SHOW prints.

Options outside these tables are rejected, and SHOW prints only those marked `shown`. A connection's options depend on
its type (`source.kinds`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Literal, TypedDict

from headwater.errors import SqlError
from headwater.model import Delivery
from headwater.settings.values import boolean, one_of, seconds, text, whole
from headwater.source.kinds import KINDS
from headwater.source.options import Option

OptionKind = Literal["connection", "table", "materialized view"]
TYPE = "type"
# Only hosted clouds have these: a self-hosted server does not manage the network.
HOSTED_TYPES = frozenset({"privatelink"})
HOSTED_OPTIONS = frozenset({"connection.name", "privatelink.targets", "provider", "service.name"})
HOSTED = "a private link exists in hosted clouds only"


class Location(TypedDict, total=False):
    """Where an option is, as SqlError takes it."""

    line: int
    column: int
    text: str


def names(value: str) -> str:
    """A list of names: `a, b`."""
    found = [name.strip() for name in value.split(",")]
    if not all(found) or len({name.lower() for name in found}) < len(found):
        raise ValueError("must be a list of different names, like 'a, b'")
    return ", ".join(found)


TABLE = (
    Option(
        "delivery",
        one_of(*(str(d) for d in Delivery)),
        "`exactly-once`, or `at-least-once`: changes that a scan already saw are applied again.",
        str(Delivery.EXACTLY_ONCE),
    ),
    Option(
        "deletion_vectors",
        boolean,
        "`false`: a fold rewrites files instead, for readers without deletion vectors.",
        "true",
    ),
    Option(
        "backfill.parallelism",
        whole(1, 64),
        "Concurrent scans of this table; by default the number of cores.",
        live=True,
    ),
    Option(
        "backfill.rows_per_span",
        whole(1, 100_000_000),
        "Planned rows per scan.",
        live=True,
    ),
    Option(
        "backfill.rate_limit",
        whole(0, 1_000_000_000),
        "Rows read from the upstream per second, over all scans of the table; `0` reads none.",
        live=True,
    ),
    Option("snapshot", boolean, "`false`: no history is read, only changes from now on.", "true"),
    Option(
        "backfill.filter",
        text,
        "Which rows the table holds: a condition on its columns, for both history and changes.",
    ),
)


MATERIALIZED_VIEW = (
    Option(
        "refresh",
        one_of("auto", "incremental", "full"),
        "`auto`: each refresh takes the cheaper way; `incremental`: it follows the changes, and a query that does not "
        "allow that is refused; `full`: it recomputes the view.",
        "auto",
        live=True,
    ),
    Option("refresh.interval", seconds(0, 86_400), "Minimum time between two refreshes.", "1", live=True),
    Option(
        "backfill.parallelism",
        whole(1, 64),
        "Slices of the fill that are computed at the same time; by default, and at most, half of Spark's slots.",
        live=True,
    ),
    Option(
        "backfill.rows_per_span",
        whole(1, 100_000_000),
        "Rows of the largest input in each slice of the fill; by default five million.",
        live=True,
    ),
    Option(
        "cluster.by",
        names,
        "Columns by which the base's files are ordered (`'a, b'`), so that a query that filters by them reads few "
        "files; by default the key. A change takes effect when files are next written.",
        live=True,
    ),
)


# by connection type; those of tables and views are separate
TABLES: dict[str, tuple[Option, ...]] = {
    **{type: k.OPTIONS for type, k in KINDS.items()},
    "table": TABLE,
    "materialized view": MATERIALIZED_VIEW,
}


def _nowhere(name: str | None) -> Location:
    return Location()


def validate(
    kind: OptionKind, given: Mapping[str, str], location: Callable[[str | None], Location] = _nowhere
) -> dict[str, str]:
    """All options of a definition in canonical form, including defaults, in the table's order.

    `location` returns the location of an option (None: of the definition), for error messages.
    """
    options = _options(kind, given, location)
    known = {o.name: o for o in options}
    for name in given:
        if kind == "connection" and name.lower() in HOSTED_OPTIONS:
            hint = "Remove it, and give the DNS name and the port of the link's endpoint as hostname and port."
            raise _error("sql.unsupported", f"option {name}: {HOSTED}", hint, location(name))
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), known, 1, 0.5)
            raise _error("sql.unknown_option", f"a {kind} has no option {name}", _suggest(near, known), location(name))
    values = {name.lower(): (name, value) for name, value in given.items()}
    result = {}
    for option in options:
        if option.name in values:
            name, value = values[option.name]
            result[option.name] = _checked(option, value, location(name))
        elif option.required:
            hint = f"Add {option.name} = '…' to WITH (…). {option.doc}"
            raise _error("sql.missing_option", f"option {option.name} is missing", hint, location(None))
        elif option.default is not None:
            result[option.name] = option.default
    return result


def validate_change(
    kind: OptionKind, given: Mapping[str, str], location: Callable[[str | None], Location] = _nowhere
) -> dict[str, str]:
    """Options of ALTER … SET in canonical form: only the given ones, which must be changeable."""
    fixed = {o.name for o in TABLES[kind] if not o.live}
    checked = validate(kind, given, location)
    for name in given:
        if name.lower() in fixed:
            raise _error(
                "sql.bad_option",
                f"option {name} cannot be changed",
                f"You can change {', '.join(live(kind))}; for other options DROP the {kind} and CREATE it again.",
                location(name),
            )
    return {name.lower(): checked[name.lower()] for name in given}


def live(kind: OptionKind) -> tuple[str, ...]:
    """The options that can change while a table or a view runs."""
    return tuple(o.name for o in TABLES[kind] if o.live)


def shown(kind: OptionKind, values: Mapping[str, str]) -> dict[str, str]:
    """The printable options of a definition: those marked `shown` that differ from the default."""
    options = _options(kind, values, _nowhere)
    return {o.name: values[o.name] for o in options if o.shown and values.get(o.name, o.default) != o.default}


def _options(
    kind: OptionKind, given: Mapping[str, str], location: Callable[[str | None], Location]
) -> tuple[Option, ...]:
    """The options of a table or a view, or of a connection of the given type."""
    if kind != "connection":
        return TABLES[kind]
    name = next((n for n in given if n.lower() == TYPE), None)
    types = " or ".join(repr(t) for t in KINDS)
    if name is None:
        hint = f"Add type = '…' to WITH (…): {types}."
        raise _error("sql.missing_option", "option type is missing", hint, location(None))
    if given[name].lower() in HOSTED_TYPES:
        hint = "Remove this connection, and give the DNS name of the link's endpoint as hostname where it is used."
        raise _error("sql.unsupported", HOSTED, hint, location(name))
    if given[name].lower() not in KINDS:
        hint = "The type says which kind of database the upstream is."
        raise _error("sql.bad_option", f"option type must be {types}", hint, location(name))
    return TABLES[given[name].lower()]


def _checked(option: Option, value: str, location: Location) -> str:
    try:
        return option.check(value)
    except ValueError as e:
        raise _error("sql.bad_option", f"option {option.name} {e}", f"{option.doc}", location) from e


def _suggest(near: list[str], known: Mapping[str, Option]) -> str:
    return f"Did you mean {near[0]}?" if near else f"Options are {', '.join(known)}."


def _error(code: str, message: str, hint: str, location: Location) -> SqlError:
    where = f"line {location['line']}, column {location['column']}: " if location else ""
    return SqlError(code, where + message, hint, **location)
