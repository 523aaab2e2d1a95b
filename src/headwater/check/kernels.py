"""Hashes of columns, row by row, compiled. Each kernel folds one more column into the rows' running hashes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headwater.decode.kernels import BYTES
from headwater.kernel import kernel

HASHES = types.uint64[::1]
WORDS = types.Array(types.uint64, 1, "C", readonly=True)
VALID = types.Array(types.boolean, 1, "C", readonly=True)
PLACES = types.Array(types.int64, 1, "C", readonly=True)

NULL_WORD = np.uint64(0x9E3779B97F4A7C15)  # what a NULL contributes; no value produces it by accident
_PRIME = np.uint64(0x100000001B3)
_A = np.uint64(0xBF58476D1CE4E5B9)
_B = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)


@kernel(types.uint64(types.uint64), inline="always")
def _mix(x: Any) -> Any:
    x = (x ^ (x >> _S30)) * _A
    x = (x ^ (x >> _S27)) * _B
    return x ^ (x >> _S31)


@kernel(types.void(WORDS, VALID, HASHES))
def fold_words(words: Any, valid: Any, hashes: Any) -> None:
    """Folds 64-bit values."""
    for i in range(len(hashes)):
        word = _mix(words[i]) if valid[i] else NULL_WORD
        hashes[i] = _mix(hashes[i] * _PRIME + word)


@kernel(types.void(BYTES, PLACES, VALID, HASHES))
def fold_bytes(buffer: Any, offsets: Any, valid: Any, hashes: Any) -> None:
    """Folds byte strings; `offsets` has one entry more than there are rows."""
    for i in range(len(hashes)):
        word = NULL_WORD
        if valid[i]:
            word = np.uint64(offsets[i + 1] - offsets[i])
            for j in range(offsets[i], offsets[i + 1]):
                word = (word ^ np.uint64(buffer[j])) * _PRIME
                word ^= word >> _S32
            word = _mix(word)
        hashes[i] = _mix(hashes[i] * _PRIME + word)


@kernel(types.void(WORDS, PLACES, VALID, HASHES))
def fold_lists(elements: Any, offsets: Any, valid: Any, hashes: Any) -> None:
    """Folds lists, given the hashes of their elements."""
    for i in range(len(hashes)):
        word = NULL_WORD
        if valid[i]:
            word = np.uint64(offsets[i + 1] - offsets[i])
            for j in range(offsets[i], offsets[i + 1]):
                word = _mix(word * _PRIME + elements[j])
            word = _mix(word)
        hashes[i] = _mix(hashes[i] * _PRIME + word)


@kernel(types.void(WORDS, WORDS, types.int64, types.int64[::1], HASHES))
def add_up(keys: Any, rows: Any, shift: Any, counts: Any, sums: Any) -> None:
    """Counts rows and adds their hashes, per range of the key's hash; order does not matter."""
    for i in range(len(keys)):
        place = np.int64(keys[i] >> np.uint64(shift))
        counts[place] += 1
        sums[place] += rows[i]
