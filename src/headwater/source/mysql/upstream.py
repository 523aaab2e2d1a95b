"""MySQL and MariaDB as the engine sees them, assembled from this folder's parts: definitions, Begin, positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from headwater.errors import DataError
from headwater.model import RelationInfo
from headwater.source.base import Source
from headwater.source.mysql import begin
from headwater.source.mysql.binlog.position import OFFSET_BITS, Position
from headwater.source.mysql.catalog import watch
from headwater.source.mysql.catalog.checks import check_connection
from headwater.source.mysql.catalog.find import find_table
from headwater.source.mysql.client.session import Endpoint
from headwater.source.mysql.options import OPTIONS, default_server_id
from headwater.source.mysql.reach import MysqlReach
from headwater.source.mysql.scan.low import Low, binlog_end
from headwater.source.mysql.server import describe_server, log_files
from headwater.source.options import Option
from headwater.source.spans import Reach
from headwater.source.upstream import FoundTable, LogEnd, Look, Prepared, Verdict


class MysqlUpstream:
    """An upstream MySQL or MariaDB. Each call opens its own short session.

    The identity's `shift` is what failovers have added to the numbers of binlog files.
    """

    OPTIONS: ClassVar[tuple[Option, ...]] = OPTIONS

    def __init__(self, options: Mapping[str, str], password: str, identity: Mapping[str, str] | None = None) -> None:
        self.options = options
        self.default_schema = options["database.name"]
        self.endpoint = Endpoint.of(options, password)
        self._shift = int((identity or {}).get("shift", "0"))
        self.reach: Reach = MysqlReach(self.endpoint, self._shift)

    @staticmethod
    def default_options(connection: str) -> dict[str, str]:
        """A number for the log's reader that no replica uses."""
        return {"server.id": default_server_id(connection)}

    @staticmethod
    def source(options: Mapping[str, str], password: str) -> Source:
        from headwater.source.mysql.log import MysqlSource  # only the capture needs its kernels

        return MysqlSource.of(options, password)

    def check(self) -> tuple[str, ...]:
        return check_connection(self.endpoint, self.options).notices

    def find_table(self, schema: str, name: str, columns: Sequence[str] | None, key: Sequence[str]) -> FoundTable:
        with self.endpoint.connect() as session:
            return find_table(session, schema, name, columns, key, self.options)

    def prepare(self, on_wait: Callable[[str], None]) -> Prepared:
        with self.endpoint.connect() as session:
            server = describe_server(session)
            place = begin.start(self.endpoint, session, self._shift, on_wait)
        return Prepared(str(place), place.number, server.identity, server.life)

    def publish(self, schema: str, table: str) -> str:
        with self.endpoint.connect() as session:
            return begin.ticket(self.endpoint, session, self._shift)

    def blockers(self, ticket: str) -> list[str]:
        with self.endpoint.connect() as session:
            return begin.blockers(session, ticket, self._shift)

    def begun(self, ticket: str) -> str:
        return str(Low.of_ticket(ticket).position)

    def withdraw(self, schema: str, table: str) -> None:
        """Does nothing: the binlog holds every table, and the capture drops what nobody follows."""

    def remove(self) -> None:
        """Does nothing: the server keeps nothing for us."""

    def position(self) -> str:
        with self.endpoint.connect() as session:
            return str(binlog_end(session, self._shift))

    def look(self, ids: Sequence[int]) -> dict[int, Look]:
        with self.endpoint.connect() as session:
            shapes = watch.fingerprints(session, self.endpoint.database, ids)
        return {id: Look(shape) for id, shape in shapes.items()}

    def compare(self, before: Look, after: Look, relation: RelationInfo, truncates: Sequence[int]) -> Verdict:
        return Verdict(watch.verdict(before.shape, after.shape, relation.name, relation.key))

    def log_end(self, since: str) -> LogEnd:
        start = Position.parse(since)
        with self.endpoint.connect() as session:
            end = binlog_end(session, start.shift)
            files = [(Position.of(name, size, start.shift), size) for name, size in log_files(session)]
        behind = end.offset - start.offset
        if end.file != start.file:
            between = sum(size for place, size in files if start.file <= place.file < end.file)
            behind = between - start.offset + end.offset
        return LogEnd(str(end), max(0, behind))

    @staticmethod
    def number(position: str) -> int:
        return Position.parse(position).number

    @staticmethod
    def reads_position(text: str) -> bool:
        """Whether the text is a binlog position."""
        try:
            Position.parse(text)
        except DataError:
            return False
        return True

    @staticmethod
    def source_block(commit: int, txn: int) -> dict[str, Any]:
        # where the transaction begins, as in Debezium; what the changelog does not store is NULL
        return {
            "connector": "mysql",
            "server_id": None,
            "gtid": None,
            "file": f"{txn >> OFFSET_BITS:06d}",
            "pos": txn & ((1 << OFFSET_BITS) - 1),
            "row": None,
            "thread": None,
            "query": None,
        }

    @staticmethod
    def sees(saw: str, txn: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        seen: npt.NDArray[np.bool_] = txn < Position.parse(saw).number
        return seen

    @staticmethod
    def txn_min(saw: str) -> int:
        return Position.parse(saw).number
