"""What it costs to move a view by its inputs' changes, against recomputing it into a Delta table at the same epoch.

    .venv/bin/python bench/views.py [--rows N] [--large N] [--rounds N] [--only CASE ...]

3 M order lines and 750,000 orders are followed from PostgreSQL; each round changes 0.1 % of the rows, spread over all
files. Then, in alternating order, the query is recomputed at that epoch into Delta, and one view each with
`refresh = 'incremental'`, `'full'` and `'auto'` moves there, by the code that the server runs. `whole` logs whole old
rows (REPLICA IDENTITY FULL), `keys` only keys; in `both` the orders change too. `large` has 12 M lines. In `more`
larger shares change, so that `auto` has a choice. Prints medians, ratios, and the time of a step without change.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.engine.view.refresh import plan_step, stand_still
from headwater.meta import views
from view_home import AGGREGATE, JOINED, Lab, lab

QUERIES = {"aggregate": (AGGREGATE, ("lines",)), "join": (JOINED, ("lines", "orders"))}
PER_MILLE = 1000  # one row in so many changes
WARM = 2  # rounds that are not counted: the JVM compiles
GOALS = {
    ("whole", "aggregate"): 4.0,
    ("keys", "aggregate"): 1.8,
    ("whole", "join"): 4.5,
    ("keys", "join"): 1.8,
    ("both", "join"): 2.0,
    ("large", "aggregate"): 10.0,
    ("large", "join"): 10.0,
}
WAYS = ("recomputed", "incremental", "full", "auto")


@dataclass
class Took:
    """Seconds by way, of one query in one case."""

    case: str
    query: str
    seconds: dict[str, list[float]] = field(default_factory=dict)
    strategies: set[str] = field(default_factory=set)

    def line(self) -> str:
        middle = {way: statistics.median(times) for way, times in self.seconds.items()}
        ratio = middle["recomputed"] / middle["incremental"]
        goal = GOALS.get((self.case, self.query))
        text = f"{self.case:>8} {self.query:>10}" + "".join(f" {middle.get(way, 0.0):11.2f}" for way in WAYS)
        text += f" {ratio:6.2f} x" + (f" (>= {goal:g})" if goal else " " * 9)
        if "auto" in middle:
            better = min(middle["incremental"], middle["full"])
            text += f"  auto {middle['auto'] / better:.2f} x the better ({', '.join(sorted(self.strategies))})"
        return text


def update(table: str, remainder: int, every: int = PER_MILLE) -> str:
    """A statement that changes one row in `every`, spread evenly."""
    if table == "orders":
        return f"UPDATE orders SET customer = (customer + 1) & 65535 WHERE id % {every} = {remainder}"
    chosen = f"(order_id * 4 + line) % {every} = {remainder}"
    return f"UPDATE lines SET quantity = quantity + 1, price = price + 10 WHERE {chosen}"


def rounds(here: Lab, case: str, tables: tuple[str, ...], names: tuple[str, ...], count: int, every: int) -> list[Took]:
    """Changes rows, then moves and recomputes each query, in alternating order."""
    took = [Took(case, name) for name in names]
    for i in range(-WARM, count):
        epoch = here.change({table: update(table, (i + WARM) * 7 % every, every) for table in tables})
        for of in took:
            query, inputs = QUERIES[of.query]
            for way in WAYS if i % 2 else reversed(WAYS):
                if way == "recomputed":
                    seconds = here.recompute(of.query, query, inputs, epoch)
                else:
                    seconds, done = here.step(f"{of.query}_{way}", epoch)
                    of.strategies |= {done.strategy} if way == "auto" and i >= 0 else set()
                if i >= 0:
                    of.seconds.setdefault(way, []).append(seconds)
        last = {f"{t.query} {way}": round(s[-1], 2) for t in took for way, s in t.seconds.items()}
        print(f"{case} round {i}", last, file=sys.stderr, flush=True)
    for of in took:
        for way in WAYS[1:]:
            assert here.same(f"{of.query}_{way}", of.query, epoch), f"{of.query}_{way} is not its query"
    return took


def quiet(here: Lab, count: int) -> float:
    """Seconds of a step in which no input of the view changed."""
    times, relation = [], here.relation("join_incremental")
    for i in range(count):
        epoch = here.change({"other": f"INSERT INTO other VALUES ({i})"})
        began = time.monotonic()
        with here.hw._home.meta.read() as c:
            step = plan_step(c, relation, views.last_version(c, relation.id), epoch)
        assert step is not None and step.quiet
        stand_still(here.hw._home, here.hw._server._leases, [step], {})
        times.append(time.monotonic() - began)
    return statistics.median(times)


def cases(given: argparse.Namespace) -> Iterator[Took]:
    """Every case that is asked for."""
    wanted = set(given.only)
    if wanted - {"large"}:
        with lab(given.rows) as here:
            yield from measured(here, given, wanted - {"large"})
    if "large" in wanted:
        with lab(given.large) as here:
            yield from measured(here, given, {"large"})


def measured(here: Lab, given: argparse.Namespace, wanted: set[str]) -> Iterator[Took]:
    for name, (query, _) in QUERIES.items():
        for way in WAYS[1:]:
            here.define(f"{name}_{way}", query, f"WITH (refresh = '{way}')")
    if "quiet" in wanted:
        print(f"a step without change: {quiet(here, max(3, given.rounds)) * 1000:.1f} ms (<= 20)", flush=True)
    every = ("aggregate", "join")
    if "keys" in wanted:
        yield from rounds(here, "keys", ("lines",), every, given.rounds, PER_MILLE)
    for table in ("lines", "orders"):
        here.pg.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    if "whole" in wanted:
        yield from rounds(here, "whole", ("lines",), every, given.rounds, PER_MILLE)
    if "both" in wanted:
        yield from rounds(here, "both", ("lines", "orders"), ("join",), given.rounds, PER_MILLE)
    if "more" in wanted:
        for share in (50, 10, 4):
            here.hw.sql("FOLD TABLE lines; FOLD TABLE orders")  # folds are off: the overlay would grow without bounds
            yield from rounds(here, f"1 in {share}", ("lines",), every, max(1, given.rounds // 2), share)
    if "large" in wanted:
        yield from rounds(here, "large", ("lines",), every, given.rounds, PER_MILLE)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--large", type=int, default=12_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    every = ("quiet", "keys", "whole", "both", "more", "large")
    parser.add_argument("--only", nargs="+", choices=every, default=every)
    given = parser.parse_args()
    print(f"{'case':>8} {'query':>10}" + "".join(f" {way:>11}" for way in WAYS) + "  (seconds, medians)", flush=True)
    for took in cases(given):
        print(took.line(), flush=True)


if __name__ == "__main__":
    main()
