"""The options of connections and tables, as data: name, default, what a value may be, whether it may be shown.

Nothing outside this table is accepted, and SHOW prints only what is `shown` here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypedDict

from headwater import config
from headwater.errors import SqlError
from headwater.model import Delivery

OptionKind = Literal["connection", "table"]
SECRET = "password"


class Place(TypedDict, total=False):
    """Where an option stands, as SqlError takes it."""

    line: int
    column: int
    text: str


Check = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `check` gives the value in its one form, or raises ValueError with what is allowed."""

    name: str
    check: Check
    doc: str
    default: str | None = None
    required: bool = False
    shown: bool = True
    live: bool = False  # ALTER TABLE changes it while the table runs; it is not part of what a definition means


def _text(value: str) -> str:
    if not value.strip() or "\x00" in value:
        raise ValueError("must not be empty")
    return value


def _one_of(*allowed: str) -> Check:
    def check(value: str) -> str:
        if value.lower() not in allowed:
            raise ValueError(f"must be {' or '.join(repr(a) for a in allowed)}")
        return value.lower()

    return check


def _whole(low: int, high: int) -> Check:
    def check(value: str) -> str:
        if not re.fullmatch(r"[+-]?\d{1,18}", value.strip()) or not low <= int(value) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return str(int(value))

    return check


def _boolean(value: str) -> str:
    if value.lower() in ("true", "on", "yes", "1"):
        return "true"
    if value.lower() in ("false", "off", "no", "0"):
        return "false"
    raise ValueError("must be 'true' or 'false'")


_UNITS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0}


def _seconds(low: float, high: float, whole: bool = False) -> Check:
    """A duration (`10`, `10s`, `500ms`, `1m`) in seconds."""

    def check(value: str) -> str:
        m = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|min|m|h|)", value.strip().lower())
        seconds = float(m.group(1)) * _UNITS[m.group(2)] if m else -1.0
        if not low <= seconds <= high or (whole and seconds != int(seconds)):
            kind = "whole seconds" if whole else "seconds"
            raise ValueError(f"must be a duration from {low:g} to {high:g} {kind}, like '10' or '10s'")
        return f"{seconds:g}" if seconds != int(seconds) else str(int(seconds))

    return check


def _slot(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9_]{1,63}", value):
        raise ValueError("must be 1 to 63 lower-case letters, digits or underscores")
    return value


def _pg_name(value: str) -> str:
    if not 0 < len(value.encode()) <= 63 or "\x00" in value:
        raise ValueError("must be 1 to 63 bytes")
    return value


def _ssl_mode(value: str) -> str:
    return _one_of("disable", "allow", "prefer", "require", "verify-ca", "verify-full")(value)


CONNECTION = (
    Option("type", _one_of("postgres-cdc"), "Kind of upstream: `postgres-cdc`.", required=True),
    Option("hostname", _text, "Host name, address or socket directory of the upstream.", required=True),
    Option("port", _whole(1, 65535), "Port of the upstream.", "5432"),
    Option("username", _text, "User with LOGIN and REPLICATION.", required=True),
    Option(SECRET, str, "Password: a value, `env:NAME` or `file:PATH`. Never shown again.", shown=False),
    Option("database.name", _text, "Database to read.", required=True),
    Option("schema.name", _pg_name, "Schema of tables that are named without one.", "public"),
    Option("ssl.mode", _ssl_mode, "`disable`, `allow`, `prefer`, `require`, `verify-ca` or `verify-full`.", "prefer"),
    Option("ssl.root.cert", _text, "File with the certificates to trust."),
    Option("slot.name", _slot, "Replication slot; by default one is named after the connection."),
    Option("publication.name", _pg_name, "Publication; by default one is named after the connection."),
    Option("publication.create", _boolean, "`false`: a DBA has made the publication; it is not altered.", "true"),
    Option("connect.timeout", _seconds(1, 600, whole=True), "How long to wait for the upstream to answer.", "10"),
    Option(
        "heartbeat.interval",
        _seconds(0, 3600),
        "How often an idle upstream is made to move its log; `0` turns it off.",
        f"{config.HEARTBEAT_INTERVAL_S:g}",
    ),
    Option(
        "retention.hours",
        _whole(0, 24 * 365),
        "How long changes stay in the changelog at least.",
        f"{config.RETENTION_S / 3600:g}",
    ),
)
TABLE = (
    Option(
        "delivery",
        _one_of(*(str(d) for d in Delivery)),
        "`exactly-once`, or `at-least-once`: changes that a scan saw already are applied again.",
        str(Delivery.EXACTLY_ONCE),
    ),
    Option(
        "deletion_vectors",
        _boolean,
        "`false`: a fold rewrites files instead, for readers that know no deletion vectors.",
        "true",
    ),
    Option(
        "backfill.parallelism",
        _whole(1, 64),
        "Scans of this table at once; by default half of Spark's slots.",
        live=True,
    ),
    Option(
        "backfill.rows_per_span",
        _whole(1, 100_000_000),
        "Rows that one scan is planned for.",
        str(config.SPAN_ROWS),
        live=True,
    ),
    Option(
        "backfill.rate_limit",
        _whole(0, 1_000_000_000),
        "Rows read from the upstream per second, over all scans of the table; `0` reads none.",
        live=True,
    ),
    Option("snapshot", _boolean, "`false`: no history is read, only changes from now on.", "true"),
    Option(
        "backfill.filter",
        _text,
        "Which rows the table holds: a condition on its columns, for the history and for the changes.",
    ),
)
TABLES: dict[OptionKind, tuple[Option, ...]] = {"connection": CONNECTION, "table": TABLE}


def _nowhere(name: str | None) -> Place:
    return Place()


def validate(
    kind: OptionKind, given: Mapping[str, str], place: Callable[[str | None], Place] = _nowhere
) -> dict[str, str]:
    """All options of a definition in their one form, defaults included, in the table's order.

    `place` says where an option stands (None: the definition), for errors that show it.
    """
    known = {o.name: o for o in TABLES[kind]}
    for name in given:
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), known, 1, 0.5)
            raise _error("sql.unknown_option", f"a {kind} has no option {name}", _suggest(near, known), place(name))
    values = {name.lower(): (name, value) for name, value in given.items()}
    result = {}
    for option in TABLES[kind]:
        if option.name in values:
            name, value = values[option.name]
            result[option.name] = _checked(option, value, place(name))
        elif option.required:
            hint = f"Add {option.name} = '…' to WITH (…). {option.doc}"
            raise _error("sql.missing_option", f"option {option.name} is missing", hint, place(None))
        elif option.default is not None:
            result[option.name] = option.default
    return result


def validate_change(given: Mapping[str, str], place: Callable[[str | None], Place] = _nowhere) -> dict[str, str]:
    """Options of ALTER TABLE in their one form: only those that may change while a table runs, and only as given."""
    fixed = {o.name for o in TABLE if not o.live}
    checked = validate("table", given, place)
    for name in given:
        if name.lower() in fixed:
            raise _error(
                "sql.bad_option",
                f"option {name} cannot be changed",
                f"Options that can are {', '.join(live('table'))}; for others DROP the table and CREATE it again.",
                place(name),
            )
    return {name.lower(): checked[name.lower()] for name in given}


def live(kind: OptionKind) -> tuple[str, ...]:
    """The options that can change while their owner runs."""
    return tuple(o.name for o in TABLES[kind] if o.live)


def shown(kind: OptionKind, values: Mapping[str, str]) -> dict[str, str]:
    """What may be printed of a definition's options: those on the list that say more than the default."""
    return {o.name: values[o.name] for o in TABLES[kind] if o.shown and values.get(o.name, o.default) != o.default}


def _checked(option: Option, value: str, place: Place) -> str:
    try:
        return option.check(value)
    except ValueError as e:
        raise _error("sql.bad_option", f"option {option.name} {e}", f"{option.doc}", place) from e


def _suggest(near: list[str], known: Mapping[str, Option]) -> str:
    return f"Did you mean {near[0]}?" if near else f"Options are {', '.join(known)}."


def _error(code: str, message: str, hint: str, place: Place) -> SqlError:
    where = f"line {place['line']}, column {place['column']}: " if place else ""
    return SqlError(code, where + message, hint, **place)
