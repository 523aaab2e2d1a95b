"""EXPLAIN MATERIALIZED VIEW: the operators of its query, and how each is kept up to date."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.view import Shape
from headwater.view.rules import Rule

READ = {
    "none": "nothing: its rows cannot change",
    "append": "added rows",
    "rows": "added and removed rows",
    "groups": "added and removed rows, and the view's own rows of their groups",
    "keys": "all rows of the keys that changed, before and after",
    "full": "all rows",
}
PARTNERS = "the rows that came and went, and their partners in the other inputs"  # of a join that is followed by rows

Row = tuple[str, str, str, str]


def explained(found: Shape) -> list[Row]:
    """Rows of operator (indented as a tree), rule, key, and what a refresh reads for it."""
    return list(_rows(found.rules, found, "", ""))


def _rows(rule: Rule, found: Shape, lead: str, below: str) -> Iterator[Row]:
    name, is_input = rule.operator.removeprefix("input "), rule.operator.startswith("input ")
    read = READ["full" if found.reason else rule.word]
    if is_input:
        read = f"{'all its rows' if found.reason else 'its changes'}: {', '.join(found.inputs.get(name, ()))}"
    elif rule.word == "rows" and len(rule.below) > 1 and "join" in name and not found.reason:
        read = PARTNERS
    note = f"; {rule.note}" if rule.note else ""
    yield lead + rule.operator, rule.word, ", ".join(rule.key), read + note
    for number, each in enumerate(rule.below, 1):
        last = number == len(rule.below)
        yield from _rows(each, found, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))
