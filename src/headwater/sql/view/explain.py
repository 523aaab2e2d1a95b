"""EXPLAIN MATERIALIZED VIEW: the operators of its query, and how each is kept up to date."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.view import Shape
from headwater.view.rules import Rule

READ = {
    "none": "nothing: its rows cannot change",
    "append": "the rows that came",
    "rows": "the rows that came and went, and their partners in what did not change",
    "groups": "the rows that came and went, and the view's own rows of their groups",
    "keys": "all rows of the keys that changed, before and after",
    "full": "all rows",
}
READ_INPUT = {"rows": "its changes", "append": "its changes"}

Row = tuple[str, str, str, str]


def explained(found: Shape) -> list[Row]:
    """Rows of operator (indented as a tree), rule, key, and what a refresh reads for it."""
    return list(_rows(found.rules, found, "", ""))


def _rows(rule: Rule, found: Shape, lead: str, below: str) -> Iterator[Row]:
    name = rule.operator.removeprefix("input ")
    is_input = rule.operator.startswith("input ")
    read = (READ_INPUT if is_input else READ).get(rule.word, READ[rule.word])
    if found.reason and is_input:
        read = "all its rows"
    if is_input:
        read = f"{read}: {', '.join(found.inputs.get(name, ()))}"
    note = f"; {rule.note}" if rule.note else ""
    yield lead + rule.operator, rule.word, ", ".join(rule.key), read + note
    for number, each in enumerate(rule.below, 1):
        last = number == len(rule.below)
        yield from _rows(each, found, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))
