"""Every character of every charset, against what the servers themselves convert it to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headwater.decode.mysql.charsets import decode_charset
from headwater.model import Op
from headwater.source.mysql.client.codepoints import REPLACEMENT, knows, read_text
from support.mysql import MyDatabase
from support.mysql_log import LogReader

SINGLES = [bytes((b,)) for b in range(256)]
PAIRS = [bytes((a, b)) for a in range(0x80, 0x100) for b in range(0x40, 0x100)]
TRIPLES = [bytes((0x8F, a, b)) for a in range(0xA1, 0xFF) for b in range(0xA1, 0xFF)]
BY_WIDTH = {1: SINGLES, 2: SINGLES + PAIRS, 3: SINGLES + PAIRS + TRIPLES}
AT_ONCE = 512
WIDE = ("utf16", "utf16le", "utf32", "ucs2", "gb18030")


def ours(values: list[bytes], charset: str) -> list[str | None]:
    lengths = np.array([len(v) for v in values], np.int64)
    buffer = np.frombuffer(b"".join(values), np.uint8)
    found: list[str | None] = decode_charset(buffer, np.cumsum(lengths) - lengths, lengths, charset).array.to_pylist()
    return found


def theirs(database: MyDatabase, values: list[bytes], charset: str) -> list[str | None]:
    """What the server makes of these bytes; None for what is no character: it answers NULL or puts a `?` there."""
    found: list[str | None] = []
    for i in range(0, len(values), AT_ONCE):
        asked = (f"HEX(CONVERT(CONVERT(x'{v.hex()}' USING {charset}) USING utf32))" for v in values[i : i + AT_ONCE])
        (row,) = database.execute(f"SELECT {', '.join(asked)}")
        for value, answer in zip(values[i : i + AT_ONCE], row, strict=True):
            text = bytes.fromhex(answer or "").decode("utf-32-be")
            found.append(None if text in ("", "�") or ("?" in text and value != b"?") else text)
    return found


def test_every_charset_of_the_server_can_be_read(my_database: MyDatabase) -> None:
    names = {n for (n,) in my_database.execute("SELECT character_set_name FROM information_schema.character_sets")}
    assert [n for n in names - {"binary"} if not knows(n)] == []


def test_every_character_of_one_to_three_bytes_is_the_servers(mariadb_database: MyDatabase) -> None:
    """MySQL has the same tables; to ask both would double the time."""
    charsets = mariadb_database.execute("SELECT character_set_name, maxlen FROM information_schema.character_sets")
    wrong: list[Any] = []
    for charset, width in charsets:
        if width not in BY_WIDTH or charset in ("binary", "utf8mb3", *WIDE):
            continue
        alone = ours(SINGLES, charset)
        # a byte that is a character by itself begins no pair; the servers cut off what follows it
        values = [v for v in BY_WIDTH[width] if len(v) == 1 or alone[v[0]] is None]
        pairs = zip(values, theirs(mariadb_database, values, charset), ours(values, charset), strict=True)
        wrong += [(charset, v.hex(), t, o) for v, t, o in pairs if t != o]
    assert not wrong


WIDE_AT = [pytest.param(c, marks=pytest.mark.mysql if c == "gb18030" else pytest.mark.mariadb) for c in WIDE]


@pytest.mark.parametrize("charset", WIDE_AT)
def test_characters_of_all_planes_come_back_from_the_wide_charsets(
    request: pytest.FixtureRequest, charset: str
) -> None:
    database: MyDatabase = request.getfixturevalue("mysql_database" if charset == "gb18030" else "mariadb_database")
    last = 0x10000 if charset == "ucs2" else 0x110000
    points = [p for p in (*range(0x10000), *range(0x10000, last, 509)) if not 0xD800 <= p < 0xE000]
    for i in range(0, len(points), 4096):
        text = "".join(map(chr, points[i : i + 4096]))
        converted = f"HEX(CONVERT(CONVERT(x'{text.encode('utf-32-be').hex()}' USING utf32) USING {charset}))"
        ((answer,),) = database.execute(f"SELECT {converted}")
        assert ours([bytes.fromhex(answer)], charset) == [text]


def test_labels_of_every_charset_are_read_as_its_values_are(my_database: MyDatabase) -> None:
    """Enums and sets: the table map has their labels in the column's charset, a scan has the values so."""
    charsets = my_database.execute("SELECT character_set_name FROM information_schema.character_sets")
    tables = {c: f"in_{c}" for (c,) in charsets if c != "binary"}
    for charset, table in tables.items():
        label = "".join(kept(my_database, charset))
        assert label
        my_database.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, e enum('a', '{label}') CHARACTER SET {charset}, "
            f"s set('b', '{label}') CHARACTER SET {charset})"
        )
    reader = LogReader(my_database, tuple(tables.values()))
    for table in tables.values():
        my_database.execute(f"INSERT INTO {table} VALUES (1, 2, 3)")
    changes = reader.read()
    assert [(c.op, c.table) for c in changes] == [(Op.INSERT, t) for t in tables.values()]
    found = {r.table: (r.columns[1].labels, r.columns[2].labels) for r in reader.relations}
    for table in tables.values():
        ((e, s),) = my_database.execute(
            f"SELECT CONVERT(e USING utf8mb4), CONVERT(s USING utf8mb4) FROM {table} WHERE id = 1"
        )
        assert found[table] == (("a", e), tuple(s.split(","))), table


def kept(database: MyDatabase, charset: str) -> list[str]:
    """Some characters of a charset that the server brings back from it, beyond ASCII if it has such."""
    if charset in WIDE or charset.startswith("utf8"):
        some = list("äΩж中")
    else:
        double = [t for t in ours(PAIRS[::7], charset) if t and len(t) == 1]
        some = [t for t in ours(SINGLES[64:], charset) if t] + double[:60]
    asked = [f"CONVERT(CONVERT(_utf8mb4 x'{c.encode().hex()}' USING {charset}) USING utf8mb4)" for c in some]
    (row,) = database.execute(f"SELECT {', '.join(asked)}")
    return [c for c, back in zip(some, row, strict=True) if c == back and c.isprintable() and c not in "',\\?"]


def test_a_short_text_is_read_as_a_column_of_it_is() -> None:
    for charset in ("dec8", "hp8", "swe7", "armscii8", "geostd8", "keybcs2", "greek", "latin1", "sjis", "eucjpms"):
        values = [*SINGLES, *PAIRS[::7], *TRIPLES[::97], b"a\x81", b"\x8f\xa2"]
        for value, text in zip(values, ours(values, charset), strict=True):
            assert read_text(value, charset) == text or (text is None and REPLACEMENT in read_text(value, charset))
