"""What a change says of its row: deletes, key changes, TOAST, replica identities, schema changes. On a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headwater.errors import DataError
from headwater.model import Column, Op
from support.before import decode_before
from support.values import Log, columns_of, scan

KEY = ("a", "b")
LARGE = "v, a, n, b, big, doc, raw, list"


def large(seed: str) -> str:
    """A SELECT list for the out-of-line columns."""
    text = f"(SELECT string_agg(md5(i::text || '{seed}'), '') FROM generate_series(1, 400) i)"
    return f"{text}, to_jsonb({text}), {text}::bytea, ARRAY[{text}, NULL]"


class Table:
    """A table with a key of two columns, not its first ones, and four columns that are stored out of line."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self.execute = database.execute
        self.execute(
            "CREATE TABLE t (v text, a int, n int, b text, big text, doc jsonb, raw bytea, list text[],"
            " PRIMARY KEY (a, b))"
        )
        for column in ("big", "doc", "raw", "list"):
            self.execute(f"ALTER TABLE t ALTER {column} SET STORAGE EXTERNAL")
        self.log = Log(database, "t")
        self.columns = columns_of(database, "t")

    def insert(self, a: int, b: str, seed: str = "x") -> None:
        self.execute(f"INSERT INTO t ({LARGE}) SELECT 'v', {a}, 1, '{b}', {large(seed)}")

    def changes(self, columns: tuple[Column, ...] | None = None) -> list[dict[str, Any]]:
        decoded = self.log.changes(columns or self.columns, KEY)
        self.notices = decoded.notices
        return list(decoded.table.to_pylist())


@pytest.fixture
def table(database: Any) -> Iterator[Table]:
    t = Table(database)
    yield t
    t.log.close()


def test_an_update_names_the_columns_that_it_does_not_carry(table: Table) -> None:
    table.insert(1, "x")
    table.execute("UPDATE t SET n = 2")
    inserted, updated = table.changes()
    assert inserted["__missing"] is None and len(inserted["big"]) == 12_800
    assert updated["__missing"] == [4, 5, 6, 7]
    assert (updated["a"], updated["b"], updated["n"], updated["big"], updated["list"]) == (1, "x", 2, None, None)
    assert updated["__op"] == Op.UPDATE and updated["__old"] is None
    assert (inserted["__index"], updated["__index"]) == (1, 2) and updated["__txn"] > inserted["__txn"] > 0


def test_an_update_that_sets_one_large_column_misses_only_the_others(table: Table) -> None:
    table.insert(1, "x")
    table.execute("UPDATE t SET doc = NULL, raw = 'r'")
    assert [c["__missing"] for c in table.changes()] == [None, [4, 7]]


def test_a_key_change_carries_the_old_key(table: Table) -> None:
    table.insert(1, "x")
    table.execute("UPDATE t SET a = 2, n = 7")
    _, moved = table.changes()
    assert (moved["a"], moved["b"], moved["n"]) == (2, "x", 7)
    assert moved["__old"] == {"a": 1, "b": "x"}
    assert moved["__missing"] == [4, 5, 6, 7]


def test_a_delete_has_its_key_and_nothing_else(table: Table) -> None:
    table.insert(1, "x")
    table.execute("DELETE FROM t")
    _, gone = table.changes()
    assert gone["__op"] == Op.DELETE
    assert {k: v for k, v in gone.items() if v is not None and not k.startswith("__")} == {"a": 1, "b": "x"}
    assert gone["__old"] is None and gone["__missing"] is None


def test_a_truncate_has_no_values(table: Table) -> None:
    table.insert(1, "x")
    table.execute("TRUNCATE t")
    _, truncated = table.changes()
    assert truncated["__op"] == Op.TRUNCATE
    assert all(v is None for k, v in truncated.items() if k not in ("__op", "__index", "__txn"))


def test_replica_identity_full_fills_what_an_update_left_unchanged(table: Table) -> None:
    table.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    table.insert(1, "x")
    table.execute("UPDATE t SET n = 2")
    table.execute("UPDATE t SET b = 'y'")
    table.execute("DELETE FROM t")
    inserted, updated, moved, gone = table.changes()
    for change in (updated, moved):
        assert change["__missing"] is None
        assert [change[c] for c in ("big", "doc", "raw", "list")] == [
            inserted[c] for c in ("big", "doc", "raw", "list")
        ]
    assert updated["__old"] is None
    assert moved["__old"] == {"a": 1, "b": "x"}
    assert (gone["a"], gone["b"], gone["n"], gone["big"]) == (1, "y", None, None)


def test_the_row_as_it_was_is_there_as_far_as_the_upstream_sent_it(table: Table) -> None:
    table.insert(1, "x")
    table.execute("UPDATE t SET n = 2")
    table.execute("UPDATE t SET a = 2")
    table.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    table.execute("UPDATE t SET n = 3")
    table.execute("DELETE FROM t")
    raw = table.log.read()
    before = decode_before(raw, table.log.schemas, table.columns, KEY).to_pylist()
    assert before[:2] == [None, None]
    assert {k: v for k, v in before[2].items() if v is not None} == {"a": 1, "b": "x"}
    assert [(r["a"], r["n"], len(r["big"])) for r in before[3:]] == [(2, 2, 12_800), (2, 3, 12_800)]


def test_a_key_that_is_stored_out_of_line_is_never_missing(database: Any) -> None:
    database.execute("CREATE TABLE k (id text PRIMARY KEY, n int); ALTER TABLE k ALTER id SET STORAGE EXTERNAL")
    log = Log(database, "k")
    database.execute("INSERT INTO k SELECT string_agg(chr(65 + i % 26), ''), 1 FROM generate_series(1, 2200) i")
    database.execute("UPDATE k SET n = 2")
    database.execute("DELETE FROM k")
    inserted, updated, gone = log.changes(columns_of(database, "k"), ("id",)).table.to_pylist()
    log.close()
    assert len(inserted["id"]) == 2200
    assert updated["id"] == inserted["id"] == gone["id"]
    assert updated["__missing"] is None and updated["__old"] is None


def test_an_added_column_is_ignored_and_reported(table: Table) -> None:
    table.insert(1, "x")
    table.execute("ALTER TABLE t ADD COLUMN extra int DEFAULT 5")
    table.insert(2, "y")
    first, second = table.changes()
    assert (first["a"], second["a"]) == (1, 2) and "extra" not in second
    assert table.notices == ["column extra was added upstream and is ignored; RESYNC TABLE adds it"]


def test_a_column_that_the_relation_never_wanted_is_no_news(table: Table) -> None:
    table.insert(1, "x")
    changes = table.changes(tuple(c for c in table.columns if c.name in ("a", "b", "n")))
    assert [(c["a"], c["b"], c["n"]) for c in changes] == [(1, "x", 1)]
    assert table.notices == []


def test_a_dropped_column_is_null_from_then_on(table: Table) -> None:
    table.insert(1, "x")
    table.execute("ALTER TABLE t DROP COLUMN n")
    table.execute(f"INSERT INTO t (v, a, b, big, doc, raw, list) SELECT 'v', 2, 'y', {large('z')}")
    first, second = table.changes()
    assert (first["n"], second["n"]) == (1, None)
    assert second["v"] == "v" and second["b"] == "y" and second["list"][1] is None


def test_a_type_that_grew_is_followed_where_the_lake_type_holds_all_of_it(database: Any) -> None:
    database.execute(
        "CREATE TABLE w (id int2 PRIMARY KEY, i int4, f float4, v varchar(3), d numeric(4,1), s timestamp(0), l int2[],"
        " t numeric(4,1))"
    )
    log = Log(database, "w")
    wide = {"id": "BIGINT", "i": "BIGINT", "f": "DOUBLE", "d": "DECIMAL(10,3)", "l": "ARRAY<INT>", "t": "STRING"}
    columns = columns_of(database, "w", wide)
    database.execute("INSERT INTO w VALUES (1, 2, 0.1, 'abc', 999.9, '2020-01-01', '{1}', 1.5)")
    database.execute(
        "ALTER TABLE w ALTER id TYPE int8, ALTER i TYPE int8, ALTER f TYPE float8, ALTER v TYPE text,"
        " ALTER d TYPE numeric(6,2), ALTER s TYPE timestamp, ALTER l TYPE int4[], ALTER t TYPE numeric(8,1)"
    )
    database.execute(
        "INSERT INTO w VALUES (3, 3000000000, 0.1, 'abcd', 1000.55, '2020-01-01 00:00:00.5', '{70000}', 2.5)"
    )
    changes = log.changes(columns, ("id",))
    log.close()
    first, second = changes.table.drop_columns(["__index", "__txn", "__op", "__missing", "__old"]).to_pylist()
    assert (first["i"], second["i"], first["f"], second["f"]) == (2, 3000000000, 0.10000000149011612, 0.1)
    assert (first["v"], second["v"], str(first["d"]), str(second["d"])) == ("abc", "abcd", "999.900", "1000.550")
    assert (first["l"], second["l"], first["t"], second["t"]) == ([1], [70000], "1.5", "2.5")
    assert second["s"].microsecond == 500_000 and changes.unrepresentable == {}
    # the scan of a rewritten table must give the same
    scanned, unrepresentable = scan(database, "w", columns, "id")
    assert scanned.to_pylist() == [first, second] and unrepresentable == {}


OUTGROWN = (
    ("int4", "int8", None),
    ("numeric(10,2)", "numeric(20,2)", None),
    ("numeric(10,2)", "numeric", None),
    ("numeric(10,2)", "numeric", "DECIMAL(20,4)"),
    ("numeric(10,2)", "numeric(10,4)", "STRING"),
    ("float4", "float8", None),
    ("float4", "float8", "STRING"),
    ("int2[]", "int8[]", "ARRAY<INT>"),
)


@pytest.mark.parametrize(("old", "new", "declared"), OUTGROWN)
def test_a_type_that_outgrew_its_lake_type_stops_the_table_before_its_first_value(
    database: Any, old: str, new: str, declared: str | None
) -> None:
    database.execute(f"CREATE TABLE w (id int PRIMARY KEY, v {old})")
    log = Log(database, "w")
    columns = columns_of(database, "w", {"v": declared} if declared else None)
    database.execute(f"ALTER TABLE w ALTER v TYPE {new}")
    database.execute("INSERT INTO w (id) VALUES (1)")
    with pytest.raises(DataError, match="column v") as caught:
        log.changes(columns, ("id",))
    log.close()
    assert caught.value.code == "data.schema_changed" and "RESYNC TABLE reads it again" in caught.value.hint


@pytest.mark.parametrize(
    "alter",
    [
        "ALTER n TYPE text",
        "ALTER n TYPE int2",
        "ALTER v TYPE varchar(3)",
        "ALTER v TYPE char(3)",
        "ALTER doc TYPE json",
        "RENAME a TO aa",
        "RENAME n TO m",
        "RENAME list TO many",
        "DROP COLUMN n, ADD COLUMN n int DEFAULT 7",
        "DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (a, b, n)",
        "DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (a)",
        "DROP COLUMN b, ADD COLUMN b int NOT NULL DEFAULT 5, ADD PRIMARY KEY (a, b)",
    ],
)
def test_any_other_change_of_the_schema_stops_the_table_with_the_way_out(table: Table, alter: str) -> None:
    table.insert(1, "x")
    assert len(table.changes()) == 1
    table.execute(f"ALTER TABLE t {alter}")
    table.execute("UPDATE t SET big = 'new'")
    with pytest.raises(DataError) as caught:
        table.changes()
    assert caught.value.code == "data.schema_changed" and "RESYNC TABLE" in caught.value.hint


@pytest.mark.parametrize("published", [False, True])
def test_a_generated_column_is_in_the_log_only_if_the_publication_says_so(database: Any, published: bool) -> None:
    """Without it the column would be NULL from the log and a value from the scan: the catalog leaves it out."""
    database.execute("CREATE TABLE g (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)")
    log = Log(database, "g", options="WITH (publish_generated_columns = stored)" if published else "")
    database.execute("INSERT INTO g VALUES (4)")
    (change,) = log.changes(columns_of(database, "g"), ("id",)).table.to_pylist()
    log.close()
    assert [c.name for c in log.schemas[1].columns] == (["id", "twice"] if published else ["id"])
    assert change["twice"] == (8 if published else None)


def test_names_need_no_special_care(database: Any) -> None:
    database.execute("""CREATE TABLE q ("Ünï ""q"" col" int PRIMARY KEY, "select" text, "a.b" numeric(3,1))""")
    log = Log(database, "q")
    columns = columns_of(database, "q")
    database.execute("INSERT INTO q VALUES (1, 'x', 1.5)")
    scanned, _ = scan(database, "q", columns, "1")
    changes = log.changes(columns, ('Ünï "q" col',)).table
    log.close()
    assert changes.select([c.name for c in columns]).to_pylist() == scanned.to_pylist()
    assert scanned.column_names == ['Ünï "q" col', "select", "a.b"]
