"""docs/types.md says what the tested type table says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwater.decode.values import lake_type
from headwater.model import UpstreamType
from support.type_cases import CASES, NOT_KEPT

PAGE = (Path(__file__).parents[2] / "docs" / "types.md").read_text()
ELSEWHERE = {"citext", "ltree", "hstore", "xml"}  # extensions and builds that the embedded server does not have


def rows(title: str) -> list[list[list[str]]]:
    """Cells of the table under a heading line, each as its words in backticks."""
    lines = PAGE.split(title, 1)[1].strip().splitlines()[1:]
    cells = [line.strip("|").split(" | ") for line in lines[: next(i for i, s in enumerate(lines) if not s)]]
    return [[re.findall(r"`([^`]+)`", cell) for cell in row] for row in cells]


@pytest.mark.parametrize("row", rows("| PostgreSQL | lake | notes |"), ids=lambda r: ",".join(r[0]))
def test_each_documented_type_is_tested_on_a_server(row: list[list[str]]) -> None:
    types, lakes = row[0], row[1]
    assert len(lakes) in (1, len(types))
    for i, type_ in enumerate(types):
        lake = lakes[i] if len(lakes) > 1 else lakes[0]
        tested = lake_type(UpstreamType(type_, 1)) if type_ in ELSEWHERE else CASES[type_][0]
        assert tested == lake, type_


@pytest.mark.parametrize("row", rows("| type | value | why |"), ids=lambda r: f"{r[0][0]} {r[1][0]}")
def test_each_value_documented_as_not_kept_is_tested_on_a_server(row: list[list[str]]) -> None:
    (type_,), (literal,) = row[0], row[1]
    assert (literal, NOT_KEPT) in CASES[type_][1]


def test_the_page_leaves_out_no_family_of_types() -> None:
    documented = {t for row in rows("| PostgreSQL | lake | notes |") for t in row[0]}
    own = {"mood", "pair", "cents", "short_text", "mood[]", "pair[]", "timestamp(0)", "numeric(20,19)"}
    scalar = {t for t in CASES if not t.endswith("]")} - own
    assert scalar <= documented
