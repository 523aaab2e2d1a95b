"""The tail: the newest changes of a relation, decoded in this process and kept, so that each is decoded once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.changelog.reader import read_table
from headwater.decode.changes import Changes, changes_schema, decode_changes
from headwater.meta import changes as changes_of
from headwater.meta import relations
from headwater.meta.store import Meta
from headwater.model import RelationInfo
from headwater.settings.table import DEFAULTS, Settings
from headwater.source.names import INDEX
from headwater.storage import Storage

MOST_CHUNKS = 64

Report = Callable[[RelationInfo, Changes, int, int], None]


@dataclass
class _Kept:
    """Decoded changes of one relation in (after, upto]."""

    after: int
    upto: int
    table: pa.Table
    lock: threading.Lock = field(default_factory=threading.Lock)


class Tails:
    """Decoded changes by relation and index range; any number of threads may ask.

    `report(relation, changes, before, upto)` is told what is worth a notice in changes that nobody has counted yet:
    those after the relation's counted index, which was `before`.
    """

    def __init__(
        self, storage: Storage, meta: Meta, report: Report | None = None, settings: Settings = DEFAULTS
    ) -> None:
        self._storage = storage
        self._meta = meta
        self._report = report
        self._settings = settings
        self._kept: dict[int, _Kept] = {}  # in order of use
        self._lock = threading.Lock()

    def changes(self, relation: RelationInfo, after: int, upto: int) -> pa.Table:
        """The relation's decoded changes in (after, upto], in index order."""
        kept = self._of(relation, after)
        with kept.lock:
            if after < kept.after:  # a reader of an old epoch must not push out what new ones need
                return self._decode(relation, after, upto)
            if after > kept.upto:
                kept.after = kept.upto = after
                kept.table = kept.table.slice(0, 0)
            if upto > kept.upto:
                new = self._decode(relation, kept.upto, upto)
                if new.num_rows:
                    kept.table = _compact(pa.concat_tables([kept.table, new]))
                kept.upto = upto
            answer = _between(kept.table, after, upto)
            self._trim(kept, after)
        self._shrink(relation.id)
        return answer

    def forget(self, relation_id: int) -> None:
        """Gives the relation's memory back."""
        with self._lock:
            self._kept.pop(relation_id, None)

    def _of(self, relation: RelationInfo, after: int) -> _Kept:
        with self._lock:
            kept = self._kept.pop(relation.id, None)
            if kept is None:
                kept = _Kept(after, after, changes_schema(relation.columns, relation.key).empty_table())
            self._kept[relation.id] = kept  # last in order: most recently used
            return kept

    def _decode(self, relation: RelationInfo, after: int, upto: int) -> pa.Table:
        with self._meta.read() as c:
            pieces = changes_of.pieces(c, relation, after, upto)
            versions = changes_of.schemas(c, relation) if pieces else []
            counted = relations.counted_index(c, relation.id)
        tables = [changes_schema(relation.columns, relation.key).empty_table()]
        # what was counted by an earlier process, or for another reader, is decoded apart
        for begin, end in [(after, counted), (counted, upto)] if after < counted < upto else [(after, upto)]:
            inside = [(path, p) for path, p in pieces if p.last_index > begin and p.first_index <= end]
            if not inside:
                continue
            raw = read_table(self._storage, inside, begin, end)
            decoded = decode_changes(raw, {v.id: v for v in versions}, relation.columns, relation.key)
            if self._report is not None and end > counted and (decoded.unrepresentable or decoded.notices):
                self._report(relation, decoded, counted, end)
            tables.append(decoded.table)
        return pa.concat_tables(tables)

    def _trim(self, kept: _Kept, after: int) -> None:
        """Drops what lies before the place that readers start from now, once it is worth it."""
        if kept.table.num_rows and kept.after < after:
            later = _between(kept.table, after, kept.upto)
            if kept.table.num_rows - later.num_rows > self._settings.tail_changes:
                kept.table, kept.after = later.combine_chunks(), after

    def _shrink(self, used: int) -> None:
        """Forgets the relations that were asked for longest ago while all together need too much memory."""
        with self._lock:
            total = sum(k.table.nbytes for k in self._kept.values())
            for id in list(self._kept):
                if total <= self._settings.tail_memory_bytes:
                    break
                if id != used:
                    total -= self._kept.pop(id).table.nbytes


def _compact(table: pa.Table) -> pa.Table:
    """The same table in few chunks; every read adds one."""
    return table.combine_chunks() if table[INDEX].num_chunks > MOST_CHUNKS else table


def _between(table: pa.Table, after: int, upto: int) -> pa.Table:
    """The slice of an index-ordered table with after < index <= upto."""
    if not table.num_rows:
        return table
    index = table[INDEX].to_numpy()
    start, end = index.searchsorted([after, upto], side="right")
    return table.slice(int(start), int(end - start))
