"""A collation's character set: the log has collations by number."""

from __future__ import annotations

from pymysql.charset import charset_by_id

_NO_PAD = range(1024, 2048)  # MariaDB: an older collation's number plus 1024
_UCA1400 = 2048  # MariaDB: 256 numbers for each of these
_UCA1400_CHARSETS = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")
_MISSING = {
    33: "utf8mb3", 35: "ucs2", 54: "utf16", 55: "utf16", 56: "utf16le", 60: "utf32", 61: "utf32", 62: "utf16le",
    76: "utf8mb3", 83: "utf8mb3", 90: "ucs2", 159: "ucs2", 248: "gb18030", 249: "gb18030", 250: "gb18030",
}  # fmt: skip
_RANGES = {
    range(101, 125): "utf16", range(128, 152): "ucs2", range(160, 184): "utf32", range(192, 224): "utf8mb3",
    range(224, 248): "utf8mb4", range(255, 324): "utf8mb4", range(576, 608): "utf8mb3", range(608, 640): "utf8mb4",
    range(640, 672): "ucs2", range(672, 736): "utf16", range(736, 768): "utf32",
}  # fmt: skip


def collation_name(name: str) -> str:
    """A collation or a charset under its name in newer servers."""
    first, *rest = name.lower().split("_")
    return "_".join(["utf8mb3" if first == "utf8" else first, *rest])


def charset_of(collation: int) -> str:
    """The character set's name as MySQL writes it, or '' if the collation is unknown."""
    if collation in _NO_PAD:
        return charset_of(collation - _NO_PAD.start)
    if collation >= _UCA1400:
        which = (collation - _UCA1400) // 256
        return _UCA1400_CHARSETS[which] if which < len(_UCA1400_CHARSETS) else ""
    if collation in _MISSING:
        return _MISSING[collation]
    for ids, charset in _RANGES.items():
        if collation in ids:
            return charset
    try:
        name = str(charset_by_id(collation).name)
    except KeyError:
        return ""
    return "utf8mb3" if name == "utf8" else name
