"""The error tree: a code has one class, an error comes back as what it was, and says itself what it stops."""

from __future__ import annotations

import ast
import errno
import json
import pickle
from pathlib import Path

import pytest

import headwater
from headwater.errors import (
    CODES,
    DataError,
    DefinitionError,
    FencedError,
    HeadwaterError,
    MachineError,
    PrivilegeError,
    Retry,
    Scope,
    SourceError,
    SqlError,
    machine_error,
    restored,
)

FILES = sorted(Path(headwater.__file__).parent.rglob("*.py"))
CLASSES = {known.kind.__name__ for known in CODES.values()}


def made(code: str, retry: Retry | None = None) -> HeadwaterError:
    return CODES[code].kind(code, "what happened", "Do this.", retry)


@pytest.mark.parametrize("code", CODES)
def test_an_error_comes_back_as_the_class_it_was(code: str) -> None:
    for retry in Retry:
        error = made(code, retry)
        for back in (restored(json.loads(json.dumps(error.stored()))), pickle.loads(pickle.dumps(error))):
            assert type(back) is type(error) and vars(back) == vars(error) and str(back) == str(error)


def test_a_refused_statement_comes_back_with_its_place() -> None:
    error = SqlError("sql.syntax", "no", "Do.", line=3, column=7, text="SELEC 1")
    back = restored(json.loads(json.dumps(error.stored())))
    assert isinstance(back, SqlError) and (back.line, back.column, back.text) == (3, 7, "SELEC 1")
    assert "text" not in error.as_dict(), "the line that a user wrote may hold a password"


def test_what_an_older_version_stored_is_read() -> None:
    old = {"code": "table.no_key", "message": "no key", "retry": "after fix", "at": "1.0", "stopped_at": "7"}
    error = restored(old)
    assert type(error) is DefinitionError and (error.message, error.hint) == ("no key", "")
    gone = restored({**old, "code": "data.no_such_code_any_more", "hint": "Wait."})
    assert (gone.code, gone.message, gone.hint) == ("job.failed", "no key (data.no_such_code_any_more)", "Wait.")


def test_an_error_of_another_class_than_its_code_has_is_not_made() -> None:
    with pytest.raises(AssertionError, match=r"source\.privilege is a PrivilegeError"):
        SourceError("source.privilege", "no")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_error_in_the_tree_is_made_with_the_class_of_its_code(path: Path) -> None:
    wrong = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in CLASSES:
            continue
        code = node.args[0] if node.args else None
        if isinstance(code, ast.Constant) and CODES[code.value].kind.__name__ != node.func.id:
            wrong.append(f"line {node.lineno}: {node.func.id} {code.value}")
    assert wrong == []


# who goes on after an error that only a user can mend: (work on a table stops, a capture stops)
STOPS = {
    "data.base_damaged": (True, True),
    "table.no_key": (True, True),
    "source.privilege": (True, True),
    "source.failed": (True, True),
    "source.publication_missing": (True, True),
    "source.authentication": (False, True),
    "source.database_missing": (False, True),
    "source.slot_lost": (False, True),
    "source.no_free_walsender": (False, False),
    "home.disk_full": (False, False),
    "spark.no_java": (False, False),
}


@pytest.mark.parametrize(("code", "stops"), STOPS.items())
def test_an_error_stops_what_is_at_fault_and_nothing_smaller(code: str, stops: tuple[bool, bool]) -> None:
    error = made(code, Retry.AFTER_FIX)
    assert (error.stops(Scope.TABLE), error.stops(Scope.CONNECTION)) == stops
    waited_for = made(code, Retry.AUTO)
    assert not waited_for.stops(Scope.TABLE) and not waited_for.stops(Scope.CONNECTION)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "home.disk_full"),
        (errno.EDQUOT, "home.disk_full"),
        (errno.EFBIG, "home.disk_full"),
        (errno.EIO, "home.unusable"),
        (errno.EACCES, "home.unusable"),
    ],
)
def test_work_resumes_on_its_own_after_any_failure_of_the_disk(number: int, code: str) -> None:
    error = machine_error(OSError(number, "reason", "/lake/file"))
    assert (error.code, error.retry) == (code, Retry.AUTO)
    assert code == "home.disk_full" or error.message.endswith("reason: /lake/file")


def test_a_lost_lease_stops_all_work() -> None:
    error = FencedError("job.fenced", "another one has it")
    assert error.retry is Retry.NEVER and error.stops(Scope.TABLE) and error.stops(Scope.CONNECTION)


def test_only_a_resync_helps_where_changes_were_missed() -> None:
    assert {c for c in CODES if made(c).needs_resync} == {"data.rewritten", "data.history_missing"}
    assert {c for c in CODES if made(c).readable_before} == {"data.rewritten", "data.schema_changed"}


def test_a_log_ends_only_where_it_leaves_out_changes() -> None:
    assert {c for c in CODES if made(c).ends_log} == {"source.publication_missing"}


def test_an_error_in_other_words_is_the_same_error() -> None:
    error = SqlError("sql.bad_option", "no", "Do.", Retry.NEVER, line=3, column=7, text="x")
    told = error.reworded("line 3: no")
    assert vars(told) == {**vars(error), "message": "line 3: no"} and str(told) == "line 3: no"
    assert (error.message, str(error)) == ("no", "no")
    wider = PrivilegeError("source.privilege", "no").reworded(hint="Run this.")
    assert (type(wider), wider.message, wider.hint) == (PrivilegeError, "no", "Run this.")


def test_the_exit_status_is_that_of_the_class() -> None:
    assert {k.exit_status for k in (SourceError, DataError, HeadwaterError)} == {1}
    assert (DefinitionError.exit_status, MachineError.exit_status) == (2, 3)
