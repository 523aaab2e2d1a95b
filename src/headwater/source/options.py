"""Options as data: name, default, allowed values, whether it is shown; and the options that every connection has."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.settings.values import Check, one_of, seconds, size, text, whole

SECRET = "password"


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `check` returns the value in canonical form, or raises ValueError with what is allowed.

    If a setting has the same name (settings/table.py), that is the default, and nothing is stored.
    """

    name: str
    check: Check
    doc: str
    default: str | None = None
    required: bool = False
    shown: bool = True
    live: bool = False  # ALTER TABLE can change it while the table runs; it is not part of a definition's identity


def ssl_mode(value: str) -> str:
    return one_of("disable", "allow", "prefer", "require", "verify-ca", "verify-full")(value)


def connection(type: str, port: str, user: str, *own: Option) -> tuple[Option, ...]:
    """The options of one connection type: those that all types have, with its own among them."""
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
            "How often Headwater makes an idle upstream's log advance; `0` turns this off.",
        ),
        Option(
            "retention.hours",
            whole(0, 24 * 365),
            "Minimum time that changes stay in the changelog; for a failed table, the maximum.",
        ),
        Option(
            "changelog.max_bytes",
            size(0, 10**15),
            "Changelog size above which changes are no longer kept for failed tables or for `retention.hours`; "
            "`0` means no limit.",
        ),
    )
