"""Each version of each database that was fetched: checks, types, capture, scan, cut and watch, without Spark.

`make test-versions` fetches them and runs this. What was captured under random writers must be what a second reader of
the same log finds; a scan that ran meanwhile, plus what it did not see, must be the upstream at an exact cut.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.backfill.read_span import job_for, scan_span, scan_table
from headwater.backfill.span import WHOLE
from headwater.changelog import reader
from headwater.check.verify import reach_in
from headwater.decode.changes import decode_changes
from headwater.decode.layout import RowLayout
from headwater.decode.scanned import to_lake
from headwater.decode.values import lake_type
from headwater.errors import DataError, HeadwaterError
from headwater.meta import connections, relations, segments
from headwater.model import Column, Op, RelationInfo, ScanResult
from headwater.source.connected import upstream_of
from headwater.source.upstream import Upstream
from support import capture, capture_mysql, mysql_types, type_cases, upstreams, versions
from support.captured import Captured, WriterThreads, captured
from support.mysql import MyDatabase
from support.mysql_values import TableLog, same
from support.owned import PERMIT
from support.values import Log
from support.wait import wait_for

pytestmark = pytest.mark.versions

COMMITS = 120
CUT_TRIES = 10  # a TRUNCATE between a cut and its read spoils it
Rows = dict[tuple[Any, ...], dict[str, Any]]
LATER = {  # types of the lists that a version does not have yet
    "mysql-8.0": {"vector(3)"},
    "mysql-8.4": {"vector(3)"},
    "mariadb-10.5": {"uuid", "inet4"},
    "postgres-14": {"numeric(3,-2)", "numeric(2,4)"},
}
LONG_TIME = {'"-838:59:58.900000"': '"-630:59:58.900000"'}  # a JSON's TIME loses bits as the server stores it
RAW_BYTE = {"\\377": None}  # a "char" beyond ASCII is sent as one byte, which no text has
OTHERWISE: dict[str, Mapping[str, str | None]] = {  # what a server itself makes of a value
    "mysql-8.0": LONG_TIME,
    "mysql-8.4": LONG_TIME,
    "postgres-14": RAW_BYTE,
}


@dataclass(frozen=True)
class Version:
    """A fresh database on a server of one version."""

    name: str
    database: Any

    @property
    def is_postgres(self) -> bool:
        return versions.kind_of(self.name) == "postgres"

    @property
    def schema(self) -> str:
        return "public" if self.is_postgres else str(self.database.name)

    def capture_upstream(self) -> Any:
        """The writers' tables, and what a capture of them must know."""
        if not self.is_postgres:
            return capture_mysql.Upstream.prepare(self.database)
        upstream = capture.Upstream.prepare(self.database.dsn)
        capture.Writers.prepare(upstream)
        return upstream

    def writers(self, seed: int) -> WriterThreads:
        if self.is_postgres:
            return capture.Writers(self.database.dsn, seed, threads=2)
        kind = upstreams.Mysql if versions.kind_of(self.name) == "mysql" else upstreams.MariaDB
        return capture_mysql.Writers(self.database, seed, moods=kind.moods)

    def run(self, *statements: str) -> None:
        """Statements of one session, which a MySQL does not log."""
        self.say(*([] if self.is_postgres else ["SET sql_log_bin = 0"]), *statements)

    def say(self, *statements: str) -> None:
        """Statements of one session."""
        with closing(self.database.connect(**({} if self.is_postgres else {"charset": "utf8mb4"}))) as session:
            for statement in statements:
                session.cursor().execute(statement)

    def types(self) -> dict[str, tuple[str, Any]]:
        """The types of the list that this version has: lake type, and values as SQL and as the lake holds them."""
        if self.is_postgres:
            known: dict[str, tuple[str, Any]] = dict(type_cases.CASES)
        else:
            known = {c.ddl: (c.lake, c.values) for c in mysql_types.cases(versions.kind_of(self.name))}
        later = LATER.get(self.name, set())
        assert later <= set(known)
        return {t: case for t, case in known.items() if t not in later}


def of(*kinds: str) -> pytest.MarkDecorator:
    """Only the versions of these kinds."""
    names = [name for name in versions.VERSIONS if versions.kind_of(name) in kinds]
    return pytest.mark.parametrize("served", names, indirect=True, scope="module")


@pytest.fixture(scope="module", params=versions.VERSIONS)
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    with versions.serve(request.param) as server:
        yield request.param, server


@pytest.fixture
def version(served: tuple[str, Any], request: pytest.FixtureRequest) -> Version:
    name, server = served
    database = re.sub(r"\W", "_", request.node.originalname)[:40]
    server.execute(f"CREATE DATABASE {database}")
    if versions.kind_of(name) != "postgres":
        return Version(name, MyDatabase(server, database))
    place = {"server": server, "name": database, "dsn": server.dsn(database)}
    calls = {"connect": lambda: server.connect(database), "execute": lambda text: server.execute(text, database)}
    return Version(name, SimpleNamespace(**place, **calls))


@pytest.fixture
def defined(version: Version, tmp_path: Path) -> Iterator[Captured]:
    with captured(tmp_path / "home", version.capture_upstream()) as c:
        yield c


@pytest.fixture
def running(defined: Captured) -> Iterator[Captured]:
    defined.start()
    defined.wait_caught_up()
    yield defined
    assert defined.close() == 0


def follow(c: Captured, version: Version, table: str) -> RelationInfo:
    """The table as a relation of the lake would have it; what meta knows of it is enough for the capture."""
    found = upstream_of(c.home.meta, c.id).find_table(version.schema, table, None, ())
    columns = tuple(Column(x.name, lake_type(x.type), x.type, not x.not_null) for x in found.columns)
    with c.home.meta.write() as m:
        id = relations.add(
            m,
            name=f"{table} again",
            connection_id=c.id,
            upstream_schema=version.schema,
            upstream_table=table,
            upstream_id=found.id,
            columns=columns,
            key=found.key,
            options={},
            statement="",
        )
        return relations.get(m, id)


def rows_at_a_cut(upstream: Upstream, relation: RelationInfo, lost: Counter[str] | None = None) -> tuple[str, Rows]:
    """A position, and the upstream's rows after exactly the commits up to it; counts what is not kept."""
    for _ in range(CUT_TRIES):
        with upstream.reach.cut(print) as cut, cut.scan(scan_table(relation)) as scan:
            if scan is not None:
                rows = []
                for batch in scan.batches(WHOLE):
                    lake, lost = to_lake(batch, relation.columns, relation.key)
                    rows += lake.to_pylist()
                    (Counter() if lost is None else lost).update(lost)
                return cut.position, by_key(relation, rows)
    raise AssertionError("every cut was spoiled")


def by_key(relation: RelationInfo, rows: list[dict[str, Any]]) -> Rows:
    found = {tuple(row[k] for k in relation.key): row for row in rows}
    assert len(found) == len(rows), "a key came twice"
    return found


def lake_at(c: Captured, relation: RelationInfo, result: ScanResult, position: str) -> Rows:
    """What a scan read, and then one by one the captured changes that it did not see, up to a position."""
    upstream = upstream_of(c.home.meta, c.id)
    reach = reach_in(c.home.meta, c.home.storage, c.id, 0, timeout_s=60, number=upstream.number, nudge=c.upstream.goal)
    index = reach(position)
    with c.home.meta.read() as m:
        pieces = segments.of_table(m, c.id, relation.origin.upstream_id, 0, index)
        schemas = {s.id: s for s in segments.schemas(m, c.id, relation.origin.upstream_id)}
    raw = reader.read_table(c.home.storage, pieces, 0, index)
    changes = decode_changes(raw, schemas, relation.columns, relation.key).table
    seen = upstream.sees(result.saw, changes["__txn"].to_numpy().astype(np.int64))
    folder = c.home.path / relation.base_path
    files = [pq.read_table(folder / f.path) for f in result.files]
    rows = by_key(relation, pa.concat_tables(files).to_pylist() if files else [])
    for change, was_seen in zip(changes.to_pylist(), seen, strict=True):
        if not was_seen:
            apply(rows, change, relation)
    return rows


def apply(rows: Rows, change: dict[str, Any], relation: RelationInfo) -> None:
    if change["__op"] == Op.TRUNCATE:
        rows.clear()
        return
    key = tuple(change[k] for k in relation.key)
    before = rows.pop(tuple(change["__old"].values()) if change["__old"] else key, {})
    if change["__op"] != Op.DELETE:
        names = [x.name for x in relation.columns]
        missing = {names[i] for i in change["__missing"] or ()}
        rows[key] = {n: before[n] if n in missing else change[n] for n in names}


def test_the_server_is_of_the_version_that_it_is_named_after(version: Version) -> None:
    if version.is_postgres:
        ((text,),) = version.database.execute("SHOW server_version")
    else:
        ((text,),) = version.database.execute("SELECT version()")
    assert text.startswith(f"{version.name.partition('-')[2]}."), text
    assert ("MariaDB" in text) == (versions.kind_of(version.name) == "mariadb"), text


def test_a_connection_and_its_tables_are_checked(defined: Captured, version: Version) -> None:
    upstream = upstream_of(defined.home.meta, defined.id)
    upstream.check()
    version.database.execute("CREATE TABLE keyed (a int, b varchar(9), c int NOT NULL UNIQUE, PRIMARY KEY (b, a))")
    assert upstream.find_table(version.schema, "keyed", None, ()).key == ("b", "a")
    version.database.execute("CREATE TABLE keyless (a int, b int)")
    with pytest.raises(HeadwaterError) as e:
        upstream.find_table(version.schema, "keyless", None, ())
    assert e.value.code == "table.no_key", e.value


@of("mysql", "mariadb")
def test_text_is_called_ordered_only_where_the_server_tells_a_nul_from_nothing(
    defined: Captured, version: Version
) -> None:
    collation = "utf8mb4_nopad_bin" if versions.kind_of(version.name) == "mariadb" else "utf8mb4_0900_bin"
    version.say(f"CREATE TABLE t (k varchar(9) CHARACTER SET utf8mb4 COLLATE {collation} PRIMARY KEY)")
    found = upstream_of(defined.home.meta, defined.id).find_table(version.schema, "t", None, ())
    ((tells,),) = version.database.execute(f"SELECT strcmp(_utf8mb4'a' COLLATE {collation}, _utf8mb4'a\\0') < 0")
    assert found.columns[0].type.ordered == bool(tells)


@of("mariadb")
def test_a_compressed_column_is_refused(defined: Captured, version: Version) -> None:
    version.say("CREATE TABLE t (id int PRIMARY KEY, v varchar(99) COMPRESSED)")
    with pytest.raises(HeadwaterError) as e:
        upstream_of(defined.home.meta, defined.id).find_table(version.schema, "t", None, ())
    assert e.value.code == "table.column_type" and "MODIFY `v` varchar(99);" in e.value.hint


@of("mysql", "mariadb")
def test_a_log_that_is_removed_early_is_reported_with_the_statement_that_fixes_it(
    defined: Captured, version: Version
) -> None:
    upstream = upstream_of(defined.home.meta, defined.id)
    old = version.name == "mariadb-10.5"
    version.say(f"SET GLOBAL {'expire_logs_days = 1' if old else 'binlog_expire_logs_seconds = 86400'}")
    (notice,) = [n for n in upstream.check() if "removes its binlogs" in n]
    version.say(notice.partition("better: ")[2])
    assert not [n for n in upstream.check() if "removes its binlogs" in n]


def test_every_type_gives_its_value_from_scan_and_log(defined: Captured, version: Version) -> None:
    types = version.types()
    names = {t: f"c{i}" for i, t in enumerate(types)}
    definitions = ", ".join(f"{names[t]} {t}" for t in types)
    version.say(
        type_cases.SETUP if version.is_postgres else mysql_types.SESSION,
        f"CREATE TABLE t (id int PRIMARY KEY, {definitions}) {'' if version.is_postgres else mysql_types.TABLE}",
    )
    relation = follow(defined, version, "t")
    log: Any = Log(version.database, "t") if version.is_postgres else TableLog(version.database, "t")
    inserts = []
    for row in range(1 + max(len(values) for _, values in types.values())):
        given = {"id": str(row), **{names[t]: v[row][0] for t, (_, v) in types.items() if row < len(v)}}
        inserts.append(f"INSERT INTO t ({', '.join(given)}) VALUES ({', '.join(given.values())})")
    version.say(*([] if version.is_postgres else [mysql_types.SESSION]), *inserts)
    lost: Counter[str] = Counter()
    _, scanned = rows_at_a_cut(upstream_of(defined.home.meta, defined.id), relation, lost)
    changes = log.changes(relation.columns, relation.key)
    logged = by_key(relation, changes.table.to_pylist())
    if version.is_postgres:
        log.close()
    lake_types = {c.name: c.lake_type for c in relation.columns}
    assert {t: lake_types[names[t]] for t in types} == {t: lake for t, (lake, _) in types.items()}
    instead = OTHERWISE.get(version.name, {})
    expected = {t: [instead.get(v, v) if isinstance(v, str) else v for _, v in types[t][1]] for t in types}
    wrong = [
        (way, t, row, found)
        for way, rows in (("scan", scanned), ("log", logged))
        for t, values in expected.items()
        for row in range(len(inserts))
        if not same(found := rows[(row,)][names[t]], values[row] if row < len(values) else None)
    ]
    assert not wrong
    assert lost == changes.unrepresentable == {names[t]: n for t in types if (n := expected[t].count(None))}


def test_random_commits_are_captured_and_agree_with_scans_at_a_cut(running: Captured, version: Version) -> None:
    seed = random.randrange(10**6)
    followed = [follow(running, version, table) for table in ("item", "other")]
    upstream = upstream_of(running.home.meta, running.id)
    with running.home.meta.read() as m:
        identity = connections.get(m, running.id).identity
    with version.writers(seed) as writers:
        wait_for(lambda: writers.commits > COMMITS or writers.failures, "commits", 60)
        to = running.home.storage, PERMIT, "scan-1"
        scans = [scan_span(job_for(r, upstream.reach, identity, WHOLE, *to)) for r in followed]
        began = writers.commits
        wait_for(lambda: writers.commits > began + COMMITS or writers.failures, "more commits", 60)
        cuts = [rows_at_a_cut(upstream, r) for r in followed]
    for relation, result, (position, expected) in zip(followed, scans, cuts, strict=True):
        assert lake_at(running, relation, result, position) == expected, f"seed {seed}"
    running.wait_caught_up()
    assert running.transactions() == running.upstream.oracle(), f"seed {seed}"


def test_a_column_that_is_added_leaves_a_table_as_it_was(running: Captured, version: Version) -> None:
    relation = follow(running, version, "item")
    upstream = upstream_of(running.home.meta, running.id)
    result = scan_span(job_for(relation, upstream.reach, {}, WHOLE, running.home.storage, PERMIT, "scan-1"))
    for statement in (
        "INSERT INTO item VALUES (1, 1, 'before')",
        "ALTER TABLE item ADD COLUMN extra int NOT NULL DEFAULT 7",
        "INSERT INTO item VALUES (2, 2, 'after', 8)",
        "UPDATE item SET n = 3 WHERE id = 1",
    ):
        version.database.execute(statement)
    position, expected = rows_at_a_cut(upstream, relation)
    assert lake_at(running, relation, result, position) == expected
    assert sorted(r["n"] for r in expected.values()) == [2, 3]


def test_what_the_log_does_not_tell_is_noticed(running: Captured, version: Version) -> None:
    version.run("CREATE TABLE quiet (id int PRIMARY KEY, v int NOT NULL, w int)", "INSERT INTO quiet VALUES (1, 1, 1)")
    relation = follow(running, version, "quiet")
    upstream = upstream_of(running.home.meta, running.id)
    drop = "CONSTRAINT quiet_pkey" if version.is_postgres else "PRIMARY KEY"

    def verdict(statement: str) -> str:
        before = upstream.look([relation.origin.upstream_id])[relation.origin.upstream_id]
        version.run(statement)
        after = upstream.look([relation.origin.upstream_id])[relation.origin.upstream_id]
        error = upstream.compare(before, after, relation, ()).error
        if error is None and after.described is not None:  # as the watcher judges a new form
            try:
                RowLayout.of(after.described, relation.columns, relation.key)
            except DataError as e:
                error = e
        return error.message if error else ""

    assert verdict("CREATE INDEX by_w ON quiet (w)") == ""
    assert "key" in verdict(f"ALTER TABLE quiet DROP {drop}, ADD PRIMARY KEY (v, id)")
    assert "was dropped" in verdict("DROP TABLE quiet")
