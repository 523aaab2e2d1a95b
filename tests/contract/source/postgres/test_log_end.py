"""How far an upstream is ahead and how much it keeps for us: asked of a real PostgreSQL."""

from __future__ import annotations

from typing import Any

from headwater.source.postgres.upstream import PostgresUpstream
from support.wait import wait_for


def upstream(database: Any) -> PostgresUpstream:
    server = database.server
    options = {
        "hostname": server.host,
        "port": str(server.port),
        "username": server.user,
        "database.name": database.name,
        "slot.name": f"end_{database.name}",
        "publication.name": "p",
    }
    return PostgresUpstream(options, server.password)


def test_the_end_of_the_log_moves_and_a_slot_keeps_what_nobody_read(database: Any) -> None:
    at = upstream(database)
    before = at.log_end("0/0")
    assert before.kept_bytes is None, "there is no slot yet"
    made = at.prepare(lambda who: None)
    database.execute("CREATE TABLE t (v text)")
    database.execute("INSERT INTO t SELECT repeat('x', 1000) FROM generate_series(1, 2000)")
    after = at.log_end(before.position)
    assert at.number(after.position) > at.number(before.position) and after.behind_bytes > 2_000_000
    assert at.log_end(after.position).behind_bytes < after.behind_bytes
    assert after.kept_bytes is not None and after.kept_bytes >= at.number(after.position) - at.number(made.position)
    at.remove()


def test_the_limit_is_the_one_that_the_upstream_has_set(database: Any) -> None:
    at = upstream(database)
    assert at.log_end("0/0").limit_bytes is None
    try:
        database.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '4GB'")
        database.execute("SELECT pg_reload_conf()")
        wait_for(lambda: at.log_end("0/0").limit_bytes == 4 << 30, "the setting is read again", 30.0)
    finally:
        database.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
        database.execute("SELECT pg_reload_conf()")
    wait_for(lambda: at.log_end("0/0").limit_bytes is None, "the setting is read again", 30.0)
