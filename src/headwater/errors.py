"""The one error tree.

    HeadwaterError
    ├── InputError          what the user wrote is wrong                          exit 2
    │   ├── SqlError            a statement that cannot be read; knows its place
    │   └── DefinitionError     a definition that cannot stand (name taken, missing table, …)
    ├── MachineError   the machine lacks something (Java, jars, disk, lock)  exit 3
    ├── SourceError         an upstream refuses or has lost something             exit 1
    ├── QueryError          a query that was ended, or whose answer would be old      exit 1
    ├── DataError           a value or a history that cannot be kept              exit 1
    └── FencedError         somebody else owns this job now                       exit 1

Each carries `code` (stable), `hint` (an imperative sentence) and `retry`. Errors hold no row values and no secrets.
`docs/errors.md` lists every code of `CODES`; a test holds both together.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from enum import StrEnum


class Retry(StrEnum):
    """Whether trying again can help."""

    AUTO = "auto"  # by itself, with backoff
    AFTER_FIX = "after fix"  # once the user has done what the hint says
    NEVER = "never"


class HeadwaterError(Exception):
    """What went wrong, where, and the way out."""

    exit_status = 1
    default_retry = Retry.AFTER_FIX

    def __init__(self, code: str, message: str, hint: str = "", retry: Retry | None = None) -> None:
        super().__init__(message)
        assert code in CODES, f"undocumented error code {code}"
        self.code = code
        self.message = message
        self.hint = hint
        self.retry = retry or self.default_retry

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.code, self.message, self.hint, self.retry))

    def as_dict(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message, "hint": self.hint, "retry": str(self.retry)}


class InputError(HeadwaterError):
    """What the user wrote is wrong."""

    exit_status = 2


class SqlError(InputError):
    """A statement that cannot be read. `line` and `column` count from 1; `text` is the line it stands on."""

    def __init__(
        self,
        code: str,
        message: str,
        hint: str = "",
        retry: Retry | None = None,
        *,
        line: int = 0,
        column: int = 0,
        text: str = "",
    ) -> None:
        super().__init__(code, message, hint, retry)
        self.line = line
        self.column = column
        self.text = text

    def __reduce__(self) -> tuple[object, ...]:
        state = {"line": self.line, "column": self.column, "text": self.text}
        return (type(self), (self.code, self.message, self.hint, self.retry), state)

    def as_dict(self) -> dict[str, str]:
        place = {"line": str(self.line), "column": str(self.column)} if self.line else {}
        return {**InputError.as_dict(self), **place}


class DefinitionError(InputError):
    """A definition that cannot stand."""


class MachineError(HeadwaterError):
    """The machine lacks something."""

    exit_status = 3


class SourceError(HeadwaterError):
    """An upstream refuses or has lost something."""


class QueryError(HeadwaterError):
    """A query that was ended before it had an answer, or whose answer would be too old."""


class DataError(HeadwaterError):
    """A value or a history that cannot be kept."""


def unknown_name(kind: str, name: str, names: Sequence[str]) -> DefinitionError:
    """The error for a name that nothing has, with the nearest one that something has."""
    near = difflib.get_close_matches(name.lower(), [n.lower() for n in names], 1, 0.5)
    hint = f"Did you mean {near[0]}?" if near else f"SHOW {kind.upper()}S lists what there is."
    return DefinitionError("name.unknown", f"there is no {kind} {name}", hint)


def base_damaged(what: str) -> DataError:
    """The error for a base whose files are not as we left them."""
    hint = "RESYNC TABLE reads it anew; let nothing else write to or VACUUM a base."
    return DataError("data.base_damaged", what, hint)


class FencedError(HeadwaterError):
    """Somebody else owns this job now; this owner must stop."""

    default_retry = Retry.NEVER


class StaleWarning(UserWarning):
    """An answer is older than its reader may think; the text says by how much and why."""


class IncompleteWarning(UserWarning):
    """A table does not show everything that its upstream has; the text says what is missing and why."""


def stored_error(value: dict[str, str]) -> HeadwaterError:
    """The error that `as_dict` gave, as meta keeps it."""
    kind = SourceError if value["code"].startswith("source.") else DataError
    return kind(value["code"], value["message"], value.get("hint", ""), Retry(value["retry"]))


# code → what it means; docs/errors.md is checked against it
CODES: dict[str, str] = {
    # what the user wrote
    "input.usage": "The command line is wrong.",
    "input.file": "A given file cannot be read.",
    "settings.file": "The settings file cannot be read.",
    "settings.unknown": "A setting has no such name.",
    "settings.value": "A setting's value is not allowed.",
    "sql.syntax": "The statement cannot be read.",
    "sql.unsupported": "Headwater does not run this kind of statement.",
    "sql.query": "Spark refused the query.",
    "sql.unknown_option": "An option has no such name.",
    "sql.bad_option": "An option's value is not allowed.",
    "sql.missing_option": "A required option is not given.",
    "name.taken": "Another definition already has this name.",
    "name.unknown": "Nothing has this name.",
    "name.in_use": "Something else still depends on it.",
    "table.incomplete": "The table is still being filled and a complete one was required.",
    "table.missing": "The upstream has no such table.",
    "table.no_key": "The upstream table has no primary key.",
    "table.bad_identity": "The upstream table's replica identity cannot be used.",
    "table.deferrable_key": "The upstream table's primary key is deferrable.",
    "table.row_security": "Row-level security would hide rows from us.",
    "table.not_plain": "The upstream object is not a logged table.",
    "table.column_missing": "The upstream table has no such column.",
    "table.column_type": "A declared type cannot hold the upstream's.",
    "table.column_case": "Column names differ only in case.",
    "table.column_name": "A column name cannot be stored in Delta.",
    "table.key_differs": "The declared key is not the upstream's.",
    "table.cascade": "Foreign keys change the upstream table without log events.",
    "table.no_history": "The table cannot be followed without reading its history.",
    "table.filter": "The table's filter cannot be used.",
    "backfill.none": "There is no backfill that could be paused, resumed or cancelled.",
    "secret.missing": "A password reference leads nowhere.",
    # the machine
    "home.missing": "There is no home in the directory.",
    "home.newer": "The home directory belongs to a newer Headwater.",
    "home.locked": "Another server runs on this home.",
    "home.unusable": "The home directory cannot be used.",
    "home.disk_full": "There is no space left for the home.",
    "spark.no_java": "There is no Java to run Spark on.",
    "spark.no_jars": "Delta's jars are not installed.",
    "spark.failed": "Spark did not start, has stopped, or failed at a query.",
    "spark.session": "The given Spark session lacks something.",
    "server.unreachable": "The running server does not answer.",
    "server.port": "The port for metrics cannot be used.",
    "server.none": "No server runs on this home, and this needs one.",
    "meta.busy": "The meta database did not answer in time.",
    "meta.unreachable": "The meta database cannot be reached.",
    # upstreams
    "source.unreachable": "The upstream does not answer.",
    "source.authentication": "The upstream refused the user or the password.",
    "source.database_missing": "The upstream has no such database.",
    "source.version": "The upstream's version is not supported.",
    "source.wal_level": "The upstream does not write a logical log.",
    "source.log_incomplete": "The upstream's log leaves out changes that the lake needs.",
    "source.privilege": "The user lacks a privilege.",
    "source.no_free_slot": "The upstream has no free replication slot.",
    "source.no_free_walsender": "The upstream has no free walsender.",
    "source.publication_missing": "The publication does not exist and may not be created.",
    "source.publication_unusable": "The publication leaves out changes that the lake needs.",
    "source.slot_busy": "Another process reads the replication slot.",
    "source.slot_missing": "The replication slot is gone.",
    "source.slot_lost": "The upstream has thrown away log that we need.",
    "source.slot_moved": "Somebody else advanced the replication slot.",
    "source.replaced": "Another server answers under the same address.",
    "source.standby": "The upstream is a standby.",
    "source.disconnected": "The connection to the upstream broke.",
    "source.lock_timeout": "A table stayed locked for too long.",
    "source.failed": "The upstream reported an error.",
    # queries
    "query.cancelled": "The query was ended before it had an answer.",
    "query.timeout": "The query ran for longer than it was given.",
    "query.stale": "The tables are further behind their upstream than was allowed.",
    # data
    "data.key_value": "A key holds a value that the lake cannot keep.",
    "data.log_damaged": "A change or a value has a form that the upstream never sends.",
    "data.schema_changed": "The upstream table changed in a way that cannot be followed yet.",
    "data.rewritten": (
        "The upstream table was rewritten or re-partitioned without log events, or left the publication for a while."
    ),
    "data.history_missing": "Changes that the table needs are no longer in the changelog.",
    "data.base_damaged": "Files of a base are missing or were changed from outside.",
    "sql.refused": "Some statements of a file could not be carried out; the others were.",
    "data.differs": "The lake differs from the upstream.",
    "job.fenced": "Another owner has taken over the job.",
    "job.failed": "A background job failed unexpectedly.",
}
