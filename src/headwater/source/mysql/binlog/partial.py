"""Partial updates: the rows of a PARTIAL_UPDATE_ROWS event as whole rows.

A session with binlog_row_value_options=PARTIAL_JSON writes all its updates this way. The event is that of an update,
plus options after each before-image; if they say so, JSON values of the after-image are diffs against the former.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.source.mysql.binlog.codes import JSON
from headwater.source.mysql.binlog.jsondiff import apply_diffs
from headwater.source.mysql.binlog.tablemap import TableMap
from headwater.source.mysql.client.unpack import damaged, lenenc

_TABLE_ID_BYTES, _FLAG_BYTES = 6, 2
_PARTIAL_JSON = 1  # of a row's options
_LENGTH_BYTES = 4  # before a JSON value


def whole_rows(body: bytes, table: TableMap) -> Iterator[bytes]:
    """For each row its before-image and its whole after-image, one after the other; `body` is the event's."""
    at = _TABLE_ID_BYTES + _FLAG_BYTES
    at += int.from_bytes(body[at : at + 2], "little")
    count, at = lenenc(body, at)
    at += 2 * ((count + 7) // 8)
    if count != len(table.sizes):
        raise damaged("an update has other columns than its table")
    while at < len(body):
        before, end = _values(body, at, table)
        old = body[at:end]
        options, at = lenenc(body, end)
        partial: set[int] = set()
        if options & _PARTIAL_JSON:
            documents = [i for i, c in enumerate(table.columns) if c.type_oid == JSON]
            size = (len(documents) + 7) // 8
            bits = int.from_bytes(body[at : at + size], "little")
            partial = {c for n, c in enumerate(documents) if bits >> n & 1}
            at += size
        nulls = body[at : at + (count + 7) // 8]
        after, at = _values(body, at, table)
        yield (
            old + nulls + b"".join(_whole(i, before[i], v, i in partial) for i, v in enumerate(after) if v is not None)
        )


def _whole(column: int, before: bytes | None, after: bytes, partial: bool) -> bytes:
    """A value of the after-image, with its length."""
    if not partial:
        return after
    if before is None:
        raise damaged(f"column {column} has a diff without a base")
    document = apply_diffs(before[_LENGTH_BYTES:], after[_LENGTH_BYTES:])
    return len(document).to_bytes(_LENGTH_BYTES, "little") + document


def _values(body: bytes, at: int, table: TableMap) -> tuple[list[bytes | None], int]:
    """The values of the image at `at`, each with its length before it, and where the image ends."""
    nulls = int.from_bytes(body[at : at + (len(table.sizes) + 7) // 8], "little")
    at += (len(table.sizes) + 7) // 8
    values: list[bytes | None] = []
    for i, (size, prefix) in enumerate(table.sizes):
        if nulls >> i & 1:
            values.append(None)
            continue
        end = at + prefix + (int.from_bytes(body[at : at + prefix], "little") if prefix else size)
        if end > len(body):
            raise damaged("a row ends outside its event")
        values.append(body[at:end])
        at = end
    return values, at
