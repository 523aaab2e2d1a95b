"""PostgreSQL as the engine sees it: definitions, Begin and positions, assembled from this folder's parts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from headwater.model import RelationInfo
from headwater.source.base import Source
from headwater.source.options import Option
from headwater.source.postgres import begin
from headwater.source.postgres.catalog import findings, watch
from headwater.source.postgres.catalog.checks import check_connection, check_table
from headwater.source.postgres.client.ask import Session, query
from headwater.source.postgres.client.session import Endpoint, lsn_to_int
from headwater.source.postgres.options import OPTIONS
from headwater.source.postgres.reach import PostgresReach
from headwater.source.postgres.replication import publication, slot
from headwater.source.postgres.scan.snapshot import Snapshot, sees
from headwater.source.postgres.server import describe_server
from headwater.source.spans import Reach
from headwater.source.upstream import FoundColumn, FoundTable, LogEnd, Look, Prepared, Verdict


class PostgresUpstream:
    """An upstream PostgreSQL. Each call opens its own short session."""

    OPTIONS: ClassVar[tuple[Option, ...]] = OPTIONS

    def __init__(self, options: Mapping[str, str], password: str, identity: Mapping[str, str] | None = None) -> None:
        self.options = options
        self.endpoint = Endpoint.of(options, password)
        self.reach: Reach = PostgresReach(self.endpoint)
        self.default_schema = options.get("schema.name", "public")
        self._slot = options.get("slot.name", "")
        self._publication = options.get("publication.name", "")
        self._may_create = options.get("publication.create", "true") == "true"

    @staticmethod
    def default_options(connection: str) -> dict[str, str]:
        """Names for slot and publication that nobody else uses."""
        name = publication.default_name(connection)
        return {"slot.name": name, "publication.name": name}

    def check(self) -> tuple[str, ...]:
        checked = check_connection(self.endpoint, slot=self._slot)
        if not self._may_create:
            with self.endpoint.connect() as session:
                publication.ensure(session, self._publication, create=False)
        return checked.notices

    def find_table(self, schema: str, name: str, columns: Sequence[str] | None, key: Sequence[str]) -> FoundTable:
        with self.endpoint.connect() as session:
            found = publication.find(session, self._publication)
            generated = found.generated if found else session.info.server_version >= publication.GENERATED_IN_LOG
            checked = check_table(session, schema, name, columns=columns, key=key, generated_in_log=generated)
            if not self._may_create:
                publication.add_table(session, self._publication, schema, name, create=False)
        return FoundTable(
            checked.table.oid,
            schema,
            name,
            tuple(FoundColumn(c.name, c.type, c.not_null) for c in checked.columns),
            checked.key,
            checked.table.rows_estimate,
            checked.notices,
        )

    def prepare(self, on_wait: Callable[[str], None]) -> Prepared:
        with self.endpoint.connect() as session:
            publication.ensure(session, self._publication, create=self._may_create)
            server = describe_server(session)
        point = slot.ensure_slot(self.endpoint, self._slot, on_wait=lambda who: on_wait(_words(who)))
        return Prepared(point.position, point.txn, server.identity, server.life)

    def publish(self, schema: str, table: str) -> str:
        with self.endpoint.connect() as session:
            publication.add_table(session, self._publication, schema, table, create=self._may_create)
            position = _position(session)  # read first: whatever committed before it is older than the xid
            return f"{begin.begin_xid(session)} {position}"

    def blockers(self, ticket: str) -> list[str]:
        xid = int(ticket.split()[0])
        with self.endpoint.connect() as session:
            waiting = begin.older_than(session, xid)
            if not waiting and begin.needs_second_alter(session.info.server_version):
                return publication.refresh(session, self._publication, xid)
            return [str(w) for w in waiting]

    def begun(self, ticket: str) -> str:
        return ticket.split()[1]

    def withdraw(self, schema: str, table: str) -> None:
        if self._may_create:
            with self.endpoint.connect() as session:
                publication.drop_table(session, self._publication, schema, table)

    def remove(self) -> None:
        with self.endpoint.connect() as session:
            slot.drop_slot(session, self._slot)
            if self._may_create:
                publication.drop(session, self._publication)

    def position(self) -> str:
        with self.endpoint.connect() as session:
            return _position(session)

    def look(self, ids: Sequence[int]) -> dict[int, Look]:
        with self.endpoint.connect() as session:
            return watch.look(session, ids, self._publication)

    def compare(self, before: Look, after: Look, relation: RelationInfo, truncates: Sequence[int]) -> Verdict:
        with self.endpoint.connect() as session:
            return findings.compare(session, before, after, relation, truncates)

    def log_end(self, since: str) -> LogEnd:
        with self.endpoint.connect() as session:
            return slot.log_end(session, self._slot, since)

    @staticmethod
    def source(options: Mapping[str, str], password: str) -> Source:
        from headwater.source.postgres.log import PostgresSource  # only the capture needs its kernels

        return PostgresSource.of(options, password)

    @staticmethod
    def number(position: str) -> int:
        return lsn_to_int(position)

    @staticmethod
    def source_block(commit: int, txn: int) -> dict[str, Any]:
        # the commit's LSN: a change's own position orders nothing
        sequence = json.dumps([str(commit), str(commit)])
        return {"connector": "postgresql", "sequence": sequence, "txId": txn, "lsn": commit, "xmin": None}

    @staticmethod
    def sees(saw: str, txn: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return sees(saw, txn)

    @staticmethod
    def reads_position(text: str) -> bool:
        """Whether the text is a position of this kind of database's log."""
        return re.fullmatch(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}", text) is not None

    @staticmethod
    def txn_min(saw: str) -> int:
        return Snapshot.parse(saw).txn_min


def _position(session: Session) -> str:
    """Where the log ends, after our own flushed commit: whatever others committed before is before that end."""
    query(session, "SET synchronous_commit = local")  # waits for no standby, which may never answer
    query(session, "SELECT pg_logical_emit_message(true, 'headwater', 'position')")
    return str(query(session, "SELECT pg_current_wal_insert_lsn()::text")[0][0])


def _words(waiting: Sequence[begin.Waiting]) -> str:
    return "; ".join(str(w) for w in waiting)
