"""docs/types.md says of MySQL and MariaDB what the tested type table says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.mysql_types import CASES, NOT_KEPT

PAGE = (Path(__file__).parents[2] / "docs" / "types.md").read_text()
TESTED = {c.ddl.removesuffix(" NULL"): c for c in CASES}


def rows(title: str) -> list[list[list[str]]]:
    """Cells of the table under a heading line, each as its words in backticks."""
    lines = PAGE.split(title, 1)[1].strip().splitlines()[1:]
    cells = [line.strip("|").split(" | ") for line in lines[: next(i for i, s in enumerate(lines) if not s)]]
    return [[re.findall(r"`([^`]+)`", cell) for cell in row] for row in cells]


@pytest.mark.parametrize("row", rows("| MySQL, MariaDB | lake | notes |"), ids=lambda r: ",".join(r[0]))
def test_each_documented_type_is_tested_on_a_server(row: list[list[str]]) -> None:
    types, lakes = row[0], row[1]
    assert len(lakes) in (1, len(types))
    for i, type_ in enumerate(types):
        assert TESTED[type_].lake == (lakes[i] if len(lakes) > 1 else lakes[0]), type_


@pytest.mark.parametrize("row", rows("| MySQL, MariaDB | value | why |"), ids=lambda r: f"{r[0][0]} {r[1][0]}")
def test_each_value_documented_as_not_kept_is_tested_on_a_server(row: list[list[str]]) -> None:
    (type_,), (literal,) = row[0], row[1]
    assert (literal, NOT_KEPT) in TESTED[type_].values


def test_the_page_leaves_out_no_family_of_types() -> None:
    documented = {re.match(r"\w+", t)[0] for row in rows("| MySQL, MariaDB | lake | notes |") for t in row[0]}
    assert {re.match(r"\w+", t)[0] for t in TESTED} <= documented
