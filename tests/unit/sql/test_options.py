"""Options: one form, defaults, the nearest name, and nothing secret shown."""

from __future__ import annotations

import pytest

from headwater.errors import SqlError
from headwater.sql.options import TABLES, shown, validate
from headwater.sql.parse import parse

GIVEN = {"type": "postgres-cdc", "hostname": "h", "username": "u", "database.name": "d"}


def problem(**given: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        validate("connection", GIVEN | {name.replace("__", "."): value for name, value in given.items()})
    return caught.value


def test_defaults_are_filled_in() -> None:
    options = validate("connection", GIVEN)
    assert options["port"] == "5432" and options["schema.name"] == "public"
    assert "slot.name" not in options and "password" not in options


def test_what_a_setting_says_for_all_is_stored_only_where_it_is_given() -> None:
    assert not {"heartbeat.interval", "retention.hours", "changelog.max_bytes"} & validate("connection", GIVEN).keys()
    assert "backfill.rows_per_span" not in validate("table", {})
    given = validate("connection", GIVEN | {"retention.hours": "24", "changelog.max_bytes": "10GB"})
    assert (given["retention.hours"], given["changelog.max_bytes"]) == ("24", str(10 << 30))
    assert shown("connection", given)["retention.hours"] == "24"


def test_values_get_one_form() -> None:
    options = validate(
        "connection",
        GIVEN | {"PORT": "05433", "publication.create": "OFF", "heartbeat.interval": "500ms", "connect.timeout": "1m"},
    )
    assert options["port"] == "5433" and options["publication.create"] == "false"
    assert options["heartbeat.interval"] == "0.5" and options["connect.timeout"] == "60"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("type", "oracle"),
        ("port", "0"),
        ("port", "x"),
        ("hostname", " "),
        ("ssl__mode", "maybe"),
        ("slot__name", "Not-A-Slot"),
        ("slot__name", "x" * 64),
        ("publication__create", "perhaps"),
        ("connect__timeout", "0.5"),
        ("heartbeat__interval", "-1"),
        ("retention__hours", "1.5"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(name: str, value: str) -> None:
    e = problem(**{name: value})
    assert e.code == "sql.bad_option" and " must " in e.message and e.hint


def test_an_unknown_name_gets_the_nearest() -> None:
    assert problem(hostnam="x").hint == "Did you mean hostname?"
    assert problem(database="x").hint == "Did you mean database.name?"
    assert problem(zzz="x").hint.startswith("Options are type, hostname")
    assert problem(zzz="x").code == "sql.unknown_option"


@pytest.mark.parametrize(
    "given",
    [
        {"type": "privatelink", "provider": "aws", "service.name": "com.amazonaws.xyz.us-east-1.abc-xyz-0000"},
        GIVEN | {"connection.name": "pg_privatelink"},
        GIVEN | {"privatelink.targets": '[{"port": 5432}]'},
    ],
)
def test_what_only_hosted_clouds_have_gets_an_answer_of_its_own(given: dict[str, str]) -> None:
    with pytest.raises(SqlError) as caught:
        validate("connection", given)
    assert caught.value.code == "sql.unsupported" and "hosted clouds only" in caught.value.message
    assert "DNS name" in caught.value.hint and "hostname" in caught.value.hint


def test_a_name_that_was_copied_as_a_link_is_told_how_to_write_it() -> None:
    with pytest.raises(SqlError) as caught:
        parse("CREATE CONNECTION c WITH (\n    [database.name](http://database.name/) = 'mydb',\n)")
    assert (caught.value.line, caught.value.column) == (2, 5)
    assert caught.value.hint == "Write database.name = '…'."


def test_a_missing_one_is_named() -> None:
    with pytest.raises(SqlError) as caught:
        validate("connection", {"type": "postgres-cdc"})
    assert caught.value.code == "sql.missing_option" and "hostname" in caught.value.message


def test_only_what_is_on_the_list_and_not_the_default_is_shown() -> None:
    values = validate("connection", GIVEN | {"password": "secret", "port": "5432", "ssl.mode": "require"})
    assert shown("connection", values | {"stray": "x"}) == GIVEN | {"ssl.mode": "require"}


def test_every_default_is_in_its_one_form() -> None:
    for options in TABLES.values():
        for option in options:
            assert option.default is None or option.check(option.default) == option.default
            assert option.doc.endswith(".")
