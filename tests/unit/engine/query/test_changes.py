"""The rows of changelog(): which tables a name means, and each change once."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.engine.query.changes import changelog_rows
from headwater.errors import DefinitionError
from headwater.meta import relations
from headwater.model import Column, Epoch, EpochEntry, UpstreamType
from headwater.relation.changes import LoggedChanges
from support.defined import add_table
from support.log import Log
from support.messages import begin, commit, relation, row

COLUMNS = (Column("id", "INT", UpstreamType("int4", 23, ordered=True), False),)
TABLES = {1: ("orders", "public.orders"), 2: ("bought", "shop.purchases"), 3: ("old_orders", "archive.orders")}


def _insert(table: int) -> bytes:
    return row("I", table, b"N" + struct.pack("!H", 1) + b"t" + struct.pack("!I", 1) + b"7")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """Changes 1 to 3 of three tables, one each, and a fourth of the first."""
    it = Log(tmp_path_factory.mktemp("log") / "home")
    described = (relation(n, "id") for n in TABLES)
    it.write(begin(101), *described, *(_insert(n) for n in (*TABLES, 1)), commit(200))
    with it.home.meta.write() as c:
        for id, (name, upstream) in TABLES.items():
            add_table(c, name, COLUMNS, ("id",), connection_id=it.id, upstream_id=id, upstream=upstream)
    yield it
    it.home.meta.close()


def indexes(log: Log, table: str | None = None, connection: str = "pg") -> list[int]:
    changes = LoggedChanges(log.home.storage, log.home.meta)
    epoch = Epoch(1, 0.0, (EpochEntry(log.id, 4, "0/0"),))
    pieces = changelog_rows(log.home, changes, epoch, connection, table, None, None)
    return sorted(i for piece in pieces for i in piece["index"].to_pylist())


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (None, [1, 2, 3, 4]),
        ("orders", [1, 4]),
        ("ORDERS", [1, 4]),
        ("public.orders", [1, 4]),
        ("Archive.Orders", [3]),
        ("old_orders", [3]),
        ("bought", [2]),
        ("shop.purchases", [2]),
        ("purchases", [2]),
    ],
)
def test_a_table_is_named_as_in_the_lake_or_as_upstream(log: Log, table: str | None, expected: list[int]) -> None:
    assert indexes(log, table) == expected


def test_a_bare_name_of_two_upstream_tables_means_neither(log: Log, tmp_path: Path) -> None:
    other = Log(tmp_path / "home")
    with other.home.meta.write() as c:
        for name, upstream in (("a", "public.orders"), ("b", "archive.orders")):
            add_table(c, name, COLUMNS, ("id",), connection_id=other.id, upstream=upstream)
    with pytest.raises(DefinitionError) as e:
        indexes(other, "orders")
    assert e.value.code == "name.unknown" and ".orders" in e.value.hint
    other.home.meta.close()


@pytest.mark.parametrize(
    ("connection", "table", "hint"),
    [
        ("pgg", None, "Did you mean pg?"),
        ("pg", "boght", "Did you mean bought?"),
        ("pg", "shop.purchase", "Did you mean shop.purchases?"),
    ],
)
def test_an_unknown_name_is_an_error_that_suggests_the_nearest(
    log: Log, connection: str, table: str | None, hint: str
) -> None:
    with pytest.raises(DefinitionError) as e:
        indexes(log, table, connection)
    assert (e.value.code, e.value.hint) == ("name.unknown", hint)


def test_a_change_appears_once_while_its_table_is_being_resynced(log: Log) -> None:
    with log.home.meta.write() as c:
        old = relations.find(c, "orders")
        assert old is not None
        beside = add_table(
            c,
            relations.BESIDE + "orders",
            COLUMNS,
            ("id",),
            connection_id=log.id,
            upstream="public.orders",
            replaces=old.id,
        )
    try:
        assert indexes(log) == [1, 2, 3, 4]
        assert indexes(log, "public.orders") == [1, 4]
    finally:
        with log.home.meta.write() as c:
            relations.remove(c, beside)


def test_a_change_appears_once_if_two_tables_follow_one_upstream_table(log: Log) -> None:
    narrow, wide = COLUMNS, (*COLUMNS, Column("name", "STRING", UpstreamType("text", 25), True))
    with log.home.meta.write() as c:
        added = [
            add_table(c, name, columns, ("id",), connection_id=log.id, upstream_id=1, upstream="public.orders")
            for name, columns in (("orders_wide", wide), ("orders_again", narrow))
        ]
    try:
        assert indexes(log) == [1, 2, 3, 4]
        assert indexes(log, "public.orders") == indexes(log, "orders_again") == [1, 4]
        changes = LoggedChanges(log.home.storage, log.home.meta)
        epoch = Epoch(1, 0.0, (EpochEntry(log.id, 4, "0/0"),))
        (shown,) = changelog_rows(log.home, changes, epoch, "pg", "public.orders", None, None)
        assert "name" in shown["after"][0].as_py(), "as the table with most columns shows it"
    finally:
        with log.home.meta.write() as c:
            for id in added:
                relations.remove(c, id)
