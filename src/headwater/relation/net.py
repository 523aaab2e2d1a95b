"""Netting: from changes in index order to the last state per key, without the base.

A change of a key has two halves, the end of the old key and a row under the new one; each half is judged separately
(`Judgement`), but values follow the row. A column that a change lacks is taken from the row's last change that has it;
if none has, from the base row at the key where the row's chain begins. An already netted overlay may precede the
changes: net([net([a]), b]) = net([a, b]).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.kernel import kernel
from headwater.model import Column, Op
from headwater.relation.schema import GONE, UPSERT, key_struct, overlay_schema
from headwater.source.names import FROM, INDEX, MISSING, NETTED, OLD, OP, TXN

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Which halves of each change count under the backfill rule; rows as in the pieces passed to `net`.

    `counts` is about the row's own key, `counts_old` about the old key of a key change. `unseen_old`: no scan whose
    rows may be in the base has seen the old key end, so the base row of the old key is still the one that was renamed.
    `covered`: the own key is in a covered span.
    """

    counts: Flags
    counts_old: Flags
    unseen_old: Flags
    covered: Flags


def net(
    pieces: Sequence[pa.Table], columns: Sequence[Column], key: Sequence[str], judgement: Judgement | None = None
) -> pa.Table:
    """The overlay of the pieces: one row per key that a counted change touched, in index order.

    Pieces are tables of decoded changes or netted overlays, in index order. TRUNCATE ends every chain, but rows before
    it stay: the caller knows which spans it empties. A row whose missing columns cannot be found anywhere has a
    `__from` of NULL fields (see `holes`).
    """
    filled = [p for p in pieces if p.num_rows]
    if not filled:
        return overlay_schema(columns, key).empty_table()
    rows = pa.concat_tables([_uniform(p, columns, key) for p in filled]).combine_chunks()
    judged = judgement or _all_count(rows.num_rows)
    ids = _identify(rows, key)
    last, source, base_key = _follow(
        _writable(rows[OP], np.int8),
        _writable(rows[NETTED], np.bool_),
        ids.own,
        ids.old,
        ids.base_key,
        judged.counts,
        judged.counts_old,
        judged.unseen_old,
        judged.covered,
        ids.count,
    )
    return _gather(rows, columns, key, ids, np.sort(last[last >= 0]), source, base_key)


def holes(overlay: pa.Table) -> pa.Table:
    """The rows of an overlay whose missing columns cannot be found anywhere: their keys must be scanned again."""
    if not overlay.num_rows or overlay[FROM].null_count == overlay.num_rows:
        return overlay.slice(0, 0)
    first = pc.struct_field(overlay[FROM], [0])
    return overlay.filter(pc.and_(pc.is_valid(overlay[FROM]), pc.is_null(first)))


def keys_named(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Every key that is the own or the old key of a change; a key may be there several times."""
    olds = _only(changes[OLD]).drop_null()
    fields = [
        pa.concat_arrays([_only(changes[k]), _only(pc.struct_field(olds, [i])).cast(changes[k].type)])
        for i, k in enumerate(key)
    ]
    return pa.table(fields, names=list(key))


def named_by(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> Flags:
    """For each row, whether any of the others has its key."""
    sides = [[_only(rows[k]), _only(others[k]).cast(rows[k].type)] for k in key]
    numbers = _together([pa.concat_arrays(side) for side in sides])
    return np.isin(numbers[: rows.num_rows], numbers[rows.num_rows :])


def key_numbers(rows: pa.Table, key: Sequence[str]) -> Ints:
    """A number for each row's key: equal keys have equal numbers, and NULL is a value."""
    return _together([_only(rows[k]) for k in key])


def _uniform(piece: pa.Table, columns: Sequence[Column], key: Sequence[str]) -> pa.Table:
    """The piece with the columns of both kinds of pieces, in the same order."""
    netted = FROM in piece.column_names
    n = piece.num_rows
    struct = key_struct(columns, key)
    target = overlay_schema(columns, key)
    arrays = [piece[f.name].cast(f.type) for f in target if f.name != FROM]
    names = [f.name for f in target if f.name != FROM]
    nothing = pa.nulls(n, struct)
    arrays += [piece[FROM] if netted else nothing, nothing if netted else piece[OLD], pa.repeat(pa.scalar(netted), n)]
    return pa.table(arrays, names=[*names, FROM, OLD, NETTED])


def _all_count(n: int) -> Judgement:
    yes = np.ones(n, dtype=np.bool_)
    return Judgement(yes, yes, yes, yes)


@dataclass(frozen=True, slots=True)
class _Ids:
    """Keys as small numbers: each row's own, old and `__from` key (-1: none), and where to read each key."""

    own: Ints
    old: Ints
    base_key: Ints
    count: int
    place: Ints  # key number → a position in `keys`
    keys: list[pa.Array]  # per key column: own keys, old keys, from keys, one after the other


def _identify(rows: pa.Table, key: Sequence[str]) -> _Ids:
    n = rows.num_rows
    old, base_key = _only(rows[OLD]), _only(rows[FROM])
    has_old, has_base_key = (a.null_count < n for a in (old, base_key))
    parts = [old] * has_old + [base_key] * has_base_key
    keys = [
        pa.concat_arrays([_only(rows[k]), *(_only(pc.struct_field(p, [i])) for p in parts)]) for i, k in enumerate(key)
    ]
    numbers = _together(keys)
    count = int(numbers.max()) + 1
    place = np.zeros(count, dtype=np.int64)
    place[numbers] = np.arange(len(numbers))
    none = np.full(n, -1, dtype=np.int64)
    old_ids = np.where(_valid(old), numbers[n : 2 * n], -1) if has_old else none
    base_key_ids = np.where(_valid(base_key), numbers[-n:], -1) if has_base_key else none
    return _Ids(numbers[:n].copy(), old_ids, base_key_ids, count, place, keys)


def _together(keys: Sequence[pa.Array]) -> Ints:
    """Maps equal keys of one or more columns to equal numbers."""
    numbers = _numbers(keys[0])
    for more in keys[1:]:
        other = _numbers(more)
        numbers = _numbers(pa.array(numbers * (int(other.max(initial=0)) + 1) + other))
    return numbers


def _numbers(values: pa.Array) -> Ints:
    """Maps equal values to equal numbers below the count of distinct values; NULL is a value."""
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0, values.type))  # -0.0 and 0.0 are one key
    if pa.types.is_nested(values.type):  # arrays as keys: rare, and Arrow cannot hash them
        values = pa.array([repr(v) for v in values.to_pylist()])
    indices = values.dictionary_encode(null_encoding="encode").indices
    return np.asarray(indices.to_numpy(zero_copy_only=False)).astype(np.int64)


@kernel(
    numba.types.Tuple((numba.int64[::1], numba.int64[::1], numba.int64[::1]))(
        numba.int8[::1],
        numba.boolean[::1],
        numba.int64[::1],
        numba.int64[::1],
        numba.int64[::1],
        numba.boolean[::1],
        numba.boolean[::1],
        numba.boolean[::1],
        numba.boolean[::1],
        numba.int64,
    )
)
def _follow(
    op: Any, netted: Any, own: Any, old: Any, from_key: Any,
    counts: Any, counts_old: Any, unseen_old: Any, covered: Any, key_count: int,
) -> tuple[Ints, Ints, Ints]:  # fmt: skip
    """For each key its last counted half; for each row the row it continues and the base key of its unknown values.

    A half is 2 × row (the row exists under its own key) or 2 × row + 1 (a key ends); -1 is none.
    """
    n = len(op)
    last = np.full(key_count, -1, np.int64)  # counted halves only: what the overlay says of a key
    state = np.full(key_count, -1, np.int64)  # every half: what the log says of a key
    source = np.full(n, -1, np.int64)
    base_key = np.full(n, -1, np.int64)
    line = np.int64(0)  # halves below it precede a TRUNCATE
    for i in range(n):
        if op[i] == 4:
            line = np.int64(2 * i + 2)
            continue
        k = own[i]
        if op[i] == 3:
            state[k] = 2 * i + 1
            if counts[i]:
                last[k] = 2 * i + 1
            continue
        if netted[i]:
            base_key[i] = from_key[i] if from_key[i] >= 0 else k
        elif op[i] == 2:
            moved = old[i] >= 0 and old[i] != k
            before = old[i] if moved else k
            s = state[before]
            if s == -1 and line == 0:
                base_key[i] = before
            elif s >= line and s % 2 == 0:
                source[i] = s // 2
                base_key[i] = base_key[s // 2]
            if moved:
                # the base row of the old key may already be a new one: a scan has seen the old key end
                if base_key[i] == before and not unseen_old[i]:
                    base_key[i] = -1
                state[before] = 2 * i + 1
                if counts_old[i]:
                    last[before] = 2 * i + 1
        if base_key[i] < 0 and not counts[i] and covered[i]:
            base_key[i] = k  # the base has exactly this state
        state[k] = 2 * i
        if counts[i]:
            last[k] = 2 * i
    return last, source, base_key


@kernel(numba.int64[::1](numba.boolean[::1], numba.int64[::1]))
def _value_rows(missing: Any, source: Ints) -> Ints:
    """For each row, the row that carries a column's value; -1 where only the base may have it."""
    found = np.empty(len(missing), np.int64)
    for i in range(len(missing)):
        if not missing[i]:
            found[i] = i
        elif source[i] >= 0:
            found[i] = found[source[i]]
        else:
            found[i] = -1
    return found


def _gather(
    rows: pa.Table, columns: Sequence[Column], key: Sequence[str], ids: _Ids, halves: Ints, source: Ints, base_key: Ints
) -> pa.Table:
    row = halves >> 1
    gone = (halves & 1).astype(np.bool_)
    renamed = gone & (_writable(rows[OP], np.int8)[row] == Op.UPDATE)
    value_rows = {c: _value_rows(mask, source) for c, mask in _missing_masks(rows[MISSING], len(columns)).items()}
    own_place = np.where(renamed, ids.place[np.where(renamed, ids.old[row], 0)], row)
    arrays: list[pa.Array] = []
    for ordinal, column in enumerate(columns):
        if column.name in key:
            arrays.append(ids.keys[key.index(column.name)].take(pa.array(own_place)))
        else:
            at = value_rows[ordinal][row] if ordinal in value_rows else row
            arrays.append(_only(rows[column.name]).take(pa.array(at, mask=gone | (at < 0))))
    unknown = {c: (found[row] < 0) & ~gone for c, found in value_rows.items()}
    arrays.append(pa.array(np.where(gone, GONE, UPSERT).astype(np.int8)))
    arrays += [_only(rows[name]).take(pa.array(row)) for name in (INDEX, TXN)]
    arrays.append(_missing_lists(unknown, len(row)))
    arrays.append(_base_keys(unknown, ids, key, base_key[row], ids.own[row]))
    return pa.Table.from_arrays(arrays, schema=overlay_schema(columns, key))


def _missing_masks(lists: pa.ChunkedArray, width: int) -> dict[int, Flags]:
    """Column ordinal → rows that lack it, for columns that any row lacks."""
    if lists.null_count == len(lists):
        return {}
    flat = _only(lists)
    ordinals = _writable(flat.flatten(), np.int32)
    lengths = np.asarray(pc.fill_null(pc.list_value_length(flat), 0).to_numpy(zero_copy_only=False), np.int64)
    row = np.repeat(np.arange(len(flat)), lengths)
    masks: dict[int, Flags] = {}
    for ordinal in range(width):
        where = row[ordinals == ordinal]
        if len(where):
            masks[ordinal] = np.zeros(len(flat), dtype=np.bool_)
            masks[ordinal][where] = True
    return masks


def _missing_lists(unknown: dict[int, Flags], n: int) -> pa.Array:
    if not any(mask.any() for mask in unknown.values()):
        return pa.nulls(n, pa.list_(pa.int32()))
    ordinals = np.array(sorted(unknown), dtype=np.int32)
    matrix = np.stack([unknown[int(o)] for o in ordinals], axis=1)
    lengths = matrix.sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = ordinals[np.nonzero(matrix)[1]]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, pa.int32()), mask=pa.array(lengths == 0))


def _base_keys(unknown: dict[int, Flags], ids: _Ids, key: Sequence[str], base_key: Ints, own: Ints) -> pa.Array:
    needs = np.zeros(len(own), dtype=np.bool_)
    for mask in unknown.values():
        needs |= mask
    foreign = needs & (base_key != own)
    place = pa.array(ids.place[np.where(foreign & (base_key >= 0), base_key, 0)], mask=~foreign | (base_key < 0))
    fields = [values.take(place) for values in ids.keys]
    return pa.StructArray.from_arrays(fields, names=list(key), mask=pa.array(~foreign))


def _only(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The values as one array."""
    if isinstance(values, pa.Array):
        return values
    if not values.num_chunks:
        return pa.array([], values.type)
    return values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks)


def _valid(values: pa.Array) -> Flags:
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))


def _writable(values: pa.ChunkedArray | pa.Array, dtype: type[np.generic]) -> npt.NDArray[np.generic]:
    """A copy that kernels accept (Arrow's own buffers are read-only)."""
    return np.array(_only(values).to_numpy(zero_copy_only=False), dtype=dtype)
