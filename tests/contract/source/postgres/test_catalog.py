"""The catalog of real servers, old and new, as the stages see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from headwater.demo.embedded import EmbeddedPostgres
from headwater.errors import DefinitionError
from headwater.source.postgres.catalog.catalog import describe_server, describe_table


@pytest.fixture(scope="module", params=[16, 18])
def session(request: pytest.FixtureRequest, pg: EmbeddedPostgres) -> Iterator[Any]:
    server = pg if request.param == 18 else EmbeddedPostgres(request.param)
    server.execute("CREATE DATABASE catalog")
    with server.connect("catalog") as connection:
        yield connection
    if server is not pg:
        server.stop()


@pytest.fixture
def schema(session: Any) -> Iterator[str]:
    session.execute("CREATE SCHEMA s; SET search_path = s")
    yield "s"
    session.execute("DROP SCHEMA s CASCADE; RESET search_path")


def types(session: Any, table: str) -> dict[str, Any]:
    return {c.name: c.type for c in describe_table(session, "s", table).columns}


def test_a_server_tells_who_it_is_and_what_is_left(session: Any) -> None:
    server = describe_server(session)
    assert server.version_num == session.info.server_version
    assert server.wal_level == "logical"
    assert server.timeline == 1
    assert not server.in_recovery
    assert server.slots == 20 and server.user == session.info.user
    assert server.identity["system_identifier"].isdigit()
    assert server.life == describe_server(session).life


def test_a_domain_keeps_the_logs_oid_and_gets_its_base_types_name(session: Any, schema: str) -> None:
    session.execute("CREATE DOMAIN price AS numeric(10,2); CREATE DOMAIN tariff AS price NOT NULL")
    session.execute("CREATE TABLE t (id int PRIMARY KEY, a tariff, b price[], c numeric(12,3)[])")
    (oid,) = session.execute("SELECT 'tariff'::regtype::oid").fetchone()
    found = types(session, "t")
    assert (found["a"].name, found["a"].oid, found["a"].modifier) == ("numeric", oid, -1)
    assert (found["a"].precision, found["a"].scale) == (10, 2)
    assert (found["b"].name, found["b"].precision, found["b"].scale) == ("_numeric", 10, 2)
    assert (found["c"].name, found["c"].precision, found["c"].scale) == ("_numeric", 12, 3)


def test_declared_dimensions_of_arrays_are_kept(session: Any, schema: str) -> None:
    session.execute("CREATE DOMAIN grid AS int[][]; CREATE TABLE t (a int[], b int[][], c grid, d int)")
    assert {k: v.dimensions for k, v in types(session, "t").items()} == {"a": 1, "b": 2, "c": 2, "d": 0}


def test_user_made_types_are_named_by_their_kind(session: Any, schema: str) -> None:
    session.execute("CREATE TYPE mood AS ENUM ('a'); CREATE TYPE pair AS (x int, y int)")
    session.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a mood, b mood[], c pair, d int4range, e int4multirange, f int2vector)"
    )
    names = {k: v.name for k, v in types(session, "t").items()}
    assert names == {
        "id": "int4",
        "a": "enum",
        "b": "_enum",
        "c": "composite",
        "d": "range",
        "e": "range",
        "f": "int2vector",
    }


def test_lengths_precision_and_negative_scale_come_from_the_modifier(session: Any, schema: str) -> None:
    extra = ", f numeric(3,-2)" if session.info.server_version >= 150000 else ""
    session.execute(f"CREATE TABLE t (a varchar(10), b char(3), c bit(1), d varbit(9), e numeric(40,3), g text{extra})")
    found = types(session, "t")
    assert [found[c].length for c in "abcdg"] == [10, 3, 1, 9, None]
    assert (found["e"].precision, found["e"].scale) == (40, 3)
    if extra:
        assert (found["f"].precision, found["f"].scale) == (3, -2)


def test_only_types_that_the_lake_orders_alike_are_ordered(session: Any, schema: str) -> None:
    session.execute("CREATE TYPE mood AS ENUM ('a')")
    session.execute(
        "CREATE TABLE t (a int2, b int4, c int8, d bool, e date, f timestamp, g timestamptz, h uuid, i bytea, "
        'j numeric(38,10), k text COLLATE "C", l varchar COLLATE "POSIX", m name, n text COLLATE ucs_basic, '
        "zz_a numeric, zz_b numeric(39,0), zz_c float8, zz_d mood, zz_e char(4), zz_g interval, "
        "zz_h int[])"
    )
    ordered = {k: v.ordered for k, v in types(session, "t").items()}
    assert ordered == {k: not k.startswith("zz") for k in ordered}


def test_default_collation_is_ordered_in_a_database_of_code_points(session: Any, schema: str) -> None:
    session.execute("CREATE TABLE t (a text)")
    assert types(session, "t")["a"].ordered  # the embedded server is initialised with C.UTF-8


def test_text_of_another_encoding_is_not_ordered(session: Any) -> None:
    session.execute("CREATE DATABASE latin TEMPLATE template0 LOCALE 'C' ENCODING 'LATIN1'")
    i = session.info
    with psycopg.connect(
        host=i.host, port=i.port, user=i.user, password=i.password, dbname="latin", autocommit=True
    ) as other:
        other.execute("CREATE TABLE t (a text, b int)")
        a, b = describe_table(other, "public", "t").columns
        assert (a.type.ordered, b.type.ordered) == (False, True)
    session.execute("DROP DATABASE latin")


def test_a_key_has_its_own_order_and_no_included_columns(session: Any, schema: str) -> None:
    session.execute("CREATE TABLE t (a int, b int, c int, PRIMARY KEY (b, a) INCLUDE (c))")
    table = describe_table(session, "s", "t")
    assert table.key == ("b", "a")
    assert table.identity == "d"
    assert set(table.identity_columns) == {"a", "b"}


def test_dropped_columns_are_gone_and_generated_ones_are_marked(session: Any, schema: str) -> None:
    session.execute("CREATE TABLE t (a int PRIMARY KEY, b int, c int GENERATED ALWAYS AS (a + 1) STORED)")
    session.execute("ALTER TABLE t DROP COLUMN b")
    assert [(c.name, c.generated) for c in describe_table(session, "s", "t").columns] == [("a", ""), ("c", "s")]


def test_leaves_of_a_deep_partition_tree_are_found(session: Any, schema: str) -> None:
    session.execute(
        "CREATE TABLE t (a int, b int, PRIMARY KEY (a, b)) PARTITION BY LIST (a);"
        "CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1) PARTITION BY LIST (b);"
        "CREATE TABLE t11 PARTITION OF t1 FOR VALUES IN (1);"
        "CREATE TABLE t2 PARTITION OF t FOR VALUES IN (2); ALTER TABLE t2 REPLICA IDENTITY FULL"
    )
    table = describe_table(session, "s", "t")
    assert table.kind == "p"
    assert {(leaf.name, leaf.identity) for leaf in table.leaves} == {("t11", "d"), ("t2", "f")}
    assert describe_table(session, "s", "t11").partition_of == ("s", "t")


def test_names_that_need_quotes_are_found_as_they_are(session: Any, schema: str) -> None:
    for name in ('Order "x".y', "select", "täble"):
        session.execute('CREATE TABLE "{}" (id int PRIMARY KEY)'.format(name.replace('"', '""')))
        assert describe_table(session, "s", name).name == name


def test_a_table_of_another_schema_or_case_is_suggested(session: Any, schema: str) -> None:
    session.execute('CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE "Invoices" (id int PRIMARY KEY)')
    for where, given, near in (("s", "invoices", "s.Invoices"), ("public", "orders", "s.orders")):
        with pytest.raises(DefinitionError) as e:
            describe_table(session, where, given)
        assert e.value.code == "table.missing" and f"TABLE '{near}'" in e.value.hint
