"""What the log does not tell is found by looking at the catalog."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from headwater.model import Column, RelationInfo, TableOrigin, TableState
from headwater.source.postgres import begin
from headwater.source.postgres.catalog.catalog import describe_table
from headwater.source.postgres.catalog.findings import Event, Finding, compare, findings
from headwater.source.postgres.catalog.watch import look
from headwater.source.upstream import Look
from support.wait import wait_for


@pytest.fixture
def session(database: Any) -> Iterator[Any]:
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE plain (a int PRIMARY KEY, b text, c int); INSERT INTO plain VALUES (1, 'x', 1);"
            "CREATE TABLE parts (a int PRIMARY KEY, b text) PARTITION BY RANGE (a);"
            "CREATE TABLE p1 PARTITION OF parts FOR VALUES FROM (0) TO (10);"
            "CREATE TABLE p2 PARTITION OF parts FOR VALUES FROM (10) TO (20); INSERT INTO parts VALUES (1, 'x');"
            "CREATE PUBLICATION carrier FOR TABLE ONLY plain, ONLY parts WITH (publish_via_partition_root = true)"
        )
        yield connection


def relation_of(session: Any, table: str, names: tuple[str, ...] | None = None) -> RelationInfo:
    """The table as a relation follows it now: all of its columns, or some."""
    found = describe_table(session, "public", table)
    columns = tuple(Column(c.name, "STRING", c.type) for c in found.columns if names is None or c.name in names)
    return RelationInfo(
        *(1, table, TableOrigin(1, "public", table, found.oid), columns, found.key, {}, TableState.LIVE, None, "", -1)
    )


def look_at(session: Any, relation: RelationInfo, publication: str = "carrier") -> Look:
    return look(session, [relation.origin.upstream_id], publication)[relation.origin.upstream_id]


@pytest.fixture
def after(session: Any) -> Callable[..., list[Finding]]:
    def seen(table: str, *statements: str, names: tuple[str, ...] | None = None) -> list[Finding]:
        relation = relation_of(session, table, names)
        before = look_at(session, relation)
        for statement in statements:
            session.execute(statement)
        return findings(session, before, look_at(session, relation), relation)

    return seen


After = Callable[..., list[Finding]]


def events(found: list[Finding]) -> list[Event]:
    return [f.event for f in found]


def test_ordinary_work_is_no_finding(after: After) -> None:
    assert after("plain", "INSERT INTO plain VALUES (2)", "UPDATE plain SET b = 'y'", "ANALYZE plain", "VACUUM") == []
    assert after("plain", "ALTER TABLE plain ADD COLUMN d int DEFAULT 4", "CREATE INDEX ON plain (b)") == []
    assert after("plain", "ALTER TABLE plain ALTER b SET DEFAULT 'z'", "REINDEX TABLE plain") == []
    assert (
        after("plain", "ALTER PUBLICATION carrier DROP TABLE parts", "ALTER PUBLICATION carrier ADD TABLE parts") == []
    )
    assert after("parts", "INSERT INTO parts VALUES (2)", "DELETE FROM parts", "ANALYZE parts") == []


@pytest.mark.parametrize("back", ["", "ALTER PUBLICATION carrier ADD TABLE ONLY plain"])
def test_a_table_that_the_publication_left_out_for_a_while_is_found(session: Any, after: After, back: str) -> None:
    relation = relation_of(session, "plain")
    before = look_at(session, relation)
    session.execute("ALTER PUBLICATION carrier DROP TABLE plain")
    if back:
        session.execute(back)
    now = look_at(session, relation)
    assert events(findings(session, before, now, relation)) == [Event.UNPUBLISHED]
    error = compare(session, before, now, relation).error
    assert error is not None and error.code == "data.rewritten" and "RESYNC TABLE plain" in error.hint


@pytest.mark.parametrize(
    ("publication", "then", "event"),
    [
        ("FOR ALL TABLES", "DROP PUBLICATION other", Event.UNPUBLISHED),
        ("FOR TABLES IN SCHEMA public", "ALTER PUBLICATION other DROP TABLES IN SCHEMA public", Event.UNPUBLISHED),
        ("FOR TABLE plain", "ALTER PUBLICATION other SET TABLE plain WHERE (a > 1)", Event.UNPUBLISHED),
        ("FOR TABLE plain", "ALTER PUBLICATION other SET TABLE plain (a, b)", Event.UNPUBLISHED),
        ("FOR TABLE plain", "ALTER PUBLICATION other SET (publish = 'insert')", Event.PUBLICATION),
        ("FOR TABLE parts", "ALTER PUBLICATION other SET (publish_via_partition_root = false)", Event.PUBLICATION),
        ("FOR TABLE plain", "ALTER PUBLICATION other OWNER TO other_owner", None),
    ],
)
def test_a_publication_that_tells_less_is_found(session: Any, publication: str, then: str, event: Event | None) -> None:
    with session.transaction():  # roles are the server's: it is taken back
        session.execute("CREATE ROLE other_owner SUPERUSER")
        session.execute(f"CREATE PUBLICATION other {publication} WITH (publish_via_partition_root = true)")
        relation = relation_of(session, "parts" if "parts" in publication else "plain")
        before = look_at(session, relation, "other")
        session.execute(then)
        found = findings(session, before, look_at(session, relation, "other"), relation)
        assert events(found) == ([event] if event else [])
        raise psycopg.Rollback


def test_options_of_a_publication_that_were_altered_and_altered_back_are_found(after: After) -> None:
    there = "ALTER PUBLICATION carrier SET (publish = 'insert')"
    back = "ALTER PUBLICATION carrier SET (publish = 'insert, update, delete, truncate')"
    assert events(after("plain", there, back)) == [Event.PUBLICATION]


def test_where_the_second_alter_is_ours_it_is_no_finding(after: After, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(begin.MENDED, 18, 190000)
    assert after("plain", "ALTER PUBLICATION carrier SET (publish_via_partition_root = true)") == []
    assert events(after("plain", "ALTER PUBLICATION carrier SET (publish = 'insert')")) == [Event.PUBLICATION]


KEYS = (
    "ALTER TABLE plain DROP CONSTRAINT plain_pkey, ADD PRIMARY KEY (a, b)",
    "ALTER TABLE plain REPLICA IDENTITY FULL; ALTER TABLE plain DROP CONSTRAINT plain_pkey, ADD PRIMARY KEY (a, b)",
    "ALTER TABLE plain DROP CONSTRAINT plain_pkey",
    "ALTER TABLE plain DROP CONSTRAINT plain_pkey, ADD PRIMARY KEY (a) DEFERRABLE",
)


@pytest.mark.parametrize("statement", KEYS)
def test_another_key_is_found_and_so_is_none(after: After, statement: str) -> None:
    assert events(after("plain", "DELETE FROM plain WHERE b IS NULL", *statement.split("; "))) == [Event.KEY]


def test_the_same_key_in_a_new_index_is_no_finding(after: After) -> None:
    assert after("plain", "ALTER TABLE plain DROP CONSTRAINT plain_pkey, ADD PRIMARY KEY (a) INCLUDE (c)") == []
    assert after("plain", 'ALTER TABLE plain ALTER b TYPE text COLLATE "C"') == []


NAMES = (
    ("ALTER TABLE plain DROP COLUMN c, ADD COLUMN c int DEFAULT 7", [Event.REPLACED]),
    ("ALTER TABLE plain DROP COLUMN c; ALTER TABLE plain ADD COLUMN c int DEFAULT 7", [Event.REPLACED]),
    (
        "ALTER TABLE plain RENAME b TO x; ALTER TABLE plain RENAME c TO b; ALTER TABLE plain RENAME x TO c",
        [Event.REPLACED, Event.REPLACED],
    ),
    ("ALTER TABLE plain RENAME c TO d", [Event.RENAMED]),
    ("ALTER TABLE plain DROP COLUMN c", []),
    ("ALTER TABLE plain RENAME TO other", [Event.MOVED]),
    ("CREATE SCHEMA elsewhere; ALTER TABLE plain SET SCHEMA elsewhere", [Event.MOVED]),
)


@pytest.mark.parametrize(("statements", "expected"), NAMES)
def test_a_name_that_means_something_else_is_found(after: After, statements: str, expected: list[Event]) -> None:
    found = [f for f in after("plain", *statements.split("; ")) if f.event is not Event.REFILED]
    assert events(found) == expected


def test_what_happens_to_a_column_that_nobody_follows_is_no_finding(after: After) -> None:
    alter = "ALTER TABLE plain DROP COLUMN c, ADD COLUMN c int DEFAULT 7"
    assert after("plain", alter, names=("a", "b")) == []
    assert events(after("plain", "ALTER TABLE plain ALTER c TYPE int USING c + 1", names=("a", "b"))) == [Event.REFILED]


def test_a_column_that_comes_or_goes_is_reported(session: Any) -> None:
    relation = relation_of(session, "plain")
    before = look_at(session, relation)
    session.execute("ALTER TABLE plain ADD COLUMN d int DEFAULT 4, DROP COLUMN c")
    verdict = compare(session, before, look_at(session, relation), relation)
    assert verdict.error is None
    assert verdict.notices == (
        "column d was added upstream and is ignored; RESYNC TABLE adds it",
        "column c was dropped upstream and is NULL from then on",
    )


TYPES = (
    ("mood", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'", True),
    ("mood[]", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'", True),
    ("moody", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'", True),
    ("pair", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'", True),
    ("pair", "ALTER TYPE pair ADD ATTRIBUTE z int", True),
    ("pair", "ALTER TYPE pair DROP ATTRIBUTE x", True),
    ("mood", "ALTER TYPE mood ADD VALUE 'calm' BEFORE 'sad'", False),
    ("moody", "ALTER DOMAIN moody SET DEFAULT 'sad'", False),
    ("pair", "ALTER TYPE pair RENAME ATTRIBUTE x TO y", False),
)


@pytest.mark.parametrize(("type", "statement", "found"), TYPES)
def test_a_type_that_prints_older_values_in_another_way_is_found(
    session: Any, after: After, type: str, statement: str, found: bool
) -> None:
    session.execute("CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE DOMAIN moody AS mood")
    session.execute("CREATE TYPE pair AS (x int, m mood)")
    session.execute(f"CREATE TABLE typed (a int PRIMARY KEY, v {type}, w mood)")
    session.execute("ALTER PUBLICATION carrier ADD TABLE typed")
    assert events(after("typed", statement, names=("a", "v"))) == ([Event.RETYPED] if found else [])


def test_a_computed_column_that_is_computed_in_another_way_is_found(session: Any, after: After) -> None:
    session.execute("CREATE TABLE sums (a int PRIMARY KEY, b int GENERATED ALWAYS AS (a + 1) STORED)")
    session.execute("ALTER PUBLICATION carrier ADD TABLE sums")
    found = after("sums", "ALTER TABLE sums ALTER b SET EXPRESSION AS (a + 2)")
    assert Event.COMPUTED in events(found)


def test_a_partition_born_empty_is_no_finding(after: After) -> None:
    assert after("parts", NEW, "INSERT INTO parts VALUES (25)") == []


NEW = "CREATE TABLE p3 PARTITION OF parts FOR VALUES FROM (20) TO (30)"
FILLED = (
    f"{NEW}; INSERT INTO parts VALUES (25)",
    "CREATE TABLE p3 PARTITION OF parts (b DEFAULT 'x') FOR VALUES FROM (20) TO (30); INSERT INTO p3 VALUES (25)",
    f"SAVEPOINT s; {NEW}; RELEASE s; INSERT INTO p3 VALUES (25)",
    "CREATE TABLE p3 (LIKE parts INCLUDING ALL); ALTER TABLE parts ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30)",
)


@pytest.mark.parametrize("statements", FILLED)
def test_a_partition_that_the_log_tells_whole_is_no_finding(after: After, statements: str) -> None:
    assert after("parts", f"BEGIN; {statements}; COMMIT") == []


def test_a_table_that_was_empty_when_it_was_attached_is_no_finding(after: After) -> None:
    made = "CREATE TABLE p3 (a int PRIMARY KEY, b text)"
    assert after("parts", made, "ALTER TABLE parts ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30)") == []


ROUND = f"{NEW}; ALTER TABLE parts DETACH PARTITION p3"


@pytest.mark.parametrize("separator", ["; ", "; COMMIT; BEGIN; "])
@pytest.mark.parametrize("made", ["CREATE TABLE p3 (a int PRIMARY KEY, b text)", ROUND])
def test_a_filled_table_that_is_attached_is_found(session: Any, after: After, made: str, separator: str) -> None:
    steps = separator.join(
        [
            f"BEGIN; {made}",
            "INSERT INTO p3 VALUES (21)",
            "ALTER TABLE parts ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30); COMMIT",
        ]
    )
    assert after("parts", steps) == [Finding(Event.ATTACHED, '"public"."p3"')]


WITHIN = "BEGIN; CREATE TABLE p3 (a int PRIMARY KEY, b text); {filled}; {attach}; COMMIT"
ATTACH = "ALTER TABLE parts ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30)"


@pytest.mark.parametrize(
    "filled",
    [
        "SAVEPOINT s; INSERT INTO p3 VALUES (21); RELEASE s",
        "SAVEPOINT s; INSERT INTO p3 VALUES (21); SAVEPOINT t; INSERT INTO p3 VALUES (22); ROLLBACK TO t",
        "SAVEPOINT s; INSERT INTO p3 VALUES (21); SAVEPOINT t; DELETE FROM p3; ROLLBACK TO t; RELEASE s",
        "DO 'BEGIN INSERT INTO p3 VALUES (21); EXCEPTION WHEN unique_violation THEN NULL; END'",
    ],
)
def test_rows_that_a_subtransaction_wrote_before_the_attach_are_found(after: After, filled: str) -> None:
    found = after("parts", WITHIN.format(filled=filled, attach=ATTACH), "INSERT INTO parts VALUES (25)")
    assert found == [Finding(Event.ATTACHED, '"public"."p3"')]


def test_rows_that_came_after_the_attach_are_no_finding(session: Any) -> None:
    """Also of transactions with several commands, once the table was seen to be attached."""
    relation = relation_of(session, "parts")
    before = look_at(session, relation)
    session.execute(WITHIN.format(filled="SELECT 1", attach=ATTACH))
    session.execute("INSERT INTO parts VALUES (21)")
    session.execute("BEGIN; SAVEPOINT s; INSERT INTO parts VALUES (22); COMMIT")
    seen = look_at(session, relation)
    session.execute("BEGIN; UPDATE plain SET c = 2; UPDATE plain SET c = 3; INSERT INTO parts VALUES (23); COMMIT")
    assert findings(session, before, seen, relation) == []


def test_a_partition_that_we_may_not_read_needs_no_reading_or_stops_its_table(session: Any, database: Any) -> None:
    relation = relation_of(session, "parts")
    before = look_at(session, relation)
    session.execute(
        "BEGIN; CREATE TABLE p3 PARTITION OF parts FOR VALUES FROM (20) TO (30); INSERT INTO parts VALUES (25); COMMIT"
    )
    role = f"reader_{database.name}"
    session.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'reader'; GRANT SELECT ON parts TO {role}")
    try:
        with psycopg.connect(database.server.dsn(database.name, role, "reader"), autocommit=True) as limited:
            assert findings(limited, before, look_at(limited, relation), relation) == []
            session.execute(
                "BEGIN; CREATE TABLE p4 (LIKE parts INCLUDING ALL); INSERT INTO p4 VALUES (35);"
                "ALTER TABLE parts ATTACH PARTITION p4 FOR VALUES FROM (30) TO (40); COMMIT"
            )
            found = findings(limited, before, look_at(limited, relation), relation)
            assert found == [Finding(Event.ATTACHED, '"public"."p4"')]
    finally:
        session.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


MIDDLE = "CREATE TABLE mid (a int PRIMARY KEY, b text) PARTITION BY RANGE (a)"
LEAF = "CREATE TABLE leaf PARTITION OF mid FOR VALUES FROM (20) TO (30)"
ATTACH_MIDDLE = "ALTER TABLE parts ATTACH PARTITION mid FOR VALUES FROM (20) TO (40)"


@pytest.mark.parametrize("separator", ["; ", "; COMMIT; BEGIN; "])
def test_a_partition_that_was_detached_and_attached_again_is_found(after: After, separator: str) -> None:
    """It may have been written in between, when the log did not tell its rows."""
    steps = (
        "ALTER TABLE parts DETACH PARTITION p1",
        "DELETE FROM p1",
        "ALTER TABLE parts ATTACH PARTITION p1 FOR VALUES FROM (0) TO (10)",
    )
    found = after("parts", f"BEGIN; {separator.join(steps)}; COMMIT")
    assert found == [Finding(Event.REATTACHED, '"public"."p1"')]


def test_partitions_of_partitions_come_and_leave_with_the_table_between(session: Any, after: After) -> None:
    assert after("parts", MIDDLE, LEAF, ATTACH_MIDDLE) == []
    assert after("parts", "CREATE TABLE l2 PARTITION OF mid FOR VALUES FROM (30) TO (35)") == []
    filled = "CREATE TABLE l3 PARTITION OF mid FOR VALUES FROM (35) TO (40); INSERT INTO parts VALUES (36)"
    assert after("parts", f"BEGIN; {filled}; COMMIT") == []
    away = "ALTER TABLE parts DETACH PARTITION mid"
    found = after("parts", f"BEGIN; {away}; INSERT INTO leaf VALUES (21); {ATTACH_MIDDLE}; COMMIT")
    assert found == [Finding(Event.REATTACHED, '"public"."mid"')]
    session.execute("DROP TABLE mid")
    found = after("parts", MIDDLE, LEAF, "INSERT INTO leaf VALUES (21)", ATTACH_MIDDLE)
    assert found == [Finding(Event.ATTACHED, '"public"."leaf"')]


@pytest.mark.parametrize("statement", ["ALTER TABLE parts DETACH PARTITION p1", "DROP TABLE p1"])
def test_a_partition_that_leaves_is_found(after: After, statement: str) -> None:
    assert after("parts", statement) == [Finding(Event.DETACHED, '"public"."p1"')]


def test_a_partition_that_is_leaving_is_found_before_it_has_left(session: Any, database: Any) -> None:
    """DETACH CONCURRENTLY takes its rows out of the table first, and then waits for whoever still reads them."""
    relation = relation_of(session, "parts")
    before = look_at(session, relation)
    pending = "SELECT 1 FROM pg_inherits WHERE inhdetachpending"
    with database.connect() as reader, database.connect() as other:
        reader.execute("BEGIN; SELECT 1 FROM parts")
        leave = "ALTER TABLE parts DETACH PARTITION p1 CONCURRENTLY"
        leaving = threading.Thread(target=other.execute, args=(leave,))
        leaving.start()
        try:
            wait_for(lambda: session.execute(pending).fetchall(), "the partition is leaving")
            found = findings(session, before, look_at(session, relation), relation)
        finally:
            reader.execute("COMMIT")
            leaving.join(60)
    assert found == [Finding(Event.DETACHED, '"public"."p1"')]


def test_a_truncated_partition_is_found_but_a_truncated_table_is_in_the_log(session: Any, after: After) -> None:
    relation = relation_of(session, "parts")
    before = look_at(session, relation)
    with session.transaction():
        session.execute("TRUNCATE parts")
        ((whole,),) = session.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()
    between = look_at(session, relation)
    assert compare(session, before, between, relation, [whole]).error is None
    error = compare(session, before, between, relation, []).error
    assert error is not None and "was truncated or rewritten on its own" in error.message
    session.execute("TRUNCATE p1")
    now = look_at(session, relation)
    error = compare(session, between, now, relation, [whole]).error  # the first look has accounted for that TRUNCATE
    assert error is not None and '"public"."p1"' in error.message
    assert events(after("plain", "TRUNCATE plain")) == [Event.REFILED]
    assert events(after("plain", "VACUUM FULL plain")) == [Event.REFILED]


def test_a_truncated_table_excuses_no_partition_that_was_truncated_after_it(session: Any) -> None:
    relation = relation_of(session, "parts")
    before = look_at(session, relation)
    with session.transaction():
        session.execute("TRUNCATE parts")
        ((whole,),) = session.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()
    session.execute("INSERT INTO parts VALUES (1), (11)")
    harmless = ("VACUUM p2", "ANALYZE p2", "CREATE INDEX ON p2 (b)", "GRANT SELECT ON p2 TO PUBLIC", "REINDEX TABLE p1")
    for statement in (*harmless, "ALTER TABLE p2 SET (fillfactor = 50)"):
        session.execute(statement)
    assert compare(session, before, look_at(session, relation), relation, [whole]).error is None
    session.execute("TRUNCATE p1")
    error = compare(session, before, look_at(session, relation), relation, [whole]).error
    assert error is not None and '"public"."p1" was truncated' in error.message


UNLOGGED = "ALTER TABLE {table} SET UNLOGGED; {write}; ALTER TABLE {table} SET LOGGED"
UNNAMED = (
    ("plain", UNLOGGED.format(table="plain", write="UPDATE plain SET c = 9"), True),
    ("plain", UNLOGGED.format(table="plain", write="DELETE FROM plain") + "; VACUUM FULL plain", True),
    ("bare", UNLOGGED.format(table="bare", write="UPDATE bare SET c = 9") + "; INSERT INTO bare VALUES (2)", True),
    ("plain", UNLOGGED.format(table="plain", write="DELETE FROM plain") + "; ALTER TABLE plain ADD COLUMN d int", True),
    ("plain", "VACUUM FULL plain", False),
    ("plain", "DELETE FROM plain; VACUUM FULL plain", False),
    ("bare", "INSERT INTO bare VALUES (2); CLUSTER bare USING bare_pkey", False),
    ("plain", "ALTER TABLE plain ALTER c TYPE bigint", False),
    ("bare", "ALTER TABLE bare ALTER c TYPE bigint", False),
    ("bare", "ALTER TABLE bare ADD COLUMN r float8 DEFAULT random()", False),
    ("bare", "TRUNCATE bare", False),
    ("bare", "DELETE FROM bare; VACUUM FULL bare", True),  # nothing is left that could tell
)


@pytest.mark.parametrize(("table", "statements", "stops"), UNNAMED)
def test_a_table_that_was_unlogged_for_a_while_is_found(session: Any, table: str, statements: str, stops: bool) -> None:
    """PostgreSQL refuses to make a table unlogged only where a publication names it."""
    session.execute("CREATE TABLE bare (a int PRIMARY KEY, c int); INSERT INTO bare VALUES (1)")  # without TOAST
    publication = "FOR ALL TABLES" if table == "plain" else "FOR TABLES IN SCHEMA public"
    session.execute(f"DROP PUBLICATION carrier; CREATE PUBLICATION carrier {publication}")
    relation = relation_of(session, table)
    before = look_at(session, relation)
    last = 0
    for statement in statements.split("; "):
        session.execute(statement)
        ((last,),) = session.execute("SELECT pg_current_xact_id()::text::bigint - 1").fetchall()
    truncates = [last] if "TRUNCATE" in statements else []
    error = compare(session, before, look_at(session, relation), relation, truncates).error
    assert (error is not None) == stops, error
    assert error is None or "was rewritten, and may have been unlogged" in error.message


def test_a_rewrite_that_may_change_values_is_found_and_a_widening_is_left_to_the_log(after: After) -> None:
    assert events(after("plain", "ALTER TABLE plain ALTER b TYPE text USING upper(b) || 'x'")) == [Event.REWRITTEN]
    assert events(after("plain", "ALTER TABLE plain ALTER c TYPE bigint")) == [Event.REFILED]
    assert events(after("plain", "ALTER TABLE plain ADD COLUMN r float8 DEFAULT random()")) == [Event.REFILED]


def test_other_ways_out_of_the_log_are_found(session: Any, after: After) -> None:
    session.execute("ALTER PUBLICATION carrier DROP TABLE plain")
    assert Event.UNLOGGED in events(after("plain", "ALTER TABLE plain SET UNLOGGED"))
    assert after("parts", "ALTER TABLE p1 REPLICA IDENTITY NOTHING") == [Finding(Event.IDENTITY, '"public"."p1"')]
    session.execute("ALTER TABLE p1 REPLICA IDENTITY DEFAULT")
    assert after("parts", "ALTER TABLE p2 REPLICA IDENTITY FULL") == []
    session.execute("CREATE TABLE above (LIKE parts) PARTITION BY RANGE (a)")
    adopted = "ALTER TABLE above ATTACH PARTITION parts FOR VALUES FROM (0) TO (100)"
    assert after("parts", adopted) == [Finding(Event.ADOPTED, '"public"."parts"')]


def test_a_table_made_again_under_its_name_is_another(session: Any, after: After) -> None:
    made = "CREATE TABLE plain (a int PRIMARY KEY, b text)"
    assert after("plain", "DROP TABLE plain", made) == [Finding(Event.GONE, "the table")]


def test_a_look_waits_for_no_lock(session: Any, database: Any) -> None:
    relation = relation_of(session, "parts")
    with database.connect() as other, other.transaction():
        other.execute("LOCK TABLE parts, p1 IN ACCESS EXCLUSIVE MODE")
        session.execute("SET lock_timeout = '1s'")
        assert look_at(session, relation).shape


def test_a_stored_look_is_what_was_seen(session: Any) -> None:
    seen = look_at(session, relation_of(session, "plain"))
    assert Look.parse(seen.stored()) == replace(seen, described=None) and seen.saw
