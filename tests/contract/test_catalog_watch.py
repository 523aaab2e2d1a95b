"""What the log does not tell is found by looking at files and partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.source.postgres.watch import Event, Finding, findings, fingerprint, verdict


@pytest.fixture
def session(database: Any) -> Iterator[Any]:
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE plain (a int PRIMARY KEY, b text, c int); INSERT INTO plain VALUES (1, 'x', 1);"
            "CREATE TABLE parts (a int PRIMARY KEY, b text) PARTITION BY RANGE (a);"
            "CREATE TABLE p1 PARTITION OF parts FOR VALUES FROM (0) TO (10);"
            "CREATE TABLE p2 PARTITION OF parts FOR VALUES FROM (10) TO (20); INSERT INTO parts VALUES (1, 'x')"
        )
        yield connection


@pytest.fixture
def after(session: Any) -> Callable[[str, str], list[Finding]]:
    def look(table: str, *statements: str) -> list[Finding]:
        (oid,) = session.execute("SELECT %s::regclass::oid", (table,)).fetchone()
        before = fingerprint(session, oid)
        for statement in statements:
            session.execute(statement)
        return findings(session, before, fingerprint(session, oid))

    return look


Look = Callable[..., list[Finding]]


def test_ordinary_work_is_no_finding(after: Look) -> None:
    assert after("plain", "INSERT INTO plain VALUES (2)", "UPDATE plain SET b = 'y'", "ANALYZE plain", "VACUUM") == []
    assert after("plain", "ALTER TABLE plain ADD COLUMN d int", "CREATE INDEX ON plain (b)") == []
    assert after("plain", "ALTER TABLE plain ALTER b SET DEFAULT 'z'") == []
    assert after("parts", "INSERT INTO parts VALUES (2)", "DELETE FROM parts", "ANALYZE parts") == []


@pytest.mark.parametrize("back", ["", "ALTER PUBLICATION carrier ADD TABLE ONLY plain"])
def test_a_table_that_the_publication_left_out_for_a_while_is_found(session: Any, back: str) -> None:
    session.execute("CREATE PUBLICATION carrier FOR TABLE ONLY plain, ONLY parts")
    (oid,) = session.execute("SELECT 'plain'::regclass::oid").fetchone()
    before = fingerprint(session, oid, "carrier")
    session.execute("ALTER PUBLICATION carrier DROP TABLE parts")
    assert findings(session, before, fingerprint(session, oid, "carrier")) == []
    session.execute("ALTER PUBLICATION carrier DROP TABLE plain")
    if back:
        session.execute(back)
    found = findings(session, before, fingerprint(session, oid, "carrier"))
    assert [f.event for f in found] == [Event.UNPUBLISHED]
    error = verdict(found, "plain", truncated=False)
    assert error is not None and error.code == "data.rewritten" and "RESYNC TABLE plain" in error.hint


def test_a_partition_born_empty_is_no_finding(after: Look) -> None:
    new = "CREATE TABLE p3 PARTITION OF parts FOR VALUES FROM (20) TO (30)"
    assert after("parts", new, "INSERT INTO parts VALUES (25)") == []


@pytest.mark.parametrize("separator", ["; ", "; COMMIT; BEGIN; "])
def test_a_filled_table_that_is_attached_is_found(after: Look, separator: str) -> None:
    steps = separator.join(
        [
            "BEGIN; CREATE TABLE p3 (a int PRIMARY KEY, b text)",
            "INSERT INTO p3 VALUES (21)",
            "ALTER TABLE parts ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30); COMMIT",
        ]
    )
    found = after("parts", steps)
    assert found == [Finding(Event.ATTACHED, '"public"."p3"')]
    error = verdict(found, "parts", truncated=False)
    assert error is not None
    assert error.code == "data.rewritten"
    assert "RESYNC TABLE parts" in error.hint


@pytest.mark.parametrize("statement", ["ALTER TABLE parts DETACH PARTITION p1", "DROP TABLE p1"])
def test_a_partition_that_leaves_is_found(after: Look, statement: str) -> None:
    assert after("parts", statement) == [Finding(Event.DETACHED, '"public"."p1"')]


def test_a_truncated_partition_is_found_but_a_truncated_table_is_in_the_log(after: Look) -> None:
    found = after("parts", "TRUNCATE p1")
    assert found == [Finding(Event.EMPTIED, '"public"."p1"')]
    assert verdict(found, "parts", truncated=False) is not None
    assert verdict(found, "parts", truncated=True) is None
    assert verdict(after("plain", "TRUNCATE plain"), "plain", truncated=False) is None
    assert verdict(after("plain", "VACUUM FULL plain"), "plain", truncated=False) is None


def test_a_rewrite_that_may_change_values_is_found_and_a_widening_is_left_to_the_log(after: Look) -> None:
    found = after("plain", "ALTER TABLE plain ALTER b TYPE text USING upper(b) || 'x'")
    assert found == [Finding(Event.REWRITTEN, '"public"."plain"')]
    assert verdict(found, "plain", truncated=True) is not None
    assert verdict(after("plain", "ALTER TABLE plain ALTER c TYPE bigint"), "plain", truncated=False) is None
    volatile = "ALTER TABLE plain ADD COLUMN r float8 DEFAULT random()"
    assert verdict(after("plain", volatile), "plain", truncated=False) is None


def test_other_ways_out_of_the_log_are_found(after: Look) -> None:
    assert Finding(Event.UNLOGGED, '"public"."plain"') in after("plain", "ALTER TABLE plain SET UNLOGGED")
    assert after("parts", "ALTER TABLE p1 REPLICA IDENTITY NOTHING") == [Finding(Event.IDENTITY, '"public"."p1"')]
    assert after("parts", "ALTER TABLE p2 REPLICA IDENTITY FULL") == []


def test_a_table_made_again_under_its_name_is_another(after: Look) -> None:
    found = after("plain", "DROP TABLE plain", "CREATE TABLE plain (a int PRIMARY KEY, b text)")
    assert found == [Finding(Event.GONE, "the table")]
    assert verdict(found, "plain", truncated=False) is not None
