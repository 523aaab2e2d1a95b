"""Parquet files next to a base: bounded memory while writing, each with its exact Delta statistics."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from types import TracebackType
from typing import IO, Self

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.backfill.statistics import Statistics, has_order
from headwater.model import DataFile
from headwater.ownership.permit import Permit
from headwater.storage import Storage

ROW_GROUP_BYTES = 64 << 20  # Arrow memory that a writer holds at once
FILE_BYTES = 256 << 20  # on disk; a larger span becomes several files


def scan_label(span_id: int) -> str:
    """How file names of a scan of this span begin."""
    return f"scan-{span_id}"


class FileWriter:
    """Writes batches of one schema as Parquet files in `folder`; `close()` returns the finished files.

        Every finished file is durable. If the block fails, all of them are removed again. Their names have the permit's
    fence and a label, so that the sweep finds them if their writer is killed.
    """

    def __init__(
        self,
        storage: Storage,
        folder: str,
        schema: pa.Schema,
        permit: Permit,
        label: str,
        *,
        key: Collection[str] = (),
        row_group_bytes: int = ROW_GROUP_BYTES,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._storage = storage
        self._folder = folder
        self._schema = schema
        self._permit = permit
        self._label = label
        self._key = key
        self._row_group_bytes = row_group_bytes
        self._file_bytes = file_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._files: list[DataFile] = []
        self._open: _OpenFile | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Takes a batch; it reaches the disk with its row group."""
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= self._row_group_bytes:
            self._flush()

    def close(self) -> tuple[DataFile, ...]:
        """Finishes the last file. Without rows there is no file."""
        self._flush()
        self._finish()
        return tuple(self._files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is None:
            return
        if self._open is not None:
            self._open.abandon()
        self._storage.remove(f"{self._folder}/{file.path}" for file in self._files)

    def _flush(self) -> None:
        if not self._waiting:
            return
        group = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting, self._waiting_bytes = [], 0
        if self._open is None:
            name = self._permit.new_file(self._label, "parquet")
            self._open = _OpenFile(self._storage, self._folder, name, self._schema, self._key)
        self._open.write(group)
        if self._open.bytes >= self._file_bytes:
            self._finish()

    def _finish(self) -> None:
        if self._open is not None:
            done, self._open = self._open, None
            self._files.append(done.close())


class _OpenFile:
    """One file while it is written."""

    def __init__(self, storage: Storage, folder: str, name: str, schema: pa.Schema, key: Collection[str]) -> None:
        self._name = name
        self._statistics = Statistics(schema, key)
        self._stack = ExitStack()
        self._sink: IO[bytes] = self._stack.enter_context(storage.create(f"{folder}/{name}"))
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="snappy",
            version="2.6",
            store_decimal_as_integer=True,  # what Spark's vectorized reader reads fastest
            # Arrow leaves NaN out of a row group's maximum, and Spark would then skip the row group for `x > 5`.
            write_statistics=[f.name for f in schema if has_order(f.type)],
        )

    @property
    def bytes(self) -> int:
        return self._sink.tell()

    def write(self, group: pa.Table) -> None:
        try:
            self._writer.write_table(group, row_group_size=max(1, group.num_rows))
        except BaseException as e:
            # Storage.create sees the failure and removes the file (and reports a full disk).
            self._stack.__exit__(type(e), e, e.__traceback__)
            raise
        self._statistics.add(group)

    def close(self) -> DataFile:
        with self._stack:
            self._writer.close()
            size = self.bytes
        return DataFile(self._name, size, self._statistics.rows, self._statistics.to_json())

    def abandon(self) -> None:
        """Removes the file."""
        cause = RuntimeError("abandoned")
        try:
            self._stack.__exit__(RuntimeError, cause, None)
        except RuntimeError as e:
            if e is not cause:
                raise
