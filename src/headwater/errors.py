"""The one error tree.

    HeadwaterError
    ├── InputError          what the user wrote is wrong                             exit 2
    │   ├── SqlError            an invalid statement or option, with its location
    │   └── DefinitionError     an invalid definition (name taken, missing table, …)
    ├── MachineError        the machine lacks something (Java, jars, disk, lock)     exit 3
    ├── SourceError         an upstream refuses something or has lost it             exit 1
    │   └── PrivilegeError      the user lacks a privilege
    ├── QueryError          a query was cancelled, or its result would be stale      exit 1
    ├── DataError           a value that cannot be represented, or missing history   exit 1
    ├── JobError            a job failed unexpectedly                                exit 1
    └── FencedError         another owner has this job now                           exit 1

Each carries `code` (stable), `hint` (an imperative sentence) and `retry`, and decides what it does to the work that
hit it (`stops`). A code has one class, so a stored error comes back as the class it was (`restored`). Errors contain no
row values and no secrets. `docs/errors.md` lists every code of `CODES`; a test keeps the two in sync.
"""

from __future__ import annotations

import copy
import difflib
import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Self


class Retry(StrEnum):
    """Whether a retry can help."""

    AUTO = "auto"  # automatically, with backoff
    AFTER_FIX = "after fix"  # after the user has done what the hint says
    NEVER = "never"


class Scope(IntEnum):
    """What an error or a piece of work concerns; the wider scope has the larger number."""

    TABLE = 1
    CONNECTION = 2
    OUTSIDE = 3  # this machine, or the upstream's for all its users


class HeadwaterError(Exception):
    """What went wrong, where, and how to fix it."""

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
        """Whether it stops work of this scope until somebody restarts it.

        It does if a retry cannot help and nothing wider than the work is at fault. Otherwise the work is retried after
        a pause: a wrong password does not stop a table, nor a full disk a capture.
        """
        return self.retry is not Retry.AUTO and self.scope <= work

    @property
    def needs_resync(self) -> bool:
        """Whether no retry can help the table that it stopped, not even after a restart."""
        return CODES[self.code].needs_resync

    @property
    def readable_before(self) -> bool:
        """Whether it occurs at some change and everything before that change is readable."""
        return CODES[self.code].readable_before

    @property
    def ends_log(self) -> bool:
        """Whether a log that is being read leaves out changes from now on, so that its capture must stop."""
        return CODES[self.code].ends_log

    def reworded(self, message: str = "", hint: str = "") -> Self:
        """The same error with a more specific message or hint."""
        copied = copy.copy(self)
        copied.message, copied.hint = message or self.message, hint or self.hint
        copied.args = (copied.message,)
        return copied

    def as_dict(self) -> dict[str, str]:
        """The part that users see."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "retry": str(self.retry)}

    def stored(self) -> dict[str, str]:
        """The whole error, for `restored`."""
        return self.as_dict()


class InputError(HeadwaterError):
    """What the user wrote is wrong."""

    exit_status = 2


class SqlError(InputError):
    """A statement or an option that is invalid.

    `line` and `column` count from 1, or are 0 if the location is unknown; `text` is the line of the statement.
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
    """An invalid definition."""


class MachineError(HeadwaterError):
    """The machine lacks something."""

    exit_status = 3
    default_scope = Scope.OUTSIDE


class SourceError(HeadwaterError):
    """An upstream refuses something or has lost it."""

    default_scope = Scope.CONNECTION


class PrivilegeError(SourceError):
    """The upstream's user lacks a privilege."""


class QueryError(HeadwaterError):
    """A query that was cancelled, or whose result would be too old."""


class DataError(HeadwaterError):
    """A value that cannot be represented, or missing history."""


class JobError(HeadwaterError):
    """A job failed unexpectedly."""


def unknown_name(kind: str, name: str, names: Sequence[str]) -> DefinitionError:
    """The error for an unknown name, with the nearest known one as the hint."""
    near = difflib.get_close_matches(name.lower(), [n.lower() for n in names], 1, 0.5)
    hint = f"Did you mean {near[0]}?" if near else f"SHOW {kind.upper()}S lists all of them."
    return DefinitionError("name.unknown", f"there is no {kind} {name}", hint)


def base_damaged(what: str) -> DataError:
    """The error for a base whose files were changed or removed by something else."""
    hint = "RESYNC TABLE reads it again; make sure nothing else writes to or VACUUMs a base."
    return DataError("data.base_damaged", what, hint)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: OSError) -> bool:
    """Whether a disk has no space left for what was to be written, or not for this user."""
    return error.errno in _FULL


def disk_full(what: str = "the home") -> MachineError:
    """The error for a full disk."""
    hint = "Free space on the home's disk; work resumes automatically."
    return MachineError("home.disk_full", f"no space left for {what}", hint, Retry.AUTO)


def machine_error(error: OSError) -> MachineError:
    """The error for a disk that is full or fails: its work is retried."""
    if is_full(error):
        return disk_full()
    hint = "Fix the disk or its permissions; Headwater retries."
    text = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    return MachineError("home.unusable", f"the home cannot be used: {text}", hint, Retry.AUTO)


class FencedError(HeadwaterError):
    """Another owner has this job now; this one must stop."""

    default_retry = Retry.NEVER


class StaleWarning(UserWarning):
    """A result is older than its reader may assume; the text says by how much and why."""


class IncompleteWarning(UserWarning):
    """A table does not show everything its upstream has; the text says what is missing and why."""


def restored(value: Mapping[str, str]) -> HeadwaterError:
    """The error that `stored` returned, even by an older version; other keys of the mapping are ignored."""
    code, message, hint = value["code"], value["message"], value.get("hint", "")
    if code not in CODES:  # from another version
        code, message = "job.failed", f"{message} ({code})"
    kind = CODES[code].kind
    if issubclass(kind, SqlError):
        place = {"line": int(value.get("line", 0)), "column": int(value.get("column", 0))}
        return kind(code, message, hint, Retry(value["retry"]), **place, text=value.get("text", ""))
    return kind(code, message, hint, Retry(value["retry"]))


@dataclass(frozen=True, slots=True)
class Code:
    """The class of a code's errors, their meaning, and how they differ from the class's defaults."""

    kind: type[HeadwaterError]
    meaning: str
    scope: Scope | None = None
    needs_resync: bool = False
    readable_before: bool = False
    ends_log: bool = False


# docs/errors.md is checked against it
CODES: dict[str, Code] = {
    # input
    "input.usage": Code(InputError, "The command line is wrong."),
    "input.file": Code(InputError, "A given file cannot be read."),
    "settings.file": Code(InputError, "The settings file cannot be read."),
    "settings.unknown": Code(InputError, "There is no such setting."),
    "settings.value": Code(InputError, "A setting's value is not allowed."),
    "sql.syntax": Code(SqlError, "The statement cannot be parsed."),
    "sql.unsupported": Code(SqlError, "This kind of statement is not supported."),
    "sql.query": Code(SqlError, "Spark refused the query."),
    "sql.unknown_option": Code(SqlError, "There is no such option."),
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
    "view.input": Code(DefinitionError, "A view's query names something that a view cannot read."),
    "view.column_name": Code(DefinitionError, "A column of a view has no name that can be stored."),
    "view.column_type": Code(DefinitionError, "A column of a view has a type that cannot be stored."),
    "view.not_incremental": Code(DefinitionError, "The view's query cannot be refreshed incrementally."),
    "view.not_filled": Code(DefinitionError, "The view has not been filled yet."),
    "backfill.none": Code(DefinitionError, "There is no backfill to pause, resume or cancel."),
    "secret.missing": Code(DefinitionError, "A password reference cannot be resolved."),
    # the machine
    "home.missing": Code(MachineError, "There is no home in the directory."),
    "home.newer": Code(MachineError, "The home was written by a newer version of Headwater."),
    "home.locked": Code(MachineError, "Another server is running on this home."),
    "home.foreign": Code(MachineError, "The lake in this home belongs to another meta."),
    "home.unusable": Code(MachineError, "The home directory cannot be used."),
    "home.disk_full": Code(MachineError, "There is no space left for the home."),
    "spark.no_java": Code(MachineError, "There is no Java to run Spark on."),
    "spark.no_jars": Code(MachineError, "Delta's jars are not installed."),
    "spark.failed": Code(MachineError, "Spark did not start, has stopped, or failed to run a query."),
    "spark.session": Code(MachineError, "The given Spark session lacks something."),
    "server.unreachable": Code(MachineError, "The running server does not answer."),
    "server.port": Code(MachineError, "The port for metrics cannot be used."),
    "server.none": Code(MachineError, "This needs a running server, and the home has none."),
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
        SourceError, "The publication does not exist and may not be created.", Scope.TABLE, ends_log=True
    ),
    "source.publication_unusable": Code(
        SourceError, "The publication leaves out changes that the lake needs.", Scope.TABLE
    ),
    "source.slot_busy": Code(SourceError, "Another process reads the replication slot."),
    "source.slot_missing": Code(SourceError, "The replication slot is gone."),
    "source.slot_lost": Code(SourceError, "The upstream has discarded log that we need."),
    "source.slot_moved": Code(SourceError, "Somebody else advanced the replication slot."),
    "source.replaced": Code(SourceError, "Another server answers at the same address."),
    "source.standby": Code(SourceError, "The upstream is a standby."),
    "source.disconnected": Code(SourceError, "The connection to the upstream broke."),
    "source.lock_timeout": Code(SourceError, "A table stayed locked for too long.", Scope.TABLE),
    "source.failed": Code(SourceError, "The upstream reported an error.", Scope.TABLE),
    # queries
    "query.cancelled": Code(QueryError, "The query was cancelled before it returned a result."),
    "query.timeout": Code(QueryError, "The query exceeded its timeout."),
    "query.stale": Code(QueryError, "The tables are further behind their upstream than was allowed."),
    "query.epoch": Code(QueryError, "The query names an epoch at which the relation cannot be read."),
    "view.not_fresh": Code(QueryError, "The views did not catch up in time."),
    # data
    "data.key_value": Code(DataError, "A key holds a value that the lake cannot represent."),
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
    "data.base_damaged": Code(DataError, "Files of a base are missing or were changed by something else."),
    "view.input_changed": Code(
        DataError, "An input of the view changed in such a way that its query gives other columns, or none."
    ),
    "view.stale": Code(DataError, "Changes that the view needs to continue are no longer kept."),
    "view.failed": Code(JobError, "A fill or a refresh of the view failed."),
    "sql.refused": Code(HeadwaterError, "Some statements of a file failed; the others were executed."),
    "data.differs": Code(DataError, "The lake differs from the upstream."),
    "job.fenced": Code(FencedError, "Another owner has taken over the job."),
    "changelog.ahead": Code(JobError, "A capture is waiting because its changelog is too far ahead of the tables."),
    "job.failed": Code(JobError, "A background job failed unexpectedly."),
}
