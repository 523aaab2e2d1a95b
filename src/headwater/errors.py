"""The one error tree.

    HeadwaterError
    ├── InputError          what the user wrote is wrong                          exit 2
    │   ├── SqlError            a statement or an option that is refused; knows its place
    │   └── DefinitionError     a definition that cannot stand (name taken, missing table, …)
    ├── MachineError        the machine lacks something (Java, jars, disk, lock)  exit 3
    ├── SourceError         an upstream refuses or has lost something             exit 1
    │   └── PrivilegeError      the user may not do what was asked
    ├── QueryError          a query that was ended, or whose answer would be old  exit 1
    ├── DataError           a value or a history that cannot be kept              exit 1
    ├── JobError            a job failed in a way that nobody has foreseen        exit 1
    └── FencedError         somebody else owns this job now                       exit 1

Each carries `code` (stable), `hint` (an imperative sentence) and `retry`, and says itself what it does to the work that
met it (`stops`). A code has one class, so a stored error comes back as what it was (`restored`). Errors hold no row
values and no secrets. `docs/errors.md` lists every code of `CODES`; a test holds both together.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Self


class Retry(StrEnum):
    """Whether trying again can help."""

    AUTO = "auto"  # by itself, with backoff
    AFTER_FIX = "after fix"  # once the user has done what the hint says
    NEVER = "never"


class Scope(IntEnum):
    """What an error or a piece of work concerns; the wider has the larger number."""

    TABLE = 1
    CONNECTION = 2
    OUTSIDE = 3  # this machine, or the upstream's for all who use it


class HeadwaterError(Exception):
    """What went wrong, where, and the way out."""

    exit_status = 1
    default_retry = Retry.AFTER_FIX
    default_scope = Scope.TABLE

    def __init__(self, code: str, message: str, hint: str = "", retry: Retry | None = None) -> None:
        super().__init__(message)
        assert code in CODES, f"undocumented error code {code}"
        assert type(self) is CODES[code].kind, f"{code} is a {CODES[code].kind.__name__}"
        self.code = code
        self.message = message
        self.hint = hint
        self.retry = retry or self.default_retry

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.code, self.message, self.hint, self.retry))

    @property
    def scope(self) -> Scope:
        """What is at fault."""
        return CODES[self.code].scope or self.default_scope

    def stops(self, work: Scope) -> bool:
        """Whether it stops work of this scope, until somebody sets it going again.

        It does if trying again cannot help and nothing wider than the work is at fault. Otherwise the work is tried
        again after a pause: a table is not stopped by a wrong password, nor a capture by a full disk.
        """
        return self.retry is not Retry.AUTO and self.scope <= work

    @property
    def needs_resync(self) -> bool:
        """Whether no other try can help the table that it stopped, after a restart neither."""
        return CODES[self.code].needs_resync

    @property
    def readable_before(self) -> bool:
        """Whether it is met at some change, and what lies before that change can be read."""
        return CODES[self.code].readable_before

    def reworded(self, message: str = "", hint: str = "") -> Self:
        """The same error in the words of somebody who knows more about it."""
        told = copy.copy(self)
        told.message, told.hint = message or self.message, hint or self.hint
        told.args = (told.message,)
        return told

    def as_dict(self) -> dict[str, str]:
        """What users are shown of it."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "retry": str(self.retry)}

    def stored(self) -> dict[str, str]:
        """All of it, for `restored`."""
        return self.as_dict()


class InputError(HeadwaterError):
    """What the user wrote is wrong."""

    exit_status = 2


class SqlError(InputError):
    """A statement or an option that is refused.

    `line` and `column` count from 1, or are 0 if nobody knows the place; `text` is the line it stands on.
    """

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

    def stored(self) -> dict[str, str]:
        return {**self.as_dict(), "text": self.text}


class DefinitionError(InputError):
    """A definition that cannot stand."""


class MachineError(HeadwaterError):
    """The machine lacks something."""

    exit_status = 3
    default_scope = Scope.OUTSIDE


class SourceError(HeadwaterError):
    """An upstream refuses or has lost something."""

    default_scope = Scope.CONNECTION


class PrivilegeError(SourceError):
    """The upstream's user may not do what was asked."""


class QueryError(HeadwaterError):
    """A query that was ended before it had an answer, or whose answer would be too old."""


class DataError(HeadwaterError):
    """A value or a history that cannot be kept."""


class JobError(HeadwaterError):
    """A job failed in a way that nobody has foreseen."""


def unknown_name(kind: str, name: str, names: Sequence[str]) -> DefinitionError:
    """The error for a name that nothing has, with the nearest one that something has."""
    near = difflib.get_close_matches(name.lower(), [n.lower() for n in names], 1, 0.5)
    hint = f"Did you mean {near[0]}?" if near else f"SHOW {kind.upper()}S lists what there is."
    return DefinitionError("name.unknown", f"there is no {kind} {name}", hint)


def base_damaged(what: str) -> DataError:
    """The error for a base whose files are not as we left them."""
    hint = "RESYNC TABLE reads it again; let nothing else write to or VACUUM a base."
    return DataError("data.base_damaged", what, hint)


class FencedError(HeadwaterError):
    """Somebody else owns this job now; this owner must stop."""

    default_retry = Retry.NEVER


class StaleWarning(UserWarning):
    """An answer is older than its reader may think; the text says by how much and why."""


class IncompleteWarning(UserWarning):
    """A table does not show everything that its upstream has; the text says what is missing and why."""


def restored(value: Mapping[str, str]) -> HeadwaterError:
    """The error that `stored` gave, however old it is; what else the mapping holds is somebody else's."""
    code, message, hint = value["code"], value["message"], value.get("hint", "")
    if code not in CODES:  # another version's
        code, message = "job.failed", f"{message} ({code})"
    kind = CODES[code].kind
    if issubclass(kind, SqlError):
        place = {"line": int(value.get("line", 0)), "column": int(value.get("column", 0))}
        return kind(code, message, hint, Retry(value["retry"]), **place, text=value.get("text", ""))
    return kind(code, message, hint, Retry(value["retry"]))


@dataclass(frozen=True, slots=True)
class Code:
    """The class of the errors with a code, what they mean, and what is not as usual for that class."""

    kind: type[HeadwaterError]
    meaning: str
    scope: Scope | None = None
    needs_resync: bool = False
    readable_before: bool = False


# docs/errors.md is checked against it
CODES: dict[str, Code] = {
    # what the user wrote
    "input.usage": Code(InputError, "The command line is wrong."),
    "input.file": Code(InputError, "A given file cannot be read."),
    "settings.file": Code(InputError, "The settings file cannot be read."),
    "settings.unknown": Code(InputError, "A setting has no such name."),
    "settings.value": Code(InputError, "A setting's value is not allowed."),
    "sql.syntax": Code(SqlError, "The statement cannot be read."),
    "sql.unsupported": Code(SqlError, "Headwater does not run this kind of statement."),
    "sql.query": Code(SqlError, "Spark refused the query."),
    "sql.unknown_option": Code(SqlError, "An option has no such name."),
    "sql.bad_option": Code(SqlError, "An option's value is not allowed."),
    "sql.missing_option": Code(SqlError, "A required option is not given."),
    "name.taken": Code(DefinitionError, "Another definition already has this name."),
    "name.unknown": Code(DefinitionError, "Nothing has this name."),
    "name.in_use": Code(DefinitionError, "Something else still depends on it."),
    "table.incomplete": Code(DefinitionError, "The table is still being filled and a complete one was required."),
    "table.missing": Code(DefinitionError, "The upstream has no such table."),
    "table.no_key": Code(DefinitionError, "The upstream table has no primary key."),
    "table.bad_identity": Code(DefinitionError, "The upstream table's replica identity cannot be used."),
    "table.deferrable_key": Code(DefinitionError, "The upstream table's primary key is deferrable."),
    "table.row_security": Code(DefinitionError, "Row-level security would hide rows from us."),
    "table.not_plain": Code(DefinitionError, "The upstream object is not a logged table."),
    "table.column_missing": Code(DefinitionError, "The upstream table has no such column."),
    "table.column_type": Code(DefinitionError, "A declared type cannot hold the upstream's."),
    "table.column_case": Code(DefinitionError, "Column names differ only in case."),
    "table.column_name": Code(DefinitionError, "A column name cannot be stored in Delta."),
    "table.key_differs": Code(DefinitionError, "The declared key is not the upstream's."),
    "table.cascade": Code(DefinitionError, "Foreign keys change the upstream table without log events."),
    "table.no_history": Code(DefinitionError, "The table cannot be followed without reading its history."),
    "table.filter": Code(DefinitionError, "The table's filter cannot be used."),
    "backfill.none": Code(DefinitionError, "There is no backfill that could be paused, resumed or cancelled."),
    "secret.missing": Code(DefinitionError, "A password reference cannot be resolved."),
    # the machine
    "home.missing": Code(MachineError, "There is no home in the directory."),
    "home.newer": Code(MachineError, "The home directory belongs to a newer Headwater."),
    "home.locked": Code(MachineError, "Another server runs on this home."),
    "home.unusable": Code(MachineError, "The home directory cannot be used."),
    "home.disk_full": Code(MachineError, "There is no space left for the home."),
    "spark.no_java": Code(MachineError, "There is no Java to run Spark on."),
    "spark.no_jars": Code(MachineError, "Delta's jars are not installed."),
    "spark.failed": Code(MachineError, "Spark did not start, has stopped, or failed at a query."),
    "spark.session": Code(MachineError, "The given Spark session lacks something."),
    "server.unreachable": Code(MachineError, "The running server does not answer."),
    "server.port": Code(MachineError, "The port for metrics cannot be used."),
    "server.none": Code(MachineError, "No server runs on this home, and this needs one."),
    "demo.server": Code(MachineError, "A database server for the demo cannot run on this machine."),
    "meta.busy": Code(MachineError, "The meta database did not answer in time."),
    "meta.unreachable": Code(MachineError, "The meta database cannot be reached."),
    # upstreams
    "source.unreachable": Code(SourceError, "The upstream does not answer."),
    "source.authentication": Code(SourceError, "The upstream refused the user or the password."),
    "source.database_missing": Code(SourceError, "The upstream has no such database."),
    "source.version": Code(SourceError, "The upstream's version is not supported."),
    "source.wal_level": Code(SourceError, "The upstream does not write a logical log."),
    "source.log_incomplete": Code(SourceError, "The upstream's log leaves out changes that the lake needs."),
    "source.privilege": Code(PrivilegeError, "The user lacks a privilege.", Scope.TABLE),
    "source.no_free_slot": Code(SourceError, "The upstream has no free replication slot."),
    "source.no_free_walsender": Code(SourceError, "The upstream has no free walsender.", Scope.OUTSIDE),
    "source.publication_missing": Code(
        SourceError, "The publication does not exist and may not be created.", Scope.TABLE
    ),
    "source.publication_unusable": Code(
        SourceError, "The publication leaves out changes that the lake needs.", Scope.TABLE
    ),
    "source.slot_busy": Code(SourceError, "Another process reads the replication slot."),
    "source.slot_missing": Code(SourceError, "The replication slot is gone."),
    "source.slot_lost": Code(SourceError, "The upstream has thrown away log that we need."),
    "source.slot_moved": Code(SourceError, "Somebody else advanced the replication slot."),
    "source.replaced": Code(SourceError, "Another server answers under the same address."),
    "source.standby": Code(SourceError, "The upstream is a standby."),
    "source.disconnected": Code(SourceError, "The connection to the upstream broke."),
    "source.lock_timeout": Code(SourceError, "A table stayed locked for too long.", Scope.TABLE),
    "source.failed": Code(SourceError, "The upstream reported an error.", Scope.TABLE),
    # queries
    "query.cancelled": Code(QueryError, "The query was ended before it had an answer."),
    "query.timeout": Code(QueryError, "The query ran for longer than it was given."),
    "query.stale": Code(QueryError, "The tables are further behind their upstream than was allowed."),
    # data
    "data.key_value": Code(DataError, "A key holds a value that the lake cannot keep."),
    "data.log_damaged": Code(DataError, "A change or a value has a form that the upstream never sends."),
    "data.schema_changed": Code(
        DataError, "The upstream table changed in a way that cannot be followed yet.", readable_before=True
    ),
    "data.rewritten": Code(
        DataError,
        "The upstream table was rewritten or re-partitioned without log events, or left the publication for a while.",
        needs_resync=True,
        readable_before=True,
    ),
    "data.history_missing": Code(
        DataError, "Changes that the table needs are no longer in the changelog.", needs_resync=True
    ),
    "data.base_damaged": Code(DataError, "Files of a base are missing or were changed from outside."),
    "sql.refused": Code(HeadwaterError, "Some statements of a file could not be carried out; the others were."),
    "data.differs": Code(DataError, "The lake differs from the upstream."),
    "job.fenced": Code(FencedError, "Another owner has taken over the job."),
    "job.failed": Code(JobError, "A background job failed unexpectedly."),
}
