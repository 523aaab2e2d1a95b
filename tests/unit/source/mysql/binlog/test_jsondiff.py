"""JSON differences against a naive model of them, and rows that hold some."""

from __future__ import annotations

import copy
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.decode.mysql.json import json_text
from headwater.errors import DataError
from headwater.model import LogColumn
from headwater.source.mysql.binlog.jsondiff import apply_diffs
from headwater.source.mysql.binlog.partial import whole_rows
from headwater.source.mysql.binlog.tablemap import TableMap
from unit.decode.mysql.test_json import DOCUMENTS, stored

REPLACE, INSERT, REMOVE = 0, 1, 2
KEYS = st.sampled_from(["a", "b c", 'q"', "é", "", "x.y", "[1]"])
TREES = st.recursive(
    st.none() | st.integers(-9, 70_000) | st.just("s" * 200),
    lambda d: st.lists(d, max_size=4) | st.dictionaries(KEYS, d, max_size=4),
    max_leaves=12,
)


def ordered(value: Any) -> Any:
    """The document with its members in the server's order."""
    if isinstance(value, list):
        return [ordered(v) for v in value]
    if isinstance(value, dict):
        return {k: ordered(value[k]) for k in sorted(value, key=lambda k: (len(k.encode()), k.encode()))}
    return value


def number(value: int) -> bytes:
    return bytes([value]) if value < 251 else b"\xfc" + struct.pack("<H", value)


def diff(kind: int, path: str, value: Any = None) -> bytes:
    out = bytes([kind]) + number(len(path.encode())) + path.encode()
    if kind == REMOVE:
        return out
    data = stored(ordered(value))
    return out + number(len(data)) + data


def places(value: Any, path: str = "$") -> list[tuple[str, Any, Any]]:
    """(path, parent, key) of everything inside a document."""
    found = []
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in pairs:
        leg = f"[{key}]" if isinstance(key, int) else "." + (key if key == "a" else json.dumps(key, ensure_ascii=False))
        found += [(path + leg, value, key), *places(child, path + leg)]
    return found


def gaps(value: Any) -> list[tuple[str, Any, Any]]:
    """Where something can be inserted."""
    found = [(f"{p}[0]", parent[k], 0) for p, parent, k in places(value) if isinstance(parent[k], list)]
    found += [(f"{p}.new", parent[k], "new") for p, parent, k in places(value) if isinstance(parent[k], dict)]
    if isinstance(value, dict):
        found.append(("$.new", value, "new"))
    if isinstance(value, list):
        found.append((f"$[{len(value)}]", value, len(value)))
    return [g for g in found if not (isinstance(g[1], dict) and g[2] in g[1])]


@given(TREES, st.data())
def test_differences_do_to_the_stored_document_what_they_do_to_the_model(document: Any, data: st.DataObject) -> None:
    model = copy.deepcopy(document)
    diffs = b""
    for _ in range(data.draw(st.integers(0, 4))):
        kind = data.draw(st.sampled_from([REPLACE, INSERT, REMOVE]))
        found = gaps(model) if kind == INSERT else places(model)
        if not found:
            continue
        path, parent, key = data.draw(st.sampled_from(found))
        value = data.draw(TREES)
        diffs += diff(kind, path, value)
        if kind == REMOVE:
            del parent[key]
        elif kind == INSERT and isinstance(parent, list):
            parent.insert(key, value)
        else:
            parent[key] = value
    large = data.draw(st.booleans())
    assert json_text(apply_diffs(stored(ordered(document), large), diffs)) == json.dumps(
        ordered(model), ensure_ascii=False
    )


@given(DOCUMENTS, DOCUMENTS)
def test_the_whole_document_can_be_replaced(old: Any, new: Any) -> None:
    assert json_text(apply_diffs(stored(old), diff(REPLACE, "$", new))) == json.dumps(ordered(new), ensure_ascii=False)


def test_a_document_that_grows_beyond_64_kb_takes_the_large_form() -> None:
    whole = apply_diffs(stored({"a": 1}), b"".join(diff(INSERT, f"$.k{i}", "x" * 30_000) for i in range(3)))
    assert json.loads(json_text(whole)) == {"a": 1, **{f"k{i}": "x" * 30_000 for i in range(3)}}
    assert whole[0] == 1


@pytest.mark.parametrize(
    ("kind", "path"),
    [(REPLACE, "$.b"), (INSERT, "$.a"), (REMOVE, "$.b"), (REMOVE, "$"), (REPLACE, "$[0]"), (REPLACE, "a"), (7, "$.a")],
)
def test_a_difference_from_another_document_is_damage(kind: int, path: str) -> None:
    with pytest.raises(DataError) as caught:
        apply_diffs(stored({"a": 1}), diff(kind, path, 2))
    assert caught.value.code == "data.log_damaged"


COLUMNS = tuple(
    LogColumn(n, t, m, n == "id") for n, t, m in (("id", 3, 0), ("a", 245, 4), ("n", 15, 40), ("b", 245, 4))
)
TABLE = TableMap("d", "t", COLUMNS, ((4, 0), (0, 4), (0, 1), (0, 4)), named=True)


def image(id: int, a: bytes | None, n: str | None, b: bytes | None) -> bytes:
    nulls = sum(1 << i for i, v in enumerate((id, a, n, b)) if v is None)
    values = struct.pack("<i", id)
    for v, prefix in ((a, 4), (None if n is None else n.encode(), 1), (b, 4)):
        values += b"" if v is None else len(v).to_bytes(prefix, "little") + v
    return bytes([nulls]) + values


def test_rows_are_made_whole_from_their_own_before_images() -> None:
    one, two = stored({"a": 1}), stored([1, 2])
    head = b"\1\0\0\0\0\0" + b"\0\0" + b"\2\0" + b"\4" + b"\x0f\x0f"
    body = head + image(1, one, "x", two) + b"\0" + image(1, two, None, one)
    body += image(2, one, "x", two) + b"\1\2" + image(2, None, "y", diff(REPLACE, "$[1]", 7))
    body += image(3, one, "x", two) + b"\1\1" + image(3, diff(INSERT, "$.n", None), "x", stored(5))
    assert list(whole_rows(body, TABLE)) == [
        image(1, one, "x", two) + image(1, two, None, one),
        image(2, one, "x", two) + image(2, None, "y", stored([1, 7])),
        image(3, one, "x", two) + image(3, stored({"a": 1, "n": None}), "x", stored(5)),
    ]
    with pytest.raises(DataError):
        list(whole_rows(body[:-1], TABLE))
    with pytest.raises(DataError):
        list(whole_rows(head + image(1, None, "x", two) + b"\1\1" + image(1, one, "x", two), TABLE))
