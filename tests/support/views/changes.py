"""Random transactions over any tables: every kind of change on every table, several tables at once, one seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from support.views.material import Change, Key, Model, Op, Row, Step, Table

NewKey = Callable[[Model, random.Random], Key]  # of a row that is not there yet
KEY_CHANGES = 0.05  # of the updates


@dataclass(slots=True)
class Writer:
    """`step()` is one transaction, already applied to `model`.

    Values come from other rows of the same column, so they match the queries' filters and joins as often as the first
    rows do. All pairs of table and kind of change take their turn, in an order that the seed decides.
    """

    model: Model
    seed: int
    new_keys: Mapping[str, NewKey]
    vary: Mapping[str, Callable[[Any, random.Random], Any]] = field(default_factory=dict)  # by column
    weights: Mapping[str, int] = field(default_factory=dict)  # how often a table's turn comes; 1 unless said
    size: int = 8  # the least number of changes in a transaction
    random: random.Random = field(init=False)
    turns: list[tuple[str, Op]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def step(self) -> Step:
        """A transaction over at least two tables."""
        found: list[Change] = []
        while len(found) < self.size or len({change.table for change in found}) < 2:
            name, op = self.turn()
            change = self.change(self.model.tables[name], op)
            if change is not None:
                self.model.apply((change,))
                found.append(change)
        return tuple(found)

    def turn(self) -> tuple[str, Op]:
        if not self.turns:
            self.turns = [(t, op) for t in self.model.tables for _ in range(self.weights.get(t, 1)) for op in Op]
            self.random.shuffle(self.turns)
        return self.turns.pop()

    def change(self, t: Table, op: Op) -> Change | None:
        """None if there is nothing to change, or one row left, which stays: later rows take their values from it."""
        rows = self.model.rows[t.name]
        if op is not Op.INSERT and len(rows) < 2:
            return None
        pattern = self.random.choice(list(rows.values()))
        if op is Op.INSERT:
            key = self.new_keys[t.name](self.model, self.random)
            return Change(op, t.name, key, with_key(t, self.mixed(t, pattern, 0.5), key))
        key = t.key_of(pattern)
        if op is Op.DELETE:
            return Change(op, t.name, key)
        moved = self.new_keys[t.name](self.model, self.random) if self.random.random() < KEY_CHANGES else key
        return Change(op, t.name, key, with_key(t, self.mixed(t, pattern, 0.25), moved))

    def mixed(self, t: Table, row: Row, share: float) -> Row:
        """The row with a share of its values, and at least one, taken from other rows, and varied."""
        others = list(self.model.rows[t.name].values())
        places = [place for place in range(len(row)) if place not in t.key_places]
        taken = {self.random.choice(places), *(p for p in places if self.random.random() < share)}
        return tuple(
            self.varied(t.names[place], self.random.choice(others)[place]) if place in taken else value
            for place, value in enumerate(row)
        )

    def varied(self, column: str, value: Any) -> Any:
        vary = self.vary.get(column)
        return vary(value, self.random) if vary and value is not None and self.random.random() < 0.5 else value


def with_key(t: Table, row: Row, key: Key) -> Row:
    new = dict(zip(t.key_places, key, strict=True))
    return tuple(new.get(place, value) for place, value in enumerate(row))


def next_number(table: str) -> NewKey:
    """One more than the highest key of a table with one number as its key; a number is never used twice in a row."""
    return lambda model, _random: (max((key[0] for key in model.rows[table]), default=0) + 1,)


def pair_of(table: str, first: str, second: str) -> NewKey:
    """A pair of keys of two other tables that this table does not have yet."""

    def choose(model: Model, random: random.Random) -> Key:
        while True:
            key = (random.choice(list(model.rows[first]))[0], random.choice(list(model.rows[second]))[0])
            if key not in model.rows[table]:
                return key

    return choose
