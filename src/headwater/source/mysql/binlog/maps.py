"""The tables of a flow as the walk needs them: flat arrays, and the ordinal in them of each table number in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from headwater.source.base import Bytes, Longs
from headwater.source.mysql.binlog import state as k
from headwater.source.mysql.binlog import tablemap
from headwater.source.mysql.binlog.tablemap import TableMap

KEYS_FIRST = 1024
KEYS_MOST = 1 << 16  # table numbers grow with every DDL; between transactions they can all be discarded


class Maps:
    """Table descriptions met in a flow, by content; the arrays only grow, and the kernels read them.

    `active` says which description each table number has now.
    """

    def __init__(self, mariadb: bool) -> None:
        self._mariadb = mariadb
        self.tables: list[TableMap] = []
        self.active: dict[int, int] = {}
        self.info: Longs = np.zeros((16, k.SLOT_LENGTH), np.int64)
        self.columns = np.zeros((256, 2), np.int32)
        self.steps = np.zeros((256, 2), np.int32)
        self.contents: Bytes = np.zeros(4096, np.uint8)
        self.keys: Longs = np.full(KEYS_FIRST, -1, np.int64)
        self.ordinals: Longs = np.zeros(KEYS_FIRST, np.int64)
        self._by_content: dict[bytes, int] = {}
        self._column_count = self._step_count = self._content_size = 0
        self._followed: frozenset[int] = frozenset()

    def ordinal(self, content: bytes) -> int:
        """The ordinal of a table map's content, which is parsed if it is new."""
        if content not in self._by_content:
            self._by_content[content] = self._add(tablemap.parse(content, self._mariadb), content)
        return self._by_content[content]

    def use(self, table_id: int, ordinal: int) -> None:
        """From here on, rows with this table number are written as the ordinal describes."""
        if 2 * len(self.active) >= len(self.keys):
            self._rehash(2 * len(self.keys))
        self.active[table_id] = ordinal
        self._enter(table_id, ordinal)

    def restore(self, active: Mapping[int, int], described: Iterable[int]) -> None:
        """Restores the state of an earlier batch."""
        self.active = dict(active)
        self._rehash(max(KEYS_FIRST, 1 << (2 * len(self.active)).bit_length()))
        self.info[:, k.DESCRIBED] = 0
        for ordinal in described:
            self.info[ordinal, k.DESCRIBED] = 1

    def forget(self) -> None:
        """Discards table numbers, which are not needed between transactions; called occasionally."""
        if len(self.active) > KEYS_MOST:
            self.active = {}
            self._rehash(KEYS_FIRST)

    def follow(self, ids: frozenset[int]) -> None:
        """Sets whose rows are wanted."""
        if ids != self._followed:
            self._followed = ids
            for ordinal, table in enumerate(self.tables):
                self.info[ordinal, k.FOLLOWED] = table.id in ids

    def describe(self, table: int, ordinal: int | None) -> None:
        """Rows of the table now have the description of `ordinal`, or (None) none yet."""
        self.info[self.info[:, k.TABLE] == table, k.DESCRIBED] = 0
        if ordinal is not None:
            self.info[ordinal, k.DESCRIBED] = 1

    def _add(self, table: TableMap, content: bytes) -> int:
        ordinal, steps = len(self.tables), _steps(table.sizes)
        self.info = _with_room(self.info, ordinal + 1)
        self.columns = _with_room(self.columns, self._column_count + len(table.sizes))
        self.steps = _with_room(self.steps, self._step_count + len(steps))
        self.contents = _with_room(self.contents, self._content_size + len(content))
        self.info[ordinal] = (
            *(self._content_size, len(content), self._column_count, len(table.sizes), self._step_count, len(steps)),
            *(table.id, table.id in self._followed, 0),
        )
        self.columns[self._column_count : self._column_count + len(table.sizes)] = table.sizes or np.empty((0, 2))
        self.steps[self._step_count : self._step_count + len(steps)] = steps or np.empty((0, 2))
        self.contents[self._content_size : self._content_size + len(content)] = np.frombuffer(content, np.uint8)
        self._column_count += len(table.sizes)
        self._step_count += len(steps)
        self._content_size += len(content)
        self.tables.append(table)
        return ordinal

    def _rehash(self, size: int) -> None:
        self.keys = np.full(size, -1, np.int64)
        self.ordinals = np.zeros(size, np.int64)
        for table_id, ordinal in self.active.items():
            self._enter(table_id, ordinal)

    def _enter(self, table_id: int, ordinal: int) -> None:
        mask = len(self.keys) - 1
        at = (table_id ^ (table_id >> 9)) & mask
        while self.keys[at] >= 0 and self.keys[at] != table_id:
            at = (at + 1) & mask
        self.keys[at] = table_id
        self.ordinals[at] = ordinal


def _with_room(array: Any, size: int) -> Any:
    """The array, or a longer copy of it."""
    while len(array) < size:
        array = np.concatenate([array, np.zeros_like(array)])
    return array


def _steps(sizes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """A row without NULLs: steps of fixed bytes, then (unless 0) length bytes and the bytes they count."""
    steps, fixed = [], 0
    for size, prefix in sizes:
        fixed += size
        if prefix:
            steps.append((fixed, prefix))
            fixed = 0
    return [*steps, (fixed, 0)]
