"""Definitions through SQL on a real upstream: what stands, what is refused, and that nothing half-made is left."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import headwater
from headwater.cli import render
from headwater.engine.home import is_home
from headwater.engine.results import Result
from headwater.errors import HeadwaterError

TABLES = """
CREATE TABLE orders (order_id int PRIMARY KEY, price numeric(10,2), note text);
CREATE TABLE items (order_id int, line int, sku text, PRIMARY KEY (order_id, line));
CREATE TABLE keyless (a int);
CREATE TABLE twins (id int PRIMARY KEY, "A" int, a int);
CREATE SCHEMA sales;
CREATE TABLE sales."Odd.Name" ("Id" int PRIMARY KEY);
"""


class Home:
    """An open home and the connection text for the test's database."""

    def __init__(self, path: Path, database: Any) -> None:
        self.path = path
        self.hw: Any = headwater.open(path)
        self.database = database

    def connection(self, name: str = "c", **changes: str) -> str:
        server = self.database.server
        options = {
            "type": "postgres-cdc",
            "hostname": server.host,
            "port": str(server.port),
            "username": server.user,
            "password": server.password,
            "database.name": self.database.name,
            "connect.timeout": "5",
        } | {k.replace("__", "."): v for k, v in changes.items()}
        listed = ", ".join(f"{k} = '{v}'" for k, v in options.items())
        return f"CREATE CONNECTION {name} WITH ({listed},);"

    def sql(self, text: str) -> list[Result]:
        return list(self.hw.sql(text))

    def refused(self, text: str) -> HeadwaterError:
        with pytest.raises(HeadwaterError) as caught:
            self.hw.sql(text)
        assert caught.value.hint.strip().endswith((".", ";", "?")), caught.value.hint
        return caught.value

    def names(self, kind: str) -> list[str]:
        if not is_home(self.path):  # what was refused did not even make one
            return []
        (result,) = self.sql(f"SHOW {kind}")
        assert result.rows is not None
        return [str(v) for v in result.rows.column("name").to_pylist()]


@pytest.fixture
def home(database: Any, tmp_path: Path) -> Iterator[Home]:
    database.execute(TABLES)
    opened = Home(tmp_path / "home", database)
    with contextlib.closing(opened.hw):
        yield opened


def test_the_same_definitions_again_are_a_no_op_however_they_are_spelled(home: Home) -> None:
    home.sql(home.connection() + "CREATE TABLE orders (order_id int PRIMARY KEY, price decimal) FROM CONNECTION c;")
    again = home.connection("c", port=f"0{home.database.server.port}", schema__name="public")
    table = "create table ORDERS (Order_Id INTEGER, price numeric, primary key (ORDER_ID),) from connection C"
    results = home.sql(again.replace("CONNECTION c", "CONNECTION C") + table)
    assert ["already exists" in r.message for r in results] == [True, True]
    assert home.names("TABLES") == ["orders"]


def test_a_number_that_only_text_can_hold_is_reported_unless_it_is_declared(home: Home) -> None:
    home.database.execute("CREATE TABLE free (id int PRIMARY KEY, n numeric, d numeric(10,2), t text)")
    (_, told) = home.sql(home.connection() + "CREATE TABLE a FROM CONNECTION c TABLE 'public.free'")
    assert [w.split(" is numeric")[0] for w in told.warnings] == ["column n"] and "DECIMAL(p,s)" in told.warnings[0]
    (quiet,) = home.sql(
        "CREATE TABLE b (id int, n decimal(20,4), PRIMARY KEY (id)) FROM CONNECTION c TABLE 'public.free'"
    )
    assert quiet.warnings == ()


def test_a_resync_takes_a_wider_type_unless_the_definition_declares_a_narrower_one(home: Home) -> None:
    definition = "FROM CONNECTION c TABLE 'public.orders'"
    home.sql(home.connection() + f"CREATE TABLE open {definition}")
    home.sql(f"CREATE TABLE fixed (order_id int, price decimal(10,2), PRIMARY KEY (order_id)) {definition}")
    home.database.execute("ALTER TABLE orders ALTER price TYPE numeric(20,2)")
    home.sql("RESYNC TABLE open")
    refused = home.refused("RESYNC TABLE fixed")
    assert refused.code == "table.column_type" and "Declare it as decimal(20,2)" in refused.hint


def test_names_beyond_ascii_are_found(home: Home) -> None:
    home.sql(home.connection("É") + 'CREATE TABLE "Ärzte" FROM CONNECTION É TABLE orders')
    home.sql(home.connection("É") + 'CREATE TABLE "Ärzte" FROM CONNECTION É TABLE orders')
    assert home.names("TABLES") == ["Ärzte"]


def test_another_definition_under_the_name_shows_the_difference(home: Home) -> None:
    home.sql(home.connection() + "CREATE TABLE orders (order_id int PRIMARY KEY, price decimal) FROM CONNECTION c;")
    e = home.refused("CREATE TABLE orders (order_id int PRIMARY KEY, price string) FROM CONNECTION c")
    assert e.code == "name.taken"
    assert "-     price decimal," in e.message and "+     price string," in e.message
    assert "order_id" not in e.message
    e = home.refused(home.connection(heartbeat__interval="1m"))
    assert e.code == "name.taken" and "+     heartbeat.interval = '60'" in e.message
    home.sql("CREATE TABLE IF NOT EXISTS orders FROM CONNECTION c")


def test_a_table_may_come_from_another_schema_and_a_name_that_needs_quotes(home: Home) -> None:
    home.sql(home.connection() + "CREATE TABLE odd FROM CONNECTION c TABLE 'sales.\"Odd.Name\"'")
    (shown,) = home.sql("DESCRIBE odd")
    assert shown.rows is not None and shown.rows.column("column").to_pylist() == ["Id"]


@pytest.mark.parametrize(
    ("table", "code"),
    [
        ("CREATE TABLE nothing FROM CONNECTION c", "table.missing"),
        ("CREATE TABLE t FROM CONNECTION c TABLE 'nowhere.orders'", "table.missing"),
        ("CREATE TABLE keyless FROM CONNECTION c", "table.no_key"),
        ("CREATE TABLE twins FROM CONNECTION c", "table.column_case"),
        ("CREATE TABLE orders (order_id int PRIMARY KEY, prize decimal) FROM CONNECTION c", "table.column_missing"),
        ("CREATE TABLE orders (order_id smallint PRIMARY KEY) FROM CONNECTION c", "table.column_type"),
        ("CREATE TABLE orders (order_id int, note string PRIMARY KEY) FROM CONNECTION c", "table.key_differs"),
        ("CREATE TABLE items (order_id int PRIMARY KEY, line int) FROM CONNECTION c", "table.key_differs"),
        ("CREATE TABLE orders FROM CONNECTION d", "name.unknown"),
    ],
)
def test_a_table_that_cannot_be_followed_is_refused_and_leaves_nothing(home: Home, table: str, code: str) -> None:
    home.sql(home.connection())
    e = home.refused(table)
    assert (e.code, e.exit_status) == (code, 2)
    assert home.names("TABLES") == []
    assert home.database.execute("SELECT count(*) FROM pg_publication") == [(0,)]


@pytest.mark.parametrize(
    ("changes", "code", "status"),
    [
        ({"port": "1"}, "source.unreachable", 1),
        ({"hostname": "nowhere.invalid"}, "source.unreachable", 1),
        ({"password": "planted-secret"}, "source.authentication", 1),
        ({"username": "stranger"}, "source.authentication", 1),
        ({"database__name": "atlantis"}, "source.database_missing", 1),
        ({"password": "env:HEADWATER_TEST_UNSET"}, "secret.missing", 2),
        ({"password": "file:/nowhere/secret"}, "secret.missing", 2),
        ({"publication__create": "false"}, "source.publication_missing", 1),
        ({"type": "oracle-cdc"}, "sql.bad_option", 2),
        ({"type": "mysql-cdc"}, "source.unreachable", 1),
    ],
)
def test_a_connection_that_cannot_be_captured_is_refused_and_leaves_nothing(
    home: Home, changes: dict[str, str], code: str, status: int
) -> None:
    e = home.refused(home.connection(**changes))
    assert (e.code, e.exit_status) == (code, status)
    assert "planted-secret" not in json.dumps(e.as_dict())
    assert home.names("CONNECTIONS") == []


def test_a_block_stands_together_or_not_at_all(home: Home) -> None:
    block = home.connection() + "CREATE TABLE orders FROM CONNECTION c; CREATE TABLE keyless FROM CONNECTION c;"
    assert home.refused(f"BEGIN; {block} COMMIT;").code == "table.no_key"
    assert home.names("CONNECTIONS") == home.names("TABLES") == []
    assert home.refused(f"BEGIN; {home.connection()}").code == "sql.syntax"
    assert home.names("CONNECTIONS") == []
    home.sql(f"BEGIN; {block.replace('keyless', 'items')} COMMIT;")
    assert home.names("TABLES") == ["orders", "items"]


def test_a_connection_with_tables_is_dropped_only_with_them(home: Home) -> None:
    home.sql(home.connection() + "CREATE TABLE orders FROM CONNECTION c;")
    e = home.refused("DROP CONNECTION c")
    assert e.code == "name.in_use" and "orders" in e.message and "CASCADE" in e.hint
    home.sql("DROP CONNECTION c CASCADE")
    assert home.names("CONNECTIONS") == home.names("TABLES") == []
    assert "does not exist" in home.sql("DROP TABLE IF EXISTS orders")[0].message


def test_an_unknown_name_gets_the_nearest(home: Home) -> None:
    home.sql(home.connection("shop") + "CREATE TABLE orders FROM CONNECTION shop;")
    assert home.refused("DESCRIBE ordrs").hint == "Did you mean orders?"
    assert home.refused("DROP CONNECTION shp").hint == "Did you mean shop?"
    assert home.refused("SHOW CREATE TABLE nothing").code == "name.unknown"
    assert home.refused("FOLD TABLE ordres").hint == "Did you mean orders?"


def test_show_create_gives_back_the_definition(home: Home) -> None:
    home.sql(home.connection() + "CREATE TABLE o FROM CONNECTION c TABLE orders WITH (deletion_vectors = false)")
    (shown,) = home.sql("SHOW CREATE TABLE o")
    assert shown.rows is not None
    text = str(shown.rows.column(0)[0])
    assert text == "CREATE TABLE o FROM CONNECTION c TABLE orders WITH (\n    deletion_vectors = 'false'\n);"
    assert "already exists" in home.sql(text)[0].message


def test_a_password_is_never_printed_again(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    home.database.execute("DROP ROLE IF EXISTS planted; CREATE ROLE planted SUPERUSER LOGIN PASSWORD 'pl4nted-s3cret'")
    try:
        seen = [repr(r) for r in home.sql(home.connection(username="planted", password="pl4nted-s3cret"))]
        home.sql("CREATE TABLE orders FROM CONNECTION c")
        for text in ("SHOW CONNECTIONS", "SHOW CREATE CONNECTION c", "SHOW TABLES", "SHOW CREATE TABLE orders"):
            seen += [json.dumps(r.rows.to_pylist(), default=str) for r in home.sql(text) if r.rows is not None]
        seen.append(json.dumps(home.hw.status().as_dict()))
        for text in (
            home.connection(username="planted", password="pl4nted-s3cret-2"),
            home.connection(username="planted", password="pl4nted-s3cret", port="1").replace(
                "CONNECTION c", "CONNECTION d"
            ),
            home.connection(username="planted", password="pl4nted-s3cret", oops="1"),
            home.connection(username="planted", password="pl4nted-s3cret").removesuffix(",);"),
        ):
            e = home.refused(text)
            shown = io.StringIO()
            Console(file=shown, width=400).print(render.error(e))
            seen += [shown.getvalue(), repr(e), json.dumps(e.as_dict())]
        seen += [p.read_text(errors="replace") for p in home.path.rglob("*") if p.suffix in (".log", ".txt")]
        seen += list(capfd.readouterr())
        assert "pl4nted" not in "\n".join(seen)
    finally:
        home.database.execute("DROP ROLE planted")


def test_a_new_password_replaces_the_old_one_and_a_reference_is_followed(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.sql(home.connection())
    monkeypatch.setenv("HEADWATER_TEST_PASSWORD", home.database.server.password)
    (changed,) = home.sql(home.connection(password="env:HEADWATER_TEST_PASSWORD"))
    assert changed.message == "connection c: password changed"
    file = tmp_path / "password"
    file.write_text(home.database.server.password + "\n")
    home.sql(home.connection(password=f"file:{file}"))
    home.sql("CREATE TABLE orders FROM CONNECTION c")


def test_a_fold_without_a_server_says_what_to_start(home: Home) -> None:
    home.sql(home.connection() + "CREATE TABLE orders FROM CONNECTION c")
    e = home.refused("FOLD TABLE orders")
    assert "headwater run" in e.hint


def test_definitions_outlive_the_home_being_closed(home: Home) -> None:
    home.sql(home.connection() + "CREATE TABLE orders FROM CONNECTION c")
    home.hw.close()
    home.hw = headwater.open(home.path)
    assert home.names("TABLES") == ["orders"]


def test_where_a_password_comes_from_is_shown_and_the_password_is_not(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = home.database.server.password
    monkeypatch.setenv("SHOP_PASSWORD", secret)
    (tmp_path / "it's").write_text(secret)
    quoted = str(tmp_path / "it's").replace("'", "''")
    for name, given in (("a", "env:SHOP_PASSWORD"), ("b", f"file:{quoted}"), ("c", secret)):
        home.sql(home.connection(name, password=given))
        (shown,) = home.sql(f"SHOW CREATE CONNECTION {name}")
        assert shown.rows is not None
        text = str(shown.rows.column(0)[0])
        assert (f"password = '{given}'" in text) == (name != "c")
        if name == "c":
            assert "password" not in text
        else:
            assert home.sql(text)[0].message == f"connection {name} already exists"


def test_a_pattern_in_the_place_of_a_table_is_told_what_there_is(home: Home) -> None:
    home.sql(home.connection())
    e = home.refused("CREATE TABLE t FROM CONNECTION c TABLE 'public.*'")
    assert e.code == "table.missing" and e.hint.startswith("Write one CREATE TABLE for each table")
    assert "public.orders" in e.hint
