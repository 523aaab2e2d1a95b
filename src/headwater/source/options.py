"""Options as data: name, default, what a value may be, whether it may be shown. Those that every connection has."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from headwater import config

SECRET = "password"
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


def text(value: str) -> str:
    if not value.strip() or "\x00" in value:
        raise ValueError("must not be empty")
    return value


def one_of(*allowed: str) -> Check:
    def check(value: str) -> str:
        if value.lower() not in allowed:
            raise ValueError(f"must be {' or '.join(repr(a) for a in allowed)}")
        return value.lower()

    return check


def whole(low: int, high: int) -> Check:
    def check(value: str) -> str:
        if not re.fullmatch(r"[+-]?\d{1,18}", value.strip()) or not low <= int(value) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return str(int(value))

    return check


def boolean(value: str) -> str:
    if value.lower() in ("true", "on", "yes", "1"):
        return "true"
    if value.lower() in ("false", "off", "no", "0"):
        return "false"
    raise ValueError("must be 'true' or 'false'")


_UNITS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds(low: float, high: float, whole: bool = False) -> Check:
    """A duration (`10`, `10s`, `500ms`, `1m`) in seconds."""

    def check(value: str) -> str:
        m = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|min|m|h|)", value.strip().lower())
        seconds = float(m.group(1)) * _UNITS[m.group(2)] if m else -1.0
        if not low <= seconds <= high or (whole and seconds != int(seconds)):
            kind = "whole seconds" if whole else "seconds"
            raise ValueError(f"must be a duration from {low:g} to {high:,.10g} {kind}, like '10' or '10s'")
        return f"{seconds:g}" if seconds != int(seconds) else str(int(seconds))

    return check


def ssl_mode(value: str) -> str:
    return one_of("disable", "allow", "prefer", "require", "verify-ca", "verify-full")(value)


def connection(type: str, port: str, user: str, *own: Option) -> tuple[Option, ...]:
    """The options of one type of connection: those that all have, with its own among them."""
    return (
        Option("type", one_of(type), f"`{type}`.", required=True),
        Option("hostname", text, "Host name, address or socket directory of the upstream.", required=True),
        Option("port", whole(1, 65535), "Port of the upstream.", port),
        Option("username", text, f"User with {user}.", required=True),
        Option(SECRET, str, "Password: `env:NAME`, `file:PATH`, or a value, which is never shown again.", shown=False),
        Option("database.name", text, "Database to read.", required=True),
        Option(
            "ssl.mode", ssl_mode, "`disable`, `allow`, `prefer`, `require`, `verify-ca` or `verify-full`.", "prefer"
        ),
        Option("ssl.root.cert", text, "File with the certificates to trust."),
        *own,
        Option("connect.timeout", seconds(1, 600, whole=True), "How long to wait for the upstream to answer.", "10"),
        Option(
            "heartbeat.interval",
            seconds(0, 3600),
            "How often an idle upstream is made to move its log; `0` turns it off.",
            f"{config.HEARTBEAT_INTERVAL_S:g}",
        ),
        Option(
            "retention.hours",
            whole(0, 24 * 365),
            "How long changes stay in the changelog at least, and at most for a table that has failed.",
            f"{config.RETENTION_S / 3600:g}",
        ),
        Option(
            "changelog.max_bytes",
            whole(0, 10**15),
            "Size of the changelog above which failed tables and `retention.hours` keep nothing; `0` is no limit.",
            "0",
        ),
    )
