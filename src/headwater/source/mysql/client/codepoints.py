"""The characters of the servers' charsets: the result of `CONVERT(x USING utf8)` for each of their bytes.

The servers' charsets are older than the codecs of the same name: their differences from Python's are listed here, as
the servers convert them. Labels of a table map and values of a column are decoded with these same tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

UNDEFINED = 0xFFFFFFFF  # a code point: these bytes are not a character
UTF8 = frozenset({"utf8mb4", "utf8mb3", "utf8"})
# Charsets decoded by Python's codecs; this creates one Python object per value.
CODECS = {
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "ucs2": "utf-16-be",
    "gb18030": "gb18030",
}
SWAPPED = {"gb18030": {0xE7C7: 0x1E3F, 0x1E3F: 0xE7C7}}  # the server has the standard's second edition
EVERY_CHARACTER = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})  # that Unicode has
_BYTES_OF_CHARACTER = {
    **dict.fromkeys(EVERY_CHARACTER, 4),
    **dict.fromkeys(("utf8mb3", "ujis", "eucjpms"), 3),
    **dict.fromkeys(("ucs2", "big5", "cp932", "euckr", "gb2312", "gbk", "sjis"), 2),
}
REPLACEMENT = "\ufffd"
_NONE = REPLACEMENT  # in the runs below: not a character
# Single-byte charsets: Python's codec, and runs of characters that the server has in other places.
_SINGLES: dict[str, tuple[str, Mapping[int, str]]] = {
    "ascii": ("ascii", {}),
    "armscii8": (
        "latin-1",
        {
            0xA1: "❁§։)(»«—.՝,-՟…՜՛՞ԱաԲբԳգԴդԵեԶզԷէԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆնՇշՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'",
        },
    ),
    "cp1250": ("cp1250", {}),
    "cp1251": ("cp1251", {}),
    "cp1256": ("cp1256", dict.fromkeys((0x8A, 0x8F, 0x98, 0x9A, 0x9F, 0xAA, 0xC0, 0xFF), _NONE)),
    "cp1257": ("cp1257", {}),
    "cp850": ("cp850", {}),
    "cp852": ("cp852", {}),
    "cp866": ("cp866", {0xFC: "ⁿ²"}),
    "dec8": (
        "latin-1",
        {
            **dict.fromkeys(
                (0xA4, 0xA6, 0xAC, 0xAD, 0xAE, 0xAF, 0xB4, 0xB8, 0xBE, 0xD0, 0xDE, 0xF0, 0xFE, 0xFF), _NONE
            ),
            0xA8: "¤",
            0xD7: "Œ",
            0xDD: "Ÿ",
            0xF7: "œ",
            0xFD: "ÿ",
        },
    ),
    "geostd8": (
        "latin-1",
        {
            0x80: "€�‚�„…†‡�‰�‹�����‘’“”•–—���›����",
            0xC0: "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ" + _NONE * 23 + "№" + _NONE * 2,
        },
    ),
    "greek": ("iso8859-7", {0xA1: "ʽʼ", 0xA4: _NONE * 2, 0xAA: _NONE}),
    "hebrew": ("iso8859-8", {0xAF: "‾"}),
    "hp8": (
        "latin-1",
        {
            0xA1: "ÀÂÈÊËÎÏ´ˋˆ¨˜ÙÛ₤¯Ýý°ÇçÑñ¡¿¤£¥§ƒ¢âêôûáéóúàèòùäëöüÅîØÆåíøæÄìÖÜÉïßÔÁÃãÐðÍÌÓÒÕõŠšÚŸÿÞþ·µ¶¾—¼½ªº«■»±"
            + _NONE,
        },
    ),
    "keybcs2": ("cp437", {0x80: "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ¼¡«»"}),
    "koi8r": ("koi8-r", {}),
    "koi8u": ("koi8-u", {0x95: "•"}),
    "latin1": ("cp1252", {0x81: "\x81", 0x8D: "\x8d", 0x8F: "\x8f\x90", 0x9D: "\x9d"}),
    "latin2": ("iso8859-2", {}),
    "latin5": ("iso8859-9", {}),
    "latin7": ("iso8859-13", {}),
    "macce": ("mac_latin2", {}),
    "macroman": ("mac_roman", {}),
    "swe7": ("ascii", {0x40: "É", 0x5B: "ÄÖÅÜ", 0x60: "é", 0x7B: "äöåü" + _NONE}),
    "tis620": ("tis_620", {}),
}
# IBM's characters in eucjpms, after 0x8F, from 0xF3F3 on
_IBM = (
    "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤\ufa0e咊坙\ufa0f\ufa10增寬峵嵓"
    "\ufa11德悅愠敎昻晥\ufa12\uf929栁\ufa13\ufa14橫櫢淸淲瀨\ufa15\ufa16甁皂皞"
    "\ufa17礰\ufa18\ufa19\ufa1a\ufa1b竧\ufa1c\ufa1d綠緖\ufa1e荢\ufa1f薰"
    "\ufa20\ufa21蠇\ufa22譿賴赶\ufa23\ufa24\ufa25郞\ufa26鄕\ufa27\ufa28"
    "閒\uf9dc\ufa29霻靍靑\ufa2a\ufa2b\ufa2c馞髙魲\ufa2d黑"
)
_ROW = 94  # characters in a row of JIS; a row's bytes begin at 0xA1


def _row(lead: int, text: str) -> dict[bytes, str]:
    """Characters in the places of a row starting at `lead` (the bytes of the first)."""
    first = ((lead >> 8) - 0xA1) * _ROW + (lead & 0xFF) - 0xA1
    return {bytes((0xA1 + n // _ROW, 0xA1 + n % _ROW)): c for n, c in enumerate(text, first)}


_OWN = "".join(map(chr, range(0xE000, 0xE000 + 10 * _ROW)))  # places for user-defined characters
_OWN_TRIPLES = "".join(map(chr, range(0xE000 + 10 * _ROW, 0xE000 + 20 * _ROW)))
_TRAILS = (*range(0x40, 0x7F), *range(0x80, 0x9D))
_NEC = "".join(bytes((0x87, t)).decode("cp932", "replace")[0] for t in _TRAILS)  # of cp932, in the same order
# Multi-byte charsets: Python's codec, and the pairs and triples (without their 0x8F) that differ.
_PAIRS: dict[str, tuple[str, Mapping[bytes, str], Mapping[bytes, str]]] = {
    "big5": (
        "big5",
        {
            **{b"\xf9" + bytes((0xD6 + n,)): c for n, c in enumerate("碁銹裏墻恒粧嫺")},
            **dict.fromkeys(
                (b"\xa1\x5a", b"\xa1\xc3", b"\xa1\xc5", b"\xa1\xfe", b"\xa2\x40", b"\xa2\xcc", b"\xa2\xce"), _NONE
            ),
        },
        {},
    ),
    "cp932": ("cp932", {}, {}),
    "euckr": ("cp949", {}, {}),
    "gb2312": ("gb2312", {}, {}),
    "gbk": ("gbk", {}, {}),
    "sjis": ("shift_jis", {b"\x81\x5f": "\\"}, {}),
    "ujis": ("euc_jp", {b"\xa1\xc0": "\\"} | _row(0xF5A1, _OWN), _row(0xF5A1, _OWN_TRIPLES)),
    "eucjpms": (
        "euc_jp",
        _row(0xA1C1, "～∥")
        | _row(0xA1DD, "－")
        | _row(0xA1F1, "￠￡")
        | _row(0xA2CC, "￢")
        | _row(0xADA1, _NEC)
        | _row(0xF5A1, _OWN),
        _row(0xA2B7, "～") | _row(0xA2C3, "￤") | _row(0xF3F3, _IBM) | _row(0xF5A1, _OWN_TRIPLES),
    ),
}
_NO_POINTS = np.zeros(0, dtype=np.uint32)
_TRIPLE = 0x8F  # in EUC-JP it begins a three-byte character


def knows(charset: str) -> bool:
    """Whether text in this charset can be decoded."""
    return charset in UTF8 or is_tabled(charset) or charset in CODECS


def bytes_of_character(charset: str) -> int:
    """The bytes that servers reserve per character: the log has column lengths in bytes."""
    return _BYTES_OF_CHARACTER.get(charset, 1)


def is_tabled(charset: str) -> bool:
    """Whether `points` has the charset's characters."""
    return charset in _SINGLES or charset in _PAIRS


def read_text(data: bytes, charset: str) -> str:
    """A short text in a known charset; `REPLACEMENT` stands for bytes that are not a character."""
    if charset in UTF8:
        return data.decode("utf-8", "replace")
    if charset in CODECS:
        text = data.decode(CODECS[charset], "replace")
        return text.translate(SWAPPED[charset]) if charset in SWAPPED else text
    singles, pairs, triples = points(charset)
    found, at = [], 0
    while at < len(data):
        point, width = int(singles[data[at]]), 1
        if point == UNDEFINED and len(triples) and data[at] == _TRIPLE and at + 2 < len(data):
            point, width = int(triples[data[at + 1] << 8 | data[at + 2]]), 3
        elif point == UNDEFINED and len(pairs) and at + 1 < len(data):
            point, width = int(pairs[data[at] << 8 | data[at + 1]]), 2
        found.append(REPLACEMENT if point == UNDEFINED else chr(point))
        at += width
    return "".join(found)


@lru_cache(maxsize=8)
def points(charset: str) -> tuple[Any, Any, Any]:
    """Code points of a charset's bytes, pairs and triples: see `kernels_text.transcode`."""
    if charset in _SINGLES:
        codec, runs = _SINGLES[charset]
        singles = _single_points(codec)
        for first, run in runs.items():
            singles[first : first + len(run)] = [UNDEFINED if c == _NONE else ord(c) for c in run]
        return singles, _NO_POINTS, _NO_POINTS
    codec, pairs, triples = _PAIRS[charset]
    singles = _single_points(codec)
    if charset == "cp932":
        singles[[0x80, 0xA0, 0xFD, 0xFE, 0xFF]] = UNDEFINED  # Python follows Windows here
    leads = np.flatnonzero(singles == UNDEFINED).tolist()
    two = _pair_points(codec, b"", leads, pairs)
    return singles, two, _pair_points(codec, b"\x8f", range(0xA1, 0xFF), triples) if triples else _NO_POINTS


def _single_points(codec: str) -> Any:
    texts = [bytes((b,)).decode(codec, "ignore") for b in range(256)]
    return np.array([ord(t) if t else UNDEFINED for t in texts], dtype=np.uint32)


def _pair_points(codec: str, before: bytes, leads: Any, own: Mapping[bytes, str]) -> Any:
    points = np.full(65_536, UNDEFINED, dtype=np.uint32)
    for lead in leads:
        for trail in range(0x40, 0xFF):
            try:
                text = (before + bytes((lead, trail))).decode(codec)
            except UnicodeDecodeError:
                continue
            if len(text) == 1:
                points[lead << 8 | trail] = ord(text)
    for pair, text in own.items():
        points[pair[0] << 8 | pair[1]] = ord(text) if text != _NONE else UNDEFINED
    return points
