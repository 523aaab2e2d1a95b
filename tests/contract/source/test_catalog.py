"""What CREATE CONNECTION and CREATE TABLE promise over every upstream.

What can be followed is found, and what cannot is refused with its code and with the statement that mends it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from headwater.demo.machine import free_port
from headwater.errors import HeadwaterError, Retry
from support.upstreams import Upstream

SECRET = "s3cret-wörd"


def refusal(call: Callable[[], object]) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as e:
        call()
    assert e.value.hint.endswith((".", ";")), "a hint is a sentence or a statement"
    said = str(e.value) + str(e.value.as_dict())
    assert SECRET not in said and "postgres:postgres" not in said
    return e.value


def refused_table(upstream: Upstream, table: str, *given: object) -> HeadwaterError:
    return refusal(lambda: find(upstream, table, *given))


def find(upstream: Upstream, table: str, columns: object = None, key: object = ()) -> object:
    return upstream.seam().find_table(upstream.schema, table, columns, key)  # type: ignore[arg-type]


def mend(upstream: Upstream, user: str, hint: str) -> list[str]:
    """Runs the statements of a hint about a user literally, and gives them back.

    Who is not let in at all is not told as which account the server knows them: there the hint leaves it open.
    """
    statements = re.findall(r"(?:ALTER|GRANT) [^;]*;", hint)
    assert statements, hint
    for statement in statements:
        upstream.execute(statement.replace(" TO …;", f" TO {upstream.account(user)};"))
    return statements


def test_an_upstream_that_is_ready_passes(upstream: Upstream) -> None:
    notices = upstream.seam().check()
    assert [n for n in notices if "never removes its binlogs" not in n] == []  # which is this MariaDB's default


def test_a_wrong_host_or_port_is_unreachable_and_retried(upstream: Upstream) -> None:
    for wrong in ({"port": str(free_port())}, {"hostname": "nowhere.invalid"}):
        e = refusal(upstream.seam(wrong).check)
        assert (e.code, e.retry) == ("source.unreachable", Retry.AUTO), wrong
        assert e.__cause__ is not None


def test_a_wrong_password_or_user_is_reported_without_any_password(upstream: Upstream) -> None:
    e = refusal(upstream.seam(password=SECRET).check)
    assert (e.code, e.retry) == ("source.authentication", Retry.AFTER_FIX)
    assert upstream.server.user in e.message and e.__cause__ is not None
    assert refusal(upstream.seam({"username": "stranger"}).check).code == "source.authentication"


def test_a_wrong_database_is_named(upstream: Upstream) -> None:
    e = refusal(upstream.seam({"database.name": "atlantis"}).check)
    assert e.code == "source.database_missing" and "atlantis" in e.message


def test_a_user_who_may_not_read_the_log_gets_each_statement(upstream: Upstream) -> None:
    with upstream.login("plain user"):
        run: list[str] = []
        while len(run) < len(upstream.log_grants):
            e = refusal(upstream.seam_of("plain user").check)
            assert e.code == "source.privilege"
            run += mend(upstream, "plain user", e.hint)
        assert [s.split(" TO ")[0] for s in run] == [g.format(upstream.database.name) for g in upstream.log_grants]
        upstream.seam_of("plain user").check()


def test_a_table_is_found_with_its_columns_and_its_key(upstream: Upstream) -> None:
    upstream.execute(
        f"CREATE TABLE {upstream.quote('Größe')} (b varchar(20), id bigint, {upstream.quote('größe')} decimal(12,3) "
        "NOT NULL, PRIMARY KEY (id))"
    )
    found = upstream.seam().find_table(upstream.schema, "Größe", None, ())
    assert (found.schema, found.name, found.key, found.notices) == (upstream.schema, "Größe", ("id",), ())
    assert [(c.name, c.not_null) for c in found.columns] == [("b", False), ("id", True), ("größe", True)]
    b, id, size = (c.type for c in found.columns)
    assert (b.length, b.textual, id.ordered, id.stored_aside) == (20, True, True, False)
    assert (size.precision, size.scale, size.dialect or "postgres") == (12, 3, id.dialect or "postgres")


def test_a_view_is_refused(upstream: Upstream) -> None:
    upstream.execute("CREATE VIEW v AS SELECT 1 AS id")
    e = refused_table(upstream, "v")
    assert e.code == "table.not_plain" and "a view" in e.message


def test_a_table_without_a_key_gets_the_statement(upstream: Upstream) -> None:
    upstream.execute("CREATE TABLE bare (id int)")
    upstream.execute("CREATE TABLE nullable (id int UNIQUE)")
    for name in ("bare", "nullable"):
        e = refused_table(upstream, name)
        assert e.code == "table.no_key" and f"{upstream.quote(name)} ADD PRIMARY KEY" in e.hint


def test_a_missing_table_suggests_the_nearest_names(upstream: Upstream) -> None:
    upstream.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    for given in ("oders", "Order", "Orders"):
        e = refused_table(upstream, given)
        assert e.code == "table.missing", "names differ in case"
        assert re.search(r"TABLE '(\w+\.)?orders'", e.hint), e.hint


def test_declared_columns_are_matched_by_name_and_missing_ones_listed(upstream: Upstream) -> None:
    upstream.execute(f"CREATE TABLE t (id int PRIMARY KEY, {upstream.quote('Name')} int, b int)")
    found = upstream.seam().find_table(upstream.schema, "t", ["B", "ID", "name"], ())
    assert [c.name for c in found.columns] == ["b", "id", "Name"]
    e = refused_table(upstream, "t", ["id", "nome"])
    assert e.code == "table.column_missing" and "Name" in e.hint


@pytest.mark.parametrize("name", ["a b", "a,b", "a;b", "a{b", "a)b", "a\nb", "a\tb", "a=b", "__index", "__Base0"])
def test_names_that_delta_cannot_store_are_refused_unless_left_out(upstream: Upstream, name: str) -> None:
    upstream.execute(f"CREATE TABLE t (id int PRIMARY KEY, {upstream.quote(name)} int)")
    e = refused_table(upstream, "t")
    assert e.code == "table.column_name" and "RENAME COLUMN" in e.hint
    assert [c.name for c in upstream.seam().find_table(upstream.schema, "t", ["id"], ()).columns] == ["id"]


def test_a_declared_key_must_be_the_upstreams_in_any_order(upstream: Upstream) -> None:
    upstream.execute("CREATE TABLE t (a int, b int, c int, PRIMARY KEY (b, a))")
    assert upstream.seam().find_table(upstream.schema, "t", ["a", "b"], ["a", "b"]).key == ("b", "a")
    for columns, key in ((["a", "b", "c"], ["c"]), (["a", "c"], []), (None, ["a"])):
        e = refused_table(upstream, "t", columns, key)
        assert e.code == "table.key_differs" and "PRIMARY KEY (b, a)" in e.hint


def test_a_table_that_may_not_be_read_gets_the_statement(upstream: Upstream) -> None:
    upstream.execute("CREATE TABLE t (id int PRIMARY KEY)")
    upstream.execute("CREATE TABLE other (id int PRIMARY KEY)")
    with upstream.login("reader"):
        upstream.grant_select("other", "reader")
        seam = upstream.seam_of("reader")
        e = refusal(lambda: seam.find_table(upstream.schema, "t", None, ()))
        assert e.code == "source.privilege"
        (statement,) = mend(upstream, "reader", e.hint)
        assert statement.startswith(f"GRANT SELECT ON {upstream.quote(upstream.schema)}.{upstream.quote('t')} TO ")
        assert seam.find_table(upstream.schema, "t", None, ()).key == ("id",)


def test_the_number_of_rows_is_estimated(upstream: Upstream) -> None:
    upstream.execute("CREATE TABLE t (id int PRIMARY KEY)")
    upstream.fill("t", 900, "i")
    upstream.analyse("t")
    assert 500 < upstream.seam().find_table(upstream.schema, "t", None, ()).rows_estimate < 1500
