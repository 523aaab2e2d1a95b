"""Captures of PostgreSQL: the upstream, writers, and an independent reader of the same log."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from typing import Any, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict

from headwater.source.postgres.client.session import lsn_to_int
from support.captured import Captured, Definition, WriterThreads, captured

__all__ = ["PUBLICATION", "Captured", "Upstream", "Writers", "captured"]

PUBLICATION = "headwater_test"
BULK = "INSERT INTO item SELECT g, g, 'bulk' FROM generate_series(%s::int, %s::int) g ON CONFLICT DO NOTHING"


@dataclass
class Upstream:
    """A database with a publication, our slot, and a second slot that nobody reads until the end: the oracle."""

    dsn: str
    slot: str
    oracle_slot: str

    @classmethod
    def prepare(cls, dsn: str, tables: str = "ALL TABLES") -> Self:
        name = conninfo_to_dict(dsn)["dbname"]
        self = cls(dsn, f"hw_{name}", f"oracle_{name}")
        self.execute(f"CREATE PUBLICATION {PUBLICATION} FOR {tables}")
        for slot in (self.slot, self.oracle_slot):
            self.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        return self

    def definition(self) -> Definition:
        at = conninfo_to_dict(self.dsn)
        ((txn,),) = self.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        options = {
            "hostname": str(at["host"]),
            "port": str(at["port"]),
            "username": str(at["user"]),
            "database.name": str(at["dbname"]),
            "slot.name": self.slot,
            "publication.name": PUBLICATION,
        }
        return Definition("postgres-cdc", options, str(at["password"]), self.confirmed(), txn)

    def confirmed(self) -> str:
        """What the server believes to be durable here; empty without a slot."""
        slot = f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{self.slot}'"
        return str(next(iter(self.execute(slot)), ("",))[0])

    def goal(self) -> int:
        self.execute("SELECT pg_logical_emit_message(true, 'test', '')")
        # the insert position, not the write position: with synchronous_commit = off the last commits are not written
        # yet
        return lsn_to_int(str(self.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0]))

    def number(self, position: str) -> int:
        return lsn_to_int(position)

    def short_txn(self, txn: int) -> int:
        return txn & 0xFFFFFFFF  # all that pgoutput has

    def connect(self) -> Any:
        return psycopg.connect(self.dsn, autocommit=True)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with self.connect() as c:
            cursor = c.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def position(self) -> str:
        """The end of the upstream's log, once all of it is flushed."""
        return str(self.execute("SELECT pg_current_wal_flush_lsn()::text")[0][0])

    def oracle(self) -> list[tuple[int, list[bytes]]]:
        """(32-bit xid, row messages) of every transaction since the start, in commit order, according to the server."""
        rows = self.execute(
            f"SELECT data FROM pg_logical_slot_peek_binary_changes('{self.oracle_slot}', NULL, NULL, "
            f"'proto_version', '1', 'publication_names', '{PUBLICATION}')"
        )
        return transactions_of(bytes(r[0]) for r in rows)


def transactions_of(messages: Any) -> list[tuple[int, list[bytes]]]:
    found: list[tuple[int, list[bytes]]] = []
    for m in messages:
        if m[:1] == b"B":
            found.append((int.from_bytes(m[17:21], "big"), []))
        elif m[:1] in b"IUDT":
            copies = int.from_bytes(m[1:5], "big") if m[:1] == b"T" else 1
            found[-1][1].extend([m] * copies)
    return [t for t in found if t[1]]


class Writers(WriterThreads):
    """Writers of `item` and `other`."""

    def __init__(self, dsn: str, seed: int, threads: int = 3) -> None:
        super().__init__(seed, threads)
        self._dsn = dsn

    @staticmethod
    def prepare(upstream: Upstream) -> None:
        upstream.execute("CREATE TABLE item (id int PRIMARY KEY, n int, t text)")
        upstream.execute("CREATE TABLE other (id int, k text, v numeric, PRIMARY KEY (id, k))")
        upstream.execute("ALTER TABLE other REPLICA IDENTITY FULL")
        upstream.execute("ALTER TABLE item ALTER t SET STORAGE EXTERNAL")

    def _run(self, seed: int) -> None:
        r = random.Random(seed)
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._dsn) as c:
                    while not self._stop.is_set():
                        self._transaction(c, r)
            except psycopg.OperationalError:
                self._stop.wait(0.1)  # the server is being crashed
            except BaseException as e:
                self.failures.append(e)
                return

    def _transaction(self, c: psycopg.Connection[Any], r: random.Random) -> None:
        self._stop.wait(0.005)  # the machine's other half is for the reader
        try:
            for _ in range(r.choice((1, 1, 2, 5, 30))):
                with c.transaction() if r.random() < 0.2 else contextlib.nullcontext():  # a savepoint
                    c.execute(*self._statement(r))
            if r.random() < 0.1:
                c.rollback()
            else:
                c.commit()
                self.commits += 1
        except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
            c.rollback()

    @staticmethod
    def _statement(r: random.Random) -> tuple[str, tuple[Any, ...]]:
        id, n = r.randrange(500), r.randrange(10**6)
        big = "x" * r.choice((1, 10, 3000))
        return r.choice(
            (
                ("INSERT INTO item VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET n = excluded.n", (id, n, big)),
                ("UPDATE item SET n = %s WHERE id BETWEEN %s AND %s", (n, id, id + 5)),
                ("UPDATE item SET id = id + 1000 WHERE id = %s", (id,)),
                ("DELETE FROM item WHERE id = %s OR id = %s", (id, id + 1000)),
                ("INSERT INTO other VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", (id % 50, big[:20], n)),
                ("UPDATE other SET v = %s WHERE id = %s", (n, id % 50)),
                ("DELETE FROM other WHERE id = %s", (id % 50,)),
                (BULK, (2000 + n, 2200 + n)),
                ("TRUNCATE item, other" if r.random() < 0.02 else "SELECT 1", ()),
            )
        )
