"""The watcher over a real capture: what it stops, what it excuses, and what a failed look means for other tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headwater.decode.values import lake_type
from headwater.engine.guard import Guard
from headwater.engine.serve.watcher import Watcher
from headwater.engine.status.status import status_of
from headwater.errors import DataError
from headwater.meta import connections, relations
from headwater.model import Column, ConnectionState, RelationInfo, TableState
from headwater.ownership.lease import Leases
from headwater.relation.changes import LoggedChanges
from headwater.source.connected import upstream_of
from support.capture import PUBLICATION, Captured, Upstream, captured
from support.owned import taken_over

TABLES = "TABLE ONLY plain, ONLY other, ONLY parts WITH (publish_via_partition_root = true)"


@dataclass
class Watched:
    """Three live tables of a connection whose capture runs, and watchers over them."""

    captured: Captured
    upstream: Upstream
    leases: Leases

    def follow(self, table: str, name: str = "") -> int:
        """A table that has just become live: what was published by now is before it."""
        home = self.captured.home
        self.captured.wait_caught_up()
        upstream = upstream_of(home.meta, self.captured.id)
        found = upstream.find_table("public", table, None, ())
        columns = tuple(Column(c.name, lake_type(c.type), c.type) for c in found.columns)
        look = upstream.look([found.id])[found.id]
        with home.meta.write() as c:
            id = relations.add(
                c,
                name=name or table,
                connection_id=self.captured.id,
                upstream_schema="public",
                upstream_table=table,
                upstream_id=found.id,
                columns=columns,
                key=found.key,
                options={},
                statement="",
            )
            relations.set_begin(c, id, connections.get(c, self.captured.id).committed_index)
            relations.set_fingerprint(c, id, look.stored())
            relations.set_state(c, id, TableState.LIVE)
        return id

    def watch(self, *statements: str, times: int = 2) -> Watcher:
        """What a watcher of a server that was just started makes of some statements: it looks, and looks once more."""
        for statement in statements:
            self.upstream.execute(statement)
        watcher = Watcher(
            self.captured.home, self.leases, LoggedChanges(self.captured.home.storage, self.captured.home.meta)
        )
        for _ in range(times):
            watcher.tick()
            self.captured.wait_caught_up()
        return watcher

    def table(self, name: str) -> RelationInfo:
        with self.captured.home.meta.read() as c:
            found = relations.find(c, name)
        assert found is not None
        return found

    def error(self, name: str) -> str:
        return (self.table(name).error or {}).get("message", "")

    def notices(self, name: str) -> list[str]:
        with self.captured.home.meta.read() as c:
            return [n.text for n in relations.notices(c, self.table(name).id)]


@pytest.fixture
def watched(database: Any, tmp_path: Path) -> Iterator[Watched]:
    database.execute(
        "CREATE TABLE plain (id int PRIMARY KEY, tenant int NOT NULL DEFAULT 1, v text);"
        "CREATE TABLE other (id int PRIMARY KEY, n int);"
        "CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
        "CREATE TABLE p1 PARTITION OF parts FOR VALUES FROM (0) TO (10);"
        "INSERT INTO plain VALUES (1); INSERT INTO parts VALUES (1)"
    )
    upstream = Upstream.prepare(database.dsn, TABLES)
    with captured(tmp_path / "home", upstream) as c:
        c.start()
        c.wait_caught_up()
        with c.home.meta.write() as m:
            leases = Leases(taken_over(m))
        it = Watched(c, upstream, leases)
        for table in ("plain", "other", "parts"):
            it.follow(table)
        yield it


def test_a_watcher_stops_what_changed_and_nothing_else(watched: Watched) -> None:
    w = watched
    w.watch("INSERT INTO plain VALUES (2)", "TRUNCATE parts", "VACUUM FULL other", "INSERT INTO parts VALUES (3)")
    assert {w.table(t).state for t in ("plain", "other", "parts")} == {TableState.LIVE}
    w.watch("ALTER TABLE plain DROP CONSTRAINT plain_pkey, ADD PRIMARY KEY (tenant, id)", times=1)
    assert "the primary key is no longer (id)" in w.error("plain"), "the catalog alone tells it, at the first look"
    assert {w.table(t).state for t in ("other", "parts")} == {TableState.LIVE}
    w.watch("ALTER TABLE other ALTER n TYPE bigint", times=1)
    assert "INT does not hold it" in w.error("other")
    hint = (w.table("other").error or {})["hint"]
    assert hint.startswith("RESYNC TABLE other reads it again in its new form; if the definition declares")


def test_a_table_that_begins_after_its_type_changed_is_judged_by_what_comes_after(watched: Watched) -> None:
    w = watched
    w.watch("INSERT INTO other VALUES (1, 1)", "ALTER TABLE other ALTER n TYPE bigint", times=1)
    w.follow("other", "anew")
    w.watch()
    assert (w.table("other").state, w.table("anew").state) == (TableState.FAILED, TableState.LIVE)
    w.watch("INSERT INTO other VALUES (2, 5000000000)")
    assert w.table("anew").state is TableState.LIVE


def test_a_truncate_excuses_what_came_before_it_and_only_once(watched: Watched) -> None:
    w = watched
    w.watch("TRUNCATE parts", "INSERT INTO parts VALUES (1)")
    assert w.table("parts").state is TableState.LIVE
    w.watch("TRUNCATE p1")  # by a server that has started since, which has counted nothing
    assert "was truncated or rewritten on its own" in w.error("parts")
    w.follow("parts", "anew")
    w.watch("TRUNCATE p1")
    assert "was truncated or rewritten on its own" in w.error("anew")


def test_a_table_that_is_truncated_all_the_time_is_watched_too(watched: Watched) -> None:
    w = watched
    out = f"ALTER PUBLICATION {PUBLICATION} DROP TABLE other; ALTER PUBLICATION {PUBLICATION} ADD TABLE ONLY other"
    watcher = w.watch(times=1)
    for step in ("", "", f"INSERT INTO other VALUES (1); {out}", "", ""):
        w.upstream.execute(f"TRUNCATE other, parts; {step}")
        watcher.tick()  # every look finds another file
        w.captured.wait_caught_up()
    assert "was taken out of the publication" in w.error("other")
    assert w.table("parts").state is TableState.LIVE


def test_a_look_is_judged_once_the_log_has_come_as_far(watched: Watched) -> None:
    w = watched
    watcher = w.watch(times=1)
    assert w.captured.close() == 0
    w.upstream.execute("TRUNCATE parts")
    for _ in range(3):
        watcher.tick()
    assert w.table("parts").state is TableState.LIVE, "the TRUNCATE that excuses the new files is still to come"
    w.captured.start()
    w.captured.wait_caught_up()
    for _ in range(2):
        watcher.tick()
    assert w.table("parts").state is TableState.LIVE
    w.upstream.execute("TRUNCATE p1")
    for _ in range(2):
        watcher.tick()
        w.captured.wait_caught_up()
    assert "was truncated or rewritten on its own" in w.error("parts")


def test_a_look_from_before_a_table_was_accepted_again_is_not_judged(watched: Watched) -> None:
    w = watched
    watcher = w.watch("TRUNCATE p1", times=1)  # seen, and not judged yet
    w.upstream.execute("TRUNCATE p1")
    parts = w.table("parts")
    look = upstream_of(w.captured.home.meta, w.captured.id).look([parts.origin.upstream_id])[parts.origin.upstream_id]
    with w.captured.home.meta.write() as c:
        relations.set_fingerprint(c, parts.id, look.stored())  # as RESYNC does
    for _ in range(2):
        w.captured.wait_caught_up()
        watcher.tick()
    assert w.table("parts").state is TableState.LIVE, w.error("parts")


def test_a_table_that_is_being_filled_is_watched_too(watched: Watched) -> None:
    with watched.captured.home.meta.write() as c:
        relations.set_state(c, watched.table("other").id, TableState.FILLING)
    watched.watch("DROP TABLE other")
    assert "was dropped" in watched.error("other")


def test_a_partition_that_came_and_left_before_it_was_judged_is_found(watched: Watched) -> None:
    w = watched
    attach = "ALTER TABLE parts ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)"
    watcher = w.watch("CREATE TABLE p2 (id int PRIMARY KEY, v text)", attach, times=1)
    w.upstream.execute("INSERT INTO parts VALUES (11); DROP TABLE p2")
    w.captured.wait_caught_up()
    for _ in range(2):
        watcher.tick()
    assert '"public"."p2" was detached or dropped' in w.error("parts")


def test_a_look_that_fails_affects_its_table_and_is_shown(watched: Watched) -> None:
    w = watched
    with w.upstream.connect() as other, other.transaction():
        # a partition that came with rows, and that nobody can look into: its table's look fails for now
        other.execute("CREATE TABLE p2 (id int PRIMARY KEY, v text); INSERT INTO p2 VALUES (11)")
        other.execute("ALTER TABLE parts ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)")
    with w.upstream.connect() as other:
        other.execute("BEGIN; LOCK TABLE p2 IN ACCESS EXCLUSIVE MODE")
        w.watch("DROP TABLE other")
        assert "was dropped" in w.error("other"), "one table's trouble is no other's"
        assert w.table("parts").state is TableState.LIVE
        (note,) = w.notices("parts")
        assert note.startswith("cannot check for changes that the log does not show: ")
        shown = {t.name: t.note for t in status_of(w.captured.home, None).tables}
        assert shown["parts"] == note and shown["plain"] == ""
        other.execute("COMMIT")
    w.watch()
    assert w.notices("parts") == [] and "was attached with rows in it" in w.error("parts")


def test_an_upstream_that_cannot_be_looked_at_is_shown_and_does_not_stop_the_others_from_being_checked(
    watched: Watched,
) -> None:
    w, home = watched, watched.captured.home
    for name in ("plain", "other", "parts"):
        with home.meta.write() as c:
            relations.set_state(c, w.table(name).id, TableState.FAILED)
    with home.meta.write() as c:
        broken = connections.add(c, name="broken", type="postgres-cdc", options={}, secret="", position="0/10")
        connections.set_state(c, broken, ConnectionState.RUNNING)
        id = relations.add(
            c,
            name="far",
            connection_id=broken,
            upstream_schema="public",
            upstream_table="far",
            upstream_id=1,
            columns=w.table("plain").columns,
            key=("id",),
            options={},
            statement="",
        )
        relations.set_state(c, id, TableState.LIVE)
    w.follow("other", "looked_at_after_it")
    w.watch("DROP TABLE other")
    assert "was dropped" in w.error("looked_at_after_it")
    status = status_of(home, None)
    (shown,) = (x for x in status.connections if x.name == "broken")
    assert shown.code == "job.failed" and "KeyError" in shown.error, shown
    (note,) = w.notices("far")
    assert note.startswith("cannot check for changes that the log does not show: ")


def test_a_column_that_is_added_before_the_first_row_is_reported(watched: Watched) -> None:
    watched.watch("ALTER TABLE other ADD COLUMN extra int DEFAULT 5")
    assert watched.notices("other") == ["column extra was added upstream and is ignored; RESYNC TABLE adds it"]
    assert watched.table("other").state is TableState.LIVE


def test_what_triggers_rules_and_cascades_do_is_in_the_log(watched: Watched) -> None:
    """They can be added to a table that is followed: whatever they change comes as rows."""
    w = watched
    w.upstream.execute(
        "ALTER TABLE other ADD CONSTRAINT up FOREIGN KEY (n) REFERENCES plain ON DELETE CASCADE;"
        "CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO parts VALUES (NEW.id, 'triggered'); RETURN NEW; END $$;"
        "CREATE TRIGGER t AFTER INSERT ON other FOR EACH ROW EXECUTE FUNCTION shout();"
        "CREATE RULE r AS ON UPDATE TO other DO ALSO UPDATE plain SET v = 'ruled'"
    )
    before = len(w.captured.transactions())
    for statement in ("INSERT INTO other VALUES (5, 1)", "UPDATE other SET id = 6", "DELETE FROM plain"):
        w.upstream.execute(statement)
    w.watch()
    counts = [len(rows) for _, rows in w.captured.transactions()[before:]]
    assert counts == [2, 2, 2], "the row, and what the trigger, the rule or the cascade did"
    assert {w.table(t).state for t in ("plain", "other", "parts")} == {TableState.LIVE}


def test_a_table_that_was_stopped_while_it_was_looked_at_keeps_its_first_error_and_how_far_it_is_whole(
    watched: Watched,
) -> None:
    w, id = watched, watched.table("plain").id
    w.upstream.execute("ALTER TABLE plain DROP CONSTRAINT plain_pkey, ADD PRIMARY KEY (tenant, id)")
    watcher = Watcher(w.captured.home, w.leases, LoggedChanges(w.captured.home.storage, w.captured.home.meta))
    seen = watcher._watched()
    Guard(w.captured.home, w.leases).stop(id, DataError("data.base_damaged", "a file is gone"))
    with w.captured.home.meta.write() as c:
        relations.set_stopped(c, id, 7)
    watcher._look(w.captured.id, seen[w.captured.id])
    assert w.error("plain") == "a file is gone" and w.table("plain").stopped_at == 7


def test_a_publication_that_is_altered_stops_its_tables(watched: Watched) -> None:
    watched.watch(f"ALTER PUBLICATION {PUBLICATION} SET (publish = 'insert')")
    assert "a publication whose options were altered" in watched.error("plain")
    assert {watched.table(t).state for t in ("plain", "other", "parts")} == {TableState.FAILED}
