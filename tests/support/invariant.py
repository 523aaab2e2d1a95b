"""Invariants of the random writer's tables: what every consistent cut must show."""

from __future__ import annotations

from typing import Any

from support.writing import ACCOUNTS, TOTAL

QUERY = (
    "SELECT (SELECT sum(amount) FROM ledger_a) + (SELECT sum(amount) FROM ledger_b) AS total, "
    "(SELECT count(*) FROM ledger_a) AS a, (SELECT count(*) FROM ledger_b) AS b"
)


def check_invariant(total: Any, a: Any, b: Any) -> None:
    """Money is neither created nor lost: a transfer is seen in both tables or in none."""
    assert (int(total), int(a), int(b)) == (TOTAL, ACCOUNTS, ACCOUNTS), (total, a, b)
