"""A commit that is in the binlog but visible to nobody (hazard 1): it waits for a replica that never comes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headwater.demo.mariadb import EmbeddedMariaDB
from headwater.source.mysql.upstream import MysqlUpstream
from support.mysql import EmbeddedMySQL, MyDatabase
from support.wait import wait_for

WAIT_S = 30.0


@contextmanager
def mysql() -> Iterator[EmbeddedMySQL]:
    """A server whose commits can be made to wait."""
    with EmbeddedMySQL({"binlog_rows_query_log_events": "ON"}) as server:
        server.execute("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
        for name, value in {"timeout": "600000", "wait_for_replica_count": "1", "wait_no_replica": "ON"}.items():
            server.execute(f"SET GLOBAL rpl_semi_sync_source_{name} = {value}")
        yield server


@contextmanager
def mariadb() -> Iterator[EmbeddedMariaDB]:
    with EmbeddedMariaDB({"rpl_semi_sync_master_timeout": "600000"}) as server:
        server.execute("SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC")
        yield server


@contextmanager
def hanging_commit(database: MyDatabase, *statements: str) -> Iterator[Callable[[], None]]:
    """A commit that is in the binlog and not visible; what this gives lets it go on, and so does the block's end."""
    word = "master" if isinstance(database.server, EmbeddedMariaDB) else "source"

    def commit() -> None:
        with database.connect() as session, session.cursor() as cursor:
            for statement in statements if len(statements) == 1 else ("BEGIN", *statements, "COMMIT"):
                cursor.execute(statement)

    thread = threading.Thread(target=commit)

    def release() -> None:
        database.execute(f"SET GLOBAL rpl_semi_sync_{word}_enabled = OFF")
        thread.join(WAIT_S)
        assert not thread.is_alive()

    def hangs() -> bool:
        return any("semi-sync ACK" in (r[6] or "") for r in database.execute("SHOW FULL PROCESSLIST"))

    before = MysqlUpstream(database.options, database.server.password).position()
    database.execute(f"SET GLOBAL rpl_semi_sync_{word}_enabled = ON")
    try:
        thread.start()
        wait_for(hangs, "the commit hangs", WAIT_S)
        assert MysqlUpstream(database.options, database.server.password).position() != before
        yield release
    finally:
        release()
