"""Binary JSON against a naive writer of it, and documents that are damaged."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.decode.mysql.json import json_text
from headwater.errors import DataError

WORD = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.integers(-(2**16), 2**17) | WORD
DOCUMENTS = st.recursive(
    SCALARS | st.just("x" * 200),
    lambda d: st.lists(d, max_size=4) | st.dictionaries(WORD, d, max_size=4),
    max_leaves=20,
)


def scalar(value: Any) -> tuple[int, bytes]:
    """Kind and bytes of a scalar."""
    if value is None or isinstance(value, bool):
        return 4, bytes([0 if value is None else 1 if value else 2])
    if isinstance(value, int):
        for kind, form, low, high in (
            (5, "<h", -(2**15), 2**15 - 1),
            (6, "<H", 0, 2**16 - 1),
            (7, "<i", -(2**31), 2**31 - 1),
            (8, "<I", 0, 2**32 - 1),
            (9, "<q", -(2**63), 2**63 - 1),
            (10, "<Q", 0, 2**64 - 1),
        ):
            if low <= value <= high:
                return kind, struct.pack(form, value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    data = value.encode()
    length = b""
    size = len(data)
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return 12, length + bytes([size]) + data


def value(document: Any, large: bool) -> tuple[int, bytes]:
    """Kind and bytes of a value, in the small or the large form."""
    if not isinstance(document, dict | list):
        return scalar(document)
    width, number = (4, "<I") if large else (2, "<H")
    inline = (4, 5, 6, 7, 8) if large else (4, 5, 6)
    keys = [k.encode() for k in document] if isinstance(document, dict) else []
    parts = [value(v, large) for v in (document.values() if isinstance(document, dict) else document)]
    at = 2 * width + len(keys) * (width + 2) + len(parts) * (width + 1)
    entries, data = b"", b""
    for key in keys:
        entries += struct.pack(number, at + len(data)) + struct.pack("<H", len(key))
        data += key
    for kind, piece in parts:
        if kind in inline:
            entries += bytes([kind]) + piece.ljust(width, b"\0")
        else:
            entries += bytes([kind]) + struct.pack(number, at + len(data))
            data += piece
    head = struct.pack(number, len(parts)) + struct.pack(number, at + len(data))
    return (0 if isinstance(document, dict) else 2) + large, head + entries + data


def stored(document: Any, large: bool = False) -> bytes:
    kind, data = value(document, large)
    return bytes([kind]) + data


@given(DOCUMENTS, st.booleans())
def test_a_document_is_printed_with_its_members_as_they_are_stored(document: Any, large: bool) -> None:
    assert json_text(stored(document, large)) == json.dumps(document, ensure_ascii=False)


@given(DOCUMENTS, st.data())
def test_a_damaged_document_is_an_error_or_a_text_never_a_crash(document: Any, data: st.DataObject) -> None:
    whole = bytearray(stored(document))
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(1, len(whole))) :]
    else:
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        json_text(bytes(whole))
    except DataError as e:
        assert e.code == "data.log_damaged"


def test_a_document_that_holds_itself_is_damage() -> None:
    whole = bytearray(stored([[1]]))
    whole[6:8] = b"\0\0"  # the inner array is the outer one
    with pytest.raises(DataError):
        json_text(bytes(whole))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (1e15, "1e15"),
        (123456789012345.0, "123456789012345.0"),
        (1e-15, "0.000000000000001"),
        (1e-16, "1e-16"),
        (1.2345678901234568e17, "1.2345678901234568e17"),
        (-1.5e300, "-1.5e300"),
        (0.1, "0.1"),
        (2251799813685249.5, "2251799813685249.5"),
    ],
)
def test_doubles_are_printed_as_the_server_does(number: float, text: str) -> None:
    assert json_text(stored(number)) == text


def test_an_empty_value_is_null() -> None:
    assert json_text(b"") == "null"
