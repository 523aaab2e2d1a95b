"""Statements out of the log's events: their text in the charset of the session, and what the event says of it."""

from __future__ import annotations

import pytest

from headwater.source.mysql.binlog import events as ev
from headwater.source.mysql.ddl import statement as s
from headwater.source.mysql.ddl.statement import read_statement

LATIN1, UTF8, SJIS, SWE7 = 8, 45, 13, 10  # collations


def message(text: bytes, variables: bytes = b"", schema: bytes = b"db", kind: int = ev.QUERY) -> bytes:
    header = bytes([0, 0, 0, 0, kind]) + bytes(ev.HEADER_BYTES - 5)
    front = bytes(8) + bytes([len(schema)]) + bytes(2) + len(variables).to_bytes(2, "little")
    more = bytes(13) if kind == ev.EXECUTE_LOAD_QUERY else b""
    return bytes(ev.NUMBER_BYTES) + header + front + more + variables + schema + b"\0" + text


def said(mode: int = s.STRICT, client: int = UTF8, *more: bytes) -> bytes:
    """Status variables as the servers write them: flags, sql_mode, catalog, increments, charsets."""
    front = [b"\0" + bytes(4), b"\x01" + mode.to_bytes(8, "little"), b"\x06\x03std", b"\x03" + bytes(4)]
    return b"".join([*front, b"\x04" + client.to_bytes(2, "little") + bytes(4), *more])


@pytest.mark.parametrize(
    ("text", "client", "expected"),
    [
        ("TRUNCATE `grö`".encode(), UTF8, "TRUNCATE `grö`"),
        ("TRUNCATE `grö`".encode("latin-1"), LATIN1, "TRUNCATE `grö`"),
        ("TRUNCATE `表`".encode("shift_jis"), SJIS, "TRUNCATE `表`"),  # its second byte is a backslash
        (b"TRUNCATE t", SWE7, "TRUNCATE t"),
        (b"TRUNCATE `gr\xf6`", UTF8, "TRUNCATE `gr\ufffd`"),
        (b"TRUNCATE `gr\xf6`", 9999, "TRUNCATE `gr\ufffd`"),
    ],
)
def test_the_text_is_read_in_the_charset_of_the_client(text: bytes, client: int, expected: str) -> None:
    assert read_statement(message(text, said(client=client)), mariadb=True).text == expected


def test_the_mode_tells_whether_the_session_was_strict() -> None:
    lax, strict = (read_statement(message(b"x", said(mode)), False) for mode in (s.ANSI_QUOTES, s.STRICT))
    assert (lax.strict, strict.strict) == (False, True)
    assert lax.mode == s.ANSI_QUOTES
    unknown = read_statement(message(b"x"), False)
    assert not unknown.strict and unknown.databases is None


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (b"\x01shop\0", {"shop"}),
        (b"\x02shop\0other\0", {"shop", "other"}),
        (b"\xfe", None),  # more than can be listed
        (b"\x01\0", None),  # a foreign key leads further
    ],
)
def test_the_databases_that_a_statement_touched_are_known_where_the_event_lists_all(
    told: bytes, expected: set[str] | None
) -> None:
    zone, invoker, clock = b"\x05\x06SYSTEM", b"\x0b\x01u\x01h", b"\x0d" + bytes(3)
    found = read_statement(message(b"x", said(s.STRICT, UTF8, zone, invoker, b"\x0c" + told, clock)), False)
    assert found.databases == (None if expected is None else frozenset(expected))


def test_what_is_cut_off_or_unknown_is_not_guessed() -> None:
    whole = said(s.STRICT, LATIN1, b"\x0c\x02shop\0other\0")
    for size in range(len(whole)):
        found = read_statement(message(b"x", whole[:size]), False)
        assert found.databases is None
        assert (found.text, found.schema) == ("x", "db")


def test_a_load_has_more_in_front_of_its_text() -> None:
    found = read_statement(message(b"LOAD DATA", said(), kind=ev.EXECUTE_LOAD_QUERY), True)
    assert (found.text, found.schema, found.strict) == ("LOAD DATA", "db", True)
