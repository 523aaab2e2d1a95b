"""Filling a view, in one slice and in eight, against CREATE TABLE AS SELECT into Delta at the same epoch.

    .venv/bin/python bench/view_fill.py [--rows N] [--rounds N]

A fill is timed from CREATE MATERIALIZED VIEW to the first version, so it includes the analysis of the query, the
server's loop and all commits. Prints medians in alternating order, and the speed relative to CREATE TABLE AS SELECT.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from headwater.meta import epochs
from view_home import AGGREGATE, JOINED, Lab, lab

ROWS = (
    "SELECT order_id, line, supplier, quantity, price * (1 - discount) AS revenue, note FROM lines WHERE quantity > 0"
)
QUERIES = {"rows": (ROWS, ("lines",)), "aggregate": (AGGREGATE, ("lines",)), "join": (JOINED, ("lines", "orders"))}
GOALS = {1: 0.7, 8: 0.5}  # by slices
WARM = 1


def fill(here: Lab, query: str, rows: int, slices: int) -> float:
    """Seconds until a new view is filled."""
    began = time.monotonic()
    here.hw.sql(f"CREATE MATERIALIZED VIEW made WITH (backfill.rows_per_span = {-(-rows // slices)}) AS {query}")
    here.await_filled("made")
    took = time.monotonic() - began
    here.hw.sql("DROP MATERIALIZED VIEW made")
    return took


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with lab(given.rows) as here:
        for name, (query, tables) in QUERIES.items():
            took: dict[int, list[float]] = {0: [], 1: [], 8: []}
            for i in range(-WARM, given.rounds):
                for slices in took if i % 2 else reversed(took):
                    if slices:
                        seconds = fill(here, query, given.rows, slices)
                    else:
                        with here.hw._home.meta.read() as c:
                            newest = epochs.newest(c)
                        assert newest is not None
                        seconds = here.recompute(f"{name}{i}", query, tables, newest.id)
                    took[slices] += [seconds] if i >= 0 else []
                print(f"{name} round {i}", {k: round(t[-1], 2) for k, t in took.items() if t}, file=sys.stderr)
            middle = {slices: statistics.median(times) for slices, times in took.items()}
            text = f"{name:>10}: CREATE TABLE AS SELECT {middle[0]:.2f} s"
            for slices, goal in GOALS.items():
                text += f"; {slices} slices {middle[slices]:.2f} s: {middle[0] / middle[slices]:.2f} x (>= {goal:g})"
            print(text, flush=True)


if __name__ == "__main__":
    main()
