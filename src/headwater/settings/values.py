"""How users write durations, sizes, shares, numbers. A check returns the canonical form or raises what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Check = Callable[[str], str]

_SECONDS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}


def text(value: str) -> str:
    """Any non-empty text."""
    if not value.strip() or "\x00" in value:
        raise ValueError("must not be empty")
    return value


def one_of(*allowed: str) -> Check:
    """One of the given words."""

    def check(value: str) -> str:
        if value.lower() not in allowed:
            raise ValueError(f"must be {' or '.join(repr(a) for a in allowed)}")
        return value.lower()

    return check


def whole(low: int, high: int) -> Check:
    """A whole number."""

    def check(value: str) -> str:
        if not re.fullmatch(r"[+-]?\d{1,18}", value.strip()) or not low <= int(value) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return str(int(value))

    return check


def boolean(value: str) -> str:
    """`true` or `false`, or a synonym."""
    if value.lower() in ("true", "on", "yes", "1"):
        return "true"
    if value.lower() in ("false", "off", "no", "0"):
        return "false"
    raise ValueError("must be 'true' or 'false'")


def seconds(low: float, high: float, whole: bool = False) -> Check:
    """A duration (`10`, `10s`, `500ms`, `1m`) in seconds."""

    def check(value: str) -> str:
        m = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|min|m|h|d|)", value.strip().lower())
        seconds = float(m.group(1)) * _SECONDS[m.group(2)] if m else -1.0
        if not low <= seconds <= high or (whole and seconds != int(seconds)):
            kind = "whole seconds" if whole else "seconds"
            raise ValueError(f"must be a duration from {low:g} to {high:,.10g} {kind}, like '10' or '10s'")
        return f"{seconds:g}" if seconds != int(seconds) else str(int(seconds))

    return check


def size(low: int, high: int) -> Check:
    """A size (`8MB`, `64 KB`, `1048576`) in bytes; a KB is 1,024 bytes."""

    def check(value: str) -> str:
        m = re.fullmatch(r"(\d{1,18})\s*([kmgt]?b|)", value.strip().lower().replace("ib", "b"))
        found = int(m.group(1)) * _BYTES[m.group(2)] if m else -1
        if not low <= found <= high:
            raise ValueError(f"must be a size from {show_size(low)} to {show_size(high)}, like '8MB' or '1048576'")
        return str(found)

    return check


def share(low: float, high: float) -> Check:
    """A part of a whole (`0.25`, `25%`)."""

    def check(value: str) -> str:
        m = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)\s*(%?)", value.strip())
        found = float(m.group(1)) / (100 if m.group(2) else 1) if m else -1.0
        if not low <= found <= high:
            raise ValueError(f"must be a share from {low:g} to {high:g}, like '0.25' or '25%'")
        return f"{found:g}"

    return check


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: `check` returns its canonical form, `value` what the program uses, `show` what people read."""

    check: Check
    value: Callable[[str], Any] = str
    show: Callable[[Any], str] = str


def duration(low: float, high: float) -> Kind:
    return Kind(seconds(low, high), float, show_seconds)


def amount(low: int, high: int) -> Kind:
    return Kind(size(low, high), int, show_size)


def number(low: int, high: int) -> Kind:
    return Kind(whole(low, high), int)


def part(low: float, high: float) -> Kind:
    return Kind(share(low, high), float, "{:g}".format)


def show_seconds(value: float) -> str:
    """`250ms`, `10s`, `10min`, `1h`: the largest unit that gives a whole number."""
    for unit, factor in (("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if value and value % factor == 0:
            return f"{int(value / factor)}{unit}"
    return f"{round(value * 1000, 3):g}ms" if value else "0s"


def show_size(value: int) -> str:
    """`8MB`: the largest unit that gives a whole number."""
    for unit in ("TB", "GB", "MB", "KB"):
        if value and value % _BYTES[unit.lower()] == 0:
            return f"{value // _BYTES[unit.lower()]}{unit}"
    return str(value)
