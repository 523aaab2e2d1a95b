"""A collation's character set: the log names collations by number."""

from __future__ import annotations

from pymysql.charset import charset_by_id

_UTF8MB4_0900 = range(255, 324)  # MySQL's newer collations, all of utf8mb4
_NO_PAD = range(1024, 2048)  # MariaDB: an older collation's number and 1024
_UCA1400 = 2048  # MariaDB: 256 numbers for each of these
_UCA1400_CHARSETS = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")
_MISSING = {
    33: "utf8mb3", 54: "utf16", 56: "utf16le", 60: "utf32", 61: "utf32", 62: "utf16le", 76: "utf8mb3",
    83: "utf8mb3", 248: "gb18030", 249: "gb18030", 250: "gb18030",
}  # fmt: skip


def charset_of(collation: int) -> str:
    """The character set's name as MySQL writes it, or '' if the collation is unknown."""
    if collation in _UTF8MB4_0900:
        return "utf8mb4"
    if collation in _NO_PAD:
        return charset_of(collation - _NO_PAD.start)
    if collation >= _UCA1400:
        which = (collation - _UCA1400) // 256
        return _UCA1400_CHARSETS[which] if which < len(_UCA1400_CHARSETS) else ""
    if collation in _MISSING:
        return _MISSING[collation]
    if 101 <= collation <= 124:
        return "utf16"
    if 128 <= collation <= 151:
        return "ucs2"
    if 160 <= collation <= 183:
        return "utf32"
    if 192 <= collation <= 223:
        return "utf8mb3"
    if 224 <= collation <= 247:
        return "utf8mb4"
    try:
        name = str(charset_by_id(collation).name)
    except KeyError:
        return ""
    return "utf8mb3" if name == "utf8" else name
