"""A file of definitions: what can be carried out is, in order, and the rest has its line, reason and way out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headwater.backoff import Backoff
from headwater.engine.results import Result
from headwater.errors import DefinitionError, FencedError, HeadwaterError, PrivilegeError, Retry, SourceError, SqlError
from headwater.sql import apply
from headwater.sql.apply import Definitions
from headwater.sql.steps import Step

SHOP = "CREATE CONNECTION shop WITH (type='postgres-cdc', hostname='h', username='u', database.name='d');\n"
TABLES = "".join(f"CREATE TABLE t{i} FROM CONNECTION shop;\n" for i in range(3))
AWAY = SourceError("source.unreachable", "shop does not answer", "Check hostname and port.", Retry.AUTO)
MISSING = DefinitionError("table.missing", "the database d has no table public.t1", "Write TABLE 'public.t2'.")


class Home:
    """Carries out every step but those that name something in `broken`."""

    def __init__(self, **broken: HeadwaterError) -> None:
        self.broken = broken
        self.tried: list[str] = []
        self.done: list[str] = []
        self.said: list[str] = []

    def __call__(self, step: Step) -> Sequence[Result]:
        names = [s.name for s in step.statements]  # type: ignore[attr-defined]
        self.tried += names
        for name in names:
            if name in self.broken:
                raise self.broken[name]
        self.done += names
        return [Result(message=f"{name} created", warnings=("look out",) if name == "t2" else ()) for name in names]

    def definitions(self, text: str) -> Definitions:
        return Definitions(text, self, self.said.append)


def message(definitions: Definitions) -> str:
    error = definitions.error()
    assert error is not None and (error.code, error.exit_status) == ("sql.refused", 1)
    return error.message


def test_what_failed_later_is_listed_with_what_was_refused() -> None:
    home = Home(t1=MISSING)
    definitions = home.definitions(SHOP + TABLES)
    definitions.apply()
    error = definitions.error([("t2", PrivilegeError("source.privilege", "must be owner of table t2", "Run a GRANT."))])
    assert error is not None and error.code == "sql.refused"
    assert error.message.splitlines()[1:] == [
        "line 3: the database d has no table public.t1 (table.missing)",
        "  → Write TABLE 'public.t2'.",
        "t2 has failed: must be owner of table t2 (source.privilege)",
        "  → Run a GRANT.",
    ]


def test_one_missing_table_does_not_stop_the_others() -> None:
    home = Home(t1=MISSING)
    definitions = home.definitions(SHOP + TABLES)
    definitions.apply()
    definitions.tell()
    assert home.done == ["shop", "t0", "t2"]
    assert message(definitions).splitlines() == [
        "1 of 4 statements was not executed:",
        "line 3: the database d has no table public.t1 (table.missing)",
        "  → Write TABLE 'public.t2'.",
    ]
    assert home.said == [
        "line 4: look out",
        "line 3: the database d has no table public.t1 (table.missing); everything else continues",
    ]


def test_a_block_is_executed_as_a_whole_or_not_at_all_and_the_next_one_continues() -> None:
    home = Home(t1=MISSING)
    definitions = home.definitions(SHOP + f"BEGIN;\n{TABLES}COMMIT;\nCREATE TABLE u FROM CONNECTION shop")
    definitions.apply()
    assert home.done == ["shop", "u"]
    assert "lines 2 to 6: the database d has no table public.t1" in message(definitions)


def test_what_needs_a_refused_connection_is_neither_tried_nor_reported_again() -> None:
    """It could belong to another upstream: the connection of that name may be an older, different one."""
    refused = SourceError("source.authentication", "wrong password", "Correct it.")
    home = Home(shop=refused)
    definitions = home.definitions(SHOP + TABLES + "CREATE TABLE u FROM CONNECTION other")
    definitions.apply()
    assert (home.tried, home.done) == (["shop", "u"], ["u"])
    assert "the same applies to line 2, line 3, line 4: they need what it defines" in message(definitions)
    definitions.tell()
    assert home.said == ["line 1: wrong password (source.authentication); everything else continues"]


def test_a_silent_upstream_is_asked_once_and_retried_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(apply.time, "monotonic", lambda: now)
    home = Home(t0=AWAY)
    definitions = home.definitions(TABLES)
    definitions.apply()
    definitions.tell()
    assert home.tried == ["t0"] and len(definitions.refused) == 3
    definitions.apply_if_due()
    assert home.tried == ["t0"], "not before its time"
    now += apply.RETRY.first_s
    definitions.apply_if_due()
    assert home.tried == ["t0", "t0"] and len(home.said) == 1
    home.broken.clear()
    now += apply.RETRY.last_s
    definitions.apply_if_due()
    assert home.done == ["t0", "t1", "t2"] and definitions.error() is None
    assert home.said[-1] == "line 3: t2 created"


def test_what_only_a_user_can_fix_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "RETRY", Backoff(0.0, 0.0))
    home = Home(t1=MISSING)
    definitions = home.definitions(TABLES)
    definitions.apply()
    definitions.apply_if_due()
    assert home.tried.count("t1") == 1


def test_where_one_thing_is_in_the_way_of_everything_that_is_the_error() -> None:
    refused = SourceError("source.authentication", "wrong password", "Correct it.")
    definitions = Home(shop=refused).definitions("-- the shop\n" + SHOP + TABLES)
    definitions.apply()
    cause = definitions.cause()
    assert isinstance(cause, SourceError)
    assert (cause.code, cause.message, cause.hint) == (
        "source.authentication",
        "line 2: wrong password",
        "Correct it.",
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELCT 1",
        "BEGIN; CREATE TABLE x FROM CONNECTION shop",
        "COMMIT",
        "BEGIN; BEGIN; COMMIT",
        "BEGIN; DROP TABLE t0; COMMIT",
    ],
)
def test_a_mistake_of_form_anywhere_is_found_before_anything_is_carried_out(text: str) -> None:
    home = Home()
    with pytest.raises(SqlError) as e:
        home.definitions(SHOP + TABLES + text).apply()
    assert (e.value.code, e.value.exit_status, home.tried) == ("sql.syntax", 2, [])


def test_questions_are_named_and_keep_the_lines_of_the_others() -> None:
    home = Home(t1=MISSING)
    definitions = home.definitions("SELECT 1;\n" + TABLES)
    definitions.apply()
    assert home.said[0] == "line 1: `run` only takes definitions; use `headwater sql` for this"
    assert message(definitions).startswith("1 of 3 statements was not executed:\nline 3:")


def test_a_lost_lease_ends_it() -> None:
    with pytest.raises(FencedError):
        Home(t1=FencedError("job.fenced", "another owner")).definitions(TABLES).apply()


def test_a_view_over_a_refused_table_is_reported_with_it_and_retried_with_it() -> None:
    unknown = DefinitionError("name.unknown", "there is no table t1", "Did you mean t2?")
    broken: dict[str, HeadwaterError] = {"t1": AWAY, "v": unknown, "w": unknown, "x": unknown}
    home = Home(**broken)
    views = "CREATE VIEW v AS SELECT * FROM T1;\nCREATE MATERIALIZED VIEW w AS SELECT * FROM v;\n"
    definitions = home.definitions(SHOP + TABLES + views + "CREATE VIEW x AS SELECT * FROM t9")
    definitions.apply()
    lines = message(definitions).splitlines()
    assert lines[1:4] == [
        "line 3: shop does not answer (source.unreachable)",
        "  → Check hostname and port.",
        "  the same applies to line 4, line 5, line 6: they need what it defines",
    ]
    assert lines[4] == "line 7: there is no table t1 (name.unknown)"
    home.broken = {}
    definitions.apply()
    assert home.done[-4:] == ["t2", "v", "w", "x"] and definitions.error() is None
