"""Positions and sets of transactions, against naive ones."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import DataError
from headwater.source.mysql.binlog import gtid
from headwater.source.mysql.binlog.gtid import MariaGtids, MysqlGtids
from headwater.source.mysql.binlog.position import Position, table_number
from headwater.source.mysql.resume import parse_owned

SERVERS = [uuid.UUID(int=i).bytes for i in (1, 2**127)]
SOURCES = [*SERVERS, SERVERS[0] + b"blue", SERVERS[0] + b"_a1"]
members = st.sets(st.tuples(st.sampled_from(SOURCES), st.integers(1, 40)), max_size=60)


def made(naive: set[tuple[bytes, int]]) -> MysqlGtids:
    return MysqlGtids().add((source, n, n) for source, n in naive)


def naive_of(gtids: MysqlGtids) -> set[tuple[bytes, int]]:
    return {(s, n) for s, of in gtids.intervals.items() for first, last in of for n in range(first, last + 1)}


@given(members, members)
def test_mysql_sets_behave_as_sets(a: set[tuple[bytes, int]], b: set[tuple[bytes, int]]) -> None:
    assert naive_of(made(a)) == a
    assert naive_of(made(a).union(made(b))) == a | b
    assert made(a).within(made(b)) == (a <= b)
    assert all(made(a).contains(source, n) == ((source, n) in a) for source in SOURCES for n in range(1, 42))
    assert MysqlGtids.parse(str(made(a))) == made(a)
    assert str(made(a)) == str(made(a | a))


def test_a_mysql_set_is_written_as_the_server_writes_it() -> None:
    text = "00000000-0000-0000-0000-000000000001:1-5:7:_a1:2:blue:1-3,80000000-0000-0000-0000-000000000000:9"
    assert str(MysqlGtids.parse(text.upper().replace(",", ",\n"))) == text


def test_a_set_is_sent_with_tags_only_if_it_has_some() -> None:
    plain = MysqlGtids.parse("00000000-0000-0000-0000-000000000001:1-5").encode()
    assert plain == bytes([1, *[0] * 7, *SERVERS[0], 1, *[0] * 7, 1, *[0] * 7, 6, *[0] * 7])
    tagged = MysqlGtids.parse("00000000-0000-0000-0000-000000000001:blue:1-5").encode()
    assert tagged[:8] == bytes([1, 1, 0, 0, 0, 0, 0, 1])
    assert tagged[24:29] == bytes([8, *b"blue"])


def test_transactions_that_are_on_their_way_are_read_without_their_sessions() -> None:
    text = "00000000-0000-0000-0000-000000000001:7#12:9#13,80000000-0000-0000-0000-000000000000:blue:3#5"
    assert naive_of(parse_owned(text)) == {(SERVERS[0], 7), (SERVERS[0], 9), (SERVERS[1] + b"blue", 3)}


def test_mariadb_keeps_the_last_transaction_of_each_domain() -> None:
    gtids = MariaGtids.parse("0-1-100,3-2-7")
    source = (0).to_bytes(4, "little") + (9).to_bytes(4, "little")
    later = gtids.add([(source, 101, 105)])
    assert str(later) == "0-9-105,3-2-7"
    assert gtids.within(later)
    assert not later.within(gtids)
    assert later.contains(source, 50)
    assert not later.contains(source, 106)
    assert str(gtids.union(MariaGtids.parse("0-1-99,5-5-5"))) == "0-1-100,3-2-7,5-5-5"


def test_the_dialect_shows_in_the_text() -> None:
    assert gtid.parse("") is None
    assert isinstance(gtid.parse("0-1-100"), MariaGtids)
    assert isinstance(gtid.parse("00000000-0000-0000-0000-000000000001:1"), MysqlGtids)
    with pytest.raises(DataError):
        gtid.parse("nonsense")


@given(
    st.sampled_from(["binlog", "mysql-bin", "a.b"]),
    st.integers(1, 9_999_999),
    st.integers(4, 2**36 - 1),
    st.integers(-1000, 1000),
    st.sampled_from(["", "0-1-100,1-1-2", "00000000-0000-0000-0000-000000000001:1-5:7:blue:1"]),
)
def test_a_position_is_read_as_it_was_written(base: str, file: int, offset: int, shift: int, gtids: str) -> None:
    position = Position.of(f"{base}.{file:06d}", offset, shift, gtids)
    assert Position.parse(str(position)) == position
    assert position.name == f"{base}.{file:06d}"
    if file + shift > 0:
        assert position.at(position.number, gtids) == position


def test_positions_compare_by_number_and_not_as_text() -> None:
    old, new = Position.of("binlog.999999", 500), Position.of("binlog.1000000", 4)
    assert old.number < new.number
    assert str(old.at(new.number, "")) == "binlog.1000000:4"


def test_a_text_that_is_not_a_position_is_refused() -> None:
    with pytest.raises(DataError):
        Position.parse("0/16B3748")


def test_a_tables_number_is_its_names() -> None:
    assert table_number("a", "b") != table_number("a\0b", "")
    assert table_number("shop", "orders") == table_number("shop", "orders") > 0
