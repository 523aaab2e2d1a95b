"""A changelog that is written without an upstream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.changelog import reader
from headwater.changelog.writer import SegmentWriter
from headwater.engine.home import Home
from headwater.meta import connections, segments
from headwater.ownership.lease import Lease
from headwater.ownership.names import Name
from headwater.source.postgres.frame import PostgresFraming
from support.messages import inbox
from support.owned import acquired


class Log:
    """A home with one connection, written without an upstream."""

    def __init__(self, path: Path) -> None:
        self.home = Home.open(path)
        with self.home.meta.write() as c:
            self.id = connections.add(
                c,
                name="pg",
                type="postgres-cdc",
                options={},
                secret=None,
                identity={},
                position="0/64",
                txn=100,
                server_life="",
            )
            self.lease: Lease = acquired(c, Name.connection(self.id))
        self.writer = self.flow()

    def flow(self) -> SegmentWriter:
        """A writer as at the beginning of a flow."""
        return SegmentWriter(self.home.meta, self.home.storage, self.lease, self.info(), PostgresFraming())

    def info(self) -> Any:
        with self.home.meta.read() as c:
            return connections.get(c, self.id)

    def write(self, *messages: bytes) -> None:
        self.writer.write(*inbox(list(messages)).arrays())

    def read(self, table: int, after: int = 0, upto: int = 10**9) -> list[dict[str, Any]]:
        with self.home.meta.read() as c:
            pieces = segments.of_table(c, self.id, table, after, upto)
        found: list[dict[str, Any]] = reader.read_table(self.home.storage, pieces, after, upto).to_pylist()
        return found

    def names(self, table: int) -> list[tuple[int, tuple[str, ...]]]:
        """(index, column names under which it was written) of each change of a table."""
        with self.home.meta.read() as c:
            known = {s.id: tuple(x.name for x in s.columns) for s in segments.schemas(c, self.id)}
        return [(r["index"], known[r["schema_id"]]) for r in self.read(table)]
