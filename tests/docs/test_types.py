"""docs/types.md says what the tested type tables say, of every kind of database."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headwater.decode.values import lake_type
from headwater.model import UpstreamType
from support import mysql_types, type_cases

PAGE = (Path(__file__).parents[2] / "docs" / "types.md").read_text()
ELSEWHERE = {"citext", "ltree", "hstore", "xml"}  # extensions and builds that the embedded PostgreSQL does not have
OWN = {"mood", "pair", "cents", "short_text", "mood[]", "pair[]", "timestamp(0)", "numeric(20,19)"}  # of the tests

Cells = list[list[str]]
# By the heading of the page's table: lake type, and literals with what the lake holds
TESTED: dict[str, dict[str, tuple[str, Any]]] = {
    "PostgreSQL": {
        **type_cases.CASES,
        **{t: (lake_type(UpstreamType(t, 1)), ()) for t in ELSEWHERE},
    },
    "MySQL, MariaDB": {c.ddl.removesuffix(" NULL"): (c.lake, c.values) for c in mysql_types.CASES},
}


def rows(title: str) -> list[Cells]:
    """Cells of the table under a heading line, each as its words in backticks."""
    lines = PAGE.split(title, 1)[1].strip().splitlines()[1:]
    cells = [line.strip("|").split(" | ") for line in lines[: next(i for i, s in enumerate(lines) if not s)]]
    return [[re.findall(r"`([^`]+)`", cell) for cell in row] for row in cells]


DOCUMENTED = [(kind, row) for kind in TESTED for row in rows(f"| {kind} | lake | notes |")]
NOT_KEPT = [("PostgreSQL", row) for row in rows("| type | value | why |")]
NOT_KEPT += [("MySQL, MariaDB", row) for row in rows("| MySQL, MariaDB | value | why |")]


@pytest.mark.parametrize(("kind", "row"), [pytest.param(k, r, id=f"{k}: {','.join(r[0])}") for k, r in DOCUMENTED])
def test_each_documented_type_is_tested_on_a_server(kind: str, row: Cells) -> None:
    types, lakes = row[0], row[1]
    assert len(lakes) in (1, len(types))
    for i, type_ in enumerate(types):
        assert TESTED[kind][type_][0] == (lakes[i] if len(lakes) > 1 else lakes[0]), type_


@pytest.mark.parametrize(("kind", "row"), [pytest.param(k, r, id=f"{r[0][0]} {r[1][0]}") for k, r in NOT_KEPT])
def test_each_value_documented_as_not_kept_is_tested_on_a_server(kind: str, row: Cells) -> None:
    (type_,), (literal,) = row[0], row[1]
    assert (literal, None) in TESTED[kind][type_][1]


@pytest.mark.parametrize("kind", TESTED)
def test_the_page_leaves_out_no_family_of_types(kind: str) -> None:
    documented = {t for of, row in DOCUMENTED if of == kind for t in row[0]}
    if kind == "PostgreSQL":
        assert {t for t in TESTED[kind] if not t.endswith("]")} - OWN <= documented
    else:
        families = {re.match(r"\w+", t)[0] for t in documented}  # type: ignore[index]
        assert {re.match(r"\w+", t)[0] for t in TESTED[kind]} <= families  # type: ignore[index]
