"""The texts of binary values, as SELECT prints them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.decode import kernels_bytes
from headwater.decode.column import Decoded, check, column, offsets_of
from headwater.decode.kernels import KEPT, NULL, UNREPRESENTABLE
from headwater.decode.mysql import kernels_numbers, kernels_text, kernels_times

_DATE, _CLOCK, _FRACTION = 10, 8, 7  # characters of `2020-01-01`, `23:59:59`, `.999999`
_LONGEST_TIME = 11 + _FRACTION  # `-1023:59:59`, the most its bits can hold
_EXPONENT_BELOW, _EXPONENT_ABOVE = -14, 15
_ADDRESS_BYTES = {"uuid": 16, "inet4": 4, "inet6": 16}


class Texts(NamedTuple):
    """Texts that a kernel wrote, and where they are; a negative length is a NULL."""

    bytes: Any
    starts: Any
    lengths: Any

    def strings(self) -> Decoded:
        """The column of these texts, which are ASCII."""
        offsets = offsets_of(np.maximum(self.lengths, 0))
        out = np.empty(int(offsets[-1]), dtype=np.uint8)
        kernels_bytes.gather(self.bytes, self.starts, self.lengths, offsets, out)
        marks = np.where(self.lengths < 0, np.uint8(NULL), np.uint8(KEPT))
        return column(pa.string(), marks, offsets, out)


def _room(count: int, width: int) -> tuple[Any, Any]:
    return np.empty((count, width), dtype=np.uint8), np.empty(count, dtype=np.int64)


def _written(out: Any, lengths: Any) -> Texts:
    return Texts(out.reshape(-1), np.arange(out.shape[0], dtype=np.int64) * out.shape[1], lengths)


def decimals(buffer: Any, starts: Any, lengths: Any, precision: int, scale: int) -> Texts:
    """`-12.50`: all digits of the scale."""
    out, sizes = _room(starts.size, precision + 3)  # a sign, a point, a zero before it
    check(kernels_numbers.write_decimals(buffer, starts, lengths, precision, scale, out, sizes), "decimal")
    return _written(out, sizes)


def dates(buffer: Any, starts: Any, lengths: Any) -> Texts:
    """`2020-01-01`, including invalid dates."""
    out, sizes = _room(starts.size, _DATE + 2)
    kernels_times.write_dates(buffer, starts, lengths, out, sizes)
    return _written(out, sizes)


def datetimes(buffer: Any, starts: Any, lengths: Any, kind: int, digits: int) -> Texts:
    """`2020-01-01 23:59:59.9`, including invalid dates."""
    out, sizes = _room(starts.size, _DATE + 12 + _CLOCK + _FRACTION)
    kernels_times.write_datetimes(buffer, starts, lengths, kind, digits, out, sizes)
    return _written(out, sizes)


def times(buffer: Any, starts: Any, lengths: Any, old: bool, digits: int) -> Texts:
    """`-838:59:59.0`."""
    out, sizes = _room(starts.size, _LONGEST_TIME)
    kernels_times.write_times(buffer, starts, lengths, int(old), digits, out, sizes)
    return _written(out, sizes)


def timestamps(micros: Any, marks: Any, digits: int) -> Decoded:
    """`2020-01-01 23:59:59.9` in UTC; a value that the kernel could not represent is the zero timestamp."""
    size = _DATE + 1 + _CLOCK + (digits + 1 if digits else 0)
    shown = np.datetime_as_string(micros.view("datetime64[us]"), unit="us").astype(f"U{size}")
    shown[marks == UNREPRESENTABLE] = "0000-00-00T00:00:00.000000"[:size]
    texts = [t.replace("T", " ") for t in shown.tolist()]
    return Decoded(pa.array(texts, pa.string(), mask=marks == NULL), 0, None)


def floats(numbers: Any, marks: Any) -> Decoded:
    """`0.1`, `1e20`: see `float_text`."""
    shown = [float_text(v) for v in numbers.tolist()]
    return Decoded(pa.array(shown, pa.string(), mask=marks == NULL), 0, None)


def float_text(number: float) -> str:
    """The shortest text of a double, in the servers' form: without an exponent from 1e-15 up to 15 digits."""
    mantissa, _, exponent = f"{number!r}e0".partition("e")
    sign, mantissa = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(exponent.partition("e")[0])
    digits = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(digits)
    digits = digits.rstrip("0")
    if not digits:
        return sign + "0"
    if point < _EXPONENT_BELOW or (point > _EXPONENT_ABOVE and len(digits) <= point):
        return f"{sign}{digits[0]}{'.' if len(digits) > 1 else ''}{digits[1:]}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if len(digits) <= point:
        return sign + digits.ljust(point, "0")
    return f"{sign}{digits[:point]}.{digits[point:]}"


def binaries(buffer: Any, starts: Any, lengths: Any, lake_type: str, pad_to: int = 0) -> Decoded:
    """Bytes, padded with zero bytes up to `pad_to`; or their `0x…` text."""
    marks = np.where(lengths < 0, np.uint8(NULL), np.uint8(KEPT))
    sizes = np.where(lengths < 0, 0, np.maximum(lengths, pad_to))
    offsets = offsets_of(sizes)
    out = np.empty(int(offsets[-1]), dtype=np.uint8)
    kernels_text.gather_padded(buffer, starts, lengths, offsets, out)
    if lake_type != "STRING":
        return column(pa.binary(), marks, offsets, out)
    hex_offsets = offsets_of(np.where(lengths < 0, 0, 2 * sizes + 2))
    shown = np.empty(int(hex_offsets[-1]), dtype=np.uint8)
    kernels_text.write_hex(out, offsets, hex_offsets, marks, shown)
    return column(pa.string(), marks, hex_offsets, shown)


def addresses(buffer: Any, starts: Any, lengths: Any, kind: str) -> Decoded:
    """MariaDB's `uuid`, `inet4` and `inet6`, which the log writes as BINARY(n)."""
    packed = binaries(buffer, starts, lengths, "BINARY", _ADDRESS_BYTES[kind]).array.to_pylist()
    return Decoded(pa.array([None if p is None else _address(p, kind) for p in packed], pa.string()), 0, None)


def _address(packed: bytes, kind: str) -> str:
    if kind == "uuid":
        h = packed.hex()
        return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"
    return ".".join(map(str, packed)) if kind == "inet4" else _inet6(packed)


def _inet6(packed: bytes) -> str:
    """MariaDB's text of an IPv6 address: it shortens the first of the longest runs of zero groups, even of one."""
    groups = [packed[i] << 8 | packed[i + 1] for i in range(0, 16, 2)]
    shown = [f"{g:x}" for g in groups]
    start, length = _zeros(groups)
    if start == 0 and (length == 6 or (length == 5 and groups[5] == 0xFFFF)):
        shown[6:] = [".".join(map(str, packed[12:]))]  # an IPv4 address, plain or mapped
    if not length:
        return ":".join(shown)
    return f"{':'.join(shown[:start])}::{':'.join(shown[start + length :])}"


def _zeros(groups: list[int]) -> tuple[int, int]:
    """Where the first of the longest runs of zeros begins, and how long it is."""
    best, run = (0, 0), 0
    for i, g in enumerate(groups):
        run = 0 if g else run + 1
        if run > best[1]:
            best = (i - run + 1, run)
    return best
