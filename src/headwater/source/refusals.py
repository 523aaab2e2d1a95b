"""Errors that are worded the same for every kind of upstream."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors import DefinitionError, Retry, SourceError
from headwater.source.names import why_unstorable


def locked(place: object) -> SourceError:
    """A table could not be read because somebody holds a lock on it."""
    return SourceError(
        "source.lock_timeout", f"a table of {place} stayed locked", "Wait; Headwater retries.", Retry.AUTO
    )


def passing(place: object, text: str) -> SourceError:
    """The upstream cannot do something now that it may be able to do later."""
    return SourceError("source.failed", f"{place}: {text}", "Wait; Headwater retries.", Retry.AUTO)


def log_broken(why: str) -> SourceError:
    """The connection that carries the log has ended."""
    return SourceError(
        "source.disconnected",
        f"the connection to the upstream broke: {why}",
        "Wait; Headwater reconnects.",
        Retry.AUTO,
    )


def no_column(table: str, declared: str, names: Sequence[str]) -> DefinitionError:
    """A declared column does not exist in the upstream's table."""
    return DefinitionError(
        "table.column_missing",
        f"{table} has no column {declared}",
        f"Choose from its columns: {', '.join(names)}.",
    )


def unstorable(table: str, name: str, quoted: str) -> DefinitionError:
    """A base cannot have a column of this name."""
    return DefinitionError(
        "table.column_name",
        f"the lake cannot store a column called {name!r}{why_unstorable(name)}",
        "List the columns of the table without it, or rename it upstream: "
        f"ALTER TABLE {table} RENAME COLUMN {quoted} TO …;",
    )


def other_key(declared: Sequence[str], upstream: str) -> DefinitionError:
    """The declared key is not the upstream's."""
    return DefinitionError(
        "table.key_differs",
        f"the declared key ({', '.join(declared)}) is not the upstream's ({upstream})",
        f"Declare PRIMARY KEY ({upstream}).",
    )
