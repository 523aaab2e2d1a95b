"""Reads a table of a real PostgreSQL twice, by a scan and from the log, through the decoders and nothing else."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import numpy as np
import psycopg
import pyarrow as pa

from headwater.decode.changes import DecodedChanges, decode_changes
from headwater.decode.column import Decoded
from headwater.decode.postgres.text import decode_text
from headwater.decode.scanned import select_expression, to_lake
from headwater.decode.values import arrow_schema, lake_type, resolve_type
from headwater.model import Column, LogColumn, Op, SchemaVersion, UpstreamType
from headwater.source.postgres.client.session import Endpoint, quote_identifier

RAW = pa.schema(
    [
        ("index", pa.int64()),
        ("op", pa.int8()),
        ("txn", pa.int64()),
        ("payload", pa.binary()),
        ("schema_id", pa.int64()),
    ]
)
_OPS = {"I": Op.INSERT, "U": Op.UPDATE, "D": Op.DELETE, "T": Op.TRUNCATE}


def decode(texts: list[bytes | None], upstream: UpstreamType, lake: str | None = None) -> Decoded:
    """Texts, laid out with gaps between them, through the column decoder."""
    buffer = bytearray(b"?")
    starts, lengths = [], []
    for t in texts:
        starts.append(len(buffer))
        lengths.append(-1 if t is None else len(t))
        buffer += (t or b"") + b"?"
    return decode_text(
        np.frombuffer(bytes(buffer), np.uint8),
        np.array(starts, np.int64),
        np.array(lengths, np.int64),
        upstream,
        lake or lake_type(upstream),
    )


def endpoint(database: Any) -> Endpoint:
    server = database.server
    return Endpoint(server.host, server.port, server.user, database.name, server.password)


def columns_of(database: Any, table: str, declared: dict[str, str] | None = None) -> tuple[Column, ...]:
    """The table's columns as a relation has them: default lake types unless declared otherwise."""
    query = f"""
        SELECT a.attname, a.attnum, a.atttypid::int8, a.atttypmod, a.attndims,
               CASE WHEN e.typtype = 'e' THEN '_enum' WHEN e.typtype = 'c' THEN '_composite'
                    WHEN t.typtype = 'e' THEN 'enum' WHEN t.typtype = 'c' THEN 'composite'
                    WHEN t.typtype IN ('r', 'm') THEN 'range'
                    WHEN t.typtype = 'd' THEN b.typname ELSE t.typname END,
               CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type e ON e.oid = t.typelem
             AND t.typcategory = 'A' LEFT JOIN pg_type b ON b.oid = t.typbasetype
        WHERE a.attrelid = 'public.{table}'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
    with psycopg.connect(**endpoint(database).parameters(), autocommit=True) as connection:
        rows = connection.execute(query).fetchall()
    columns = []
    for name, place, oid, modifier, dimensions, type_name, base_modifier in rows:
        plain = UpstreamType(type_name, oid, modifier, dimensions=dimensions, number=place)
        size = UpstreamType(type_name, oid, base_modifier, dimensions=dimensions)
        lake = resolve_type(size, (declared or {})[name]) if name in (declared or {}) else lake_type(size)
        columns.append(Column(name, lake, plain))
    return tuple(columns)


def scan(
    database: Any, table: str, columns: tuple[Column, ...], order: str, key: tuple[str, ...] = ()
) -> tuple[pa.Table, dict[str, int]]:
    """The table as a scan reads it: ADBC, native where the type table says so."""
    wanted = ", ".join(select_expression(c).format(quote_identifier(c.name)) for c in columns)
    unrepresentable: dict[str, int] = {}
    batches = []
    with adbc.connect(endpoint(database).uri()) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {wanted} FROM public.{table} ORDER BY {order}")
        for batch in cursor.fetch_record_batch():
            lake, bad = to_lake(batch, columns, key)
            for name, count in bad.items():
                unrepresentable[name] = unrepresentable.get(name, 0) + count
            batches.append(lake)
    return pa.Table.from_batches(batches, arrow_schema(columns)), unrepresentable


@dataclass
class Log:
    """A slot on a database; `read` returns what was committed since the last read."""

    database: Any
    table: str
    publication: str = "p"
    slot: str = "s"
    options: str = ""

    def __post_init__(self) -> None:
        self.slot = f"s_{self.database.name}"
        self.schemas: dict[int, SchemaVersion] = {}
        self.commits: dict[int, int] = {}
        self.index = 0
        self._connection = psycopg.connect(**endpoint(self.database).parameters(), autocommit=True)
        self._connection.execute(f"CREATE PUBLICATION {self.publication} FOR TABLE public.{self.table} {self.options}")
        self._connection.execute(f"SELECT pg_create_logical_replication_slot('{self.slot}', 'pgoutput')")

    def close(self) -> None:
        self._connection.close()

    def read(self) -> pa.Table:
        """Raw changes, as in a segment."""
        messages = self._connection.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
            " 'publication_names', %s)",
            (self.slot, self.publication),
        ).fetchall()
        rows: list[tuple[int, int, int, bytes, int]] = []
        txn = 0
        for (message,) in messages:
            kind = chr(message[0])
            if kind == "B":
                commit, _, txn = struct.unpack_from(">qqI", message, 1)
                self.commits[txn] = commit
            elif kind == "R":
                self._relation(message)
            elif kind in _OPS:
                self.index += 1
                rows.append((self.index, _OPS[kind], txn, message, max(self.schemas)))
        arrays = [pa.array(c, type=f.type) for c, f in zip(zip(*rows, strict=True), RAW, strict=True)] if rows else None
        return pa.Table.from_arrays(arrays, schema=RAW) if arrays else RAW.empty_table()

    def changes(self, columns: tuple[Column, ...], key: tuple[str, ...] = ("id",)) -> DecodedChanges:
        return decode_changes(self.read(), self.schemas, columns, key)

    def _relation(self, message: bytes) -> None:
        (oid,) = struct.unpack_from(">I", message, 1)
        schema, rest = message[5:].split(b"\0", 1)
        table, rest = rest.split(b"\0", 1)
        identity, count = struct.unpack_from(">cH", rest)
        at, columns = 3, []
        for _ in range(count):
            end = rest.index(b"\0", at + 1)
            type_oid, modifier = struct.unpack_from(">Ii", rest, end + 1)
            columns.append(LogColumn(rest[at + 1 : end].decode(), type_oid, modifier, bool(rest[at] & 1)))
            at = end + 9
        number = len(self.schemas) + 1
        self.schemas[number] = SchemaVersion(
            number, oid, self.index + 1, schema.decode(), table.decode(), identity.decode(), tuple(columns)
        )
