"""Holders of a changelog: whoever is listed is respected by retention, and nobody else."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import Connection

from headwater.engine.commit import claims
from headwater.engine.commit import holds as module
from headwater.engine.commit.holds import Need, holds, lowest
from headwater.errors import DataError
from headwater.meta import epochs, relations
from headwater.model import Column, ConnectionInfo, CoveredSpan, Layout, Span, TableState, UpstreamType
from support.defined import add_table
from support.log import Log
from support.messages import begin, commit, relation, row

COLUMNS = (Column("a", "STRING", UpstreamType("text", 25, ordered=True)),)
LAST = 30
FAULT = DataError("data.schema_changed", "the type of column a changed", "RESYNC TABLE bad")
LOST = DataError("data.history_missing", "its changes were not kept", "RESYNC TABLE bad")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path / "home")
    made.write(begin(101), relation(1, "a"), *(row("I", 1) for _ in range(LAST)), commit(200))
    yield made
    made.home.meta.close()


class Life:
    """Tables that come, fill, fold, fail and go, and readers that pin epochs, in a random order."""

    def __init__(self, log: Log, seed: int) -> None:
        self.log = log
        self.rng = random.Random(seed)
        self.tables: dict[int, int] = {}  # by id: the index that the newest base holds
        self.pins: list[int] = []

    def step(self, c: Connection) -> None:
        step = self.rng.choice(
            [self.define, self.publish, self.publish, self.change, self.pin, self.release, self.thin]
        )
        step(c)

    def define(self, c: Connection) -> None:
        replaces = self.rng.choice([0, *self.tables])
        name = f"{relations.BESIDE if replaces else ''}t{self.rng.random()}"
        id = add_table(c, name, COLUMNS, ("a",), connection_id=self.log.id, replaces=replaces)
        relations.set_begin(c, id, self.rng.randint(0, LAST))
        self.tables[id] = 0

    def publish(self, c: Connection) -> None:
        layouts = {}
        for id in self.rng.sample(sorted(self.tables), self.rng.randint(0, len(self.tables))):
            self.tables[id] = index = self.rng.randint(self.tables[id], LAST)
            spans = () if self.rng.random() < 0.2 else (CoveredSpan(Span(None, None), index, index),)
            layouts[id] = Layout(id, 0, spans, self.rng.random() < 0.7)
        epochs.publish(c, [], layouts)

    def change(self, c: Connection) -> None:
        for id in self.tables:
            state = self.rng.choice(list(TableState))
            failed = state is TableState.FAILED
            relations.set_state(c, id, state, self.rng.choice([FAULT, FAULT, LOST]) if failed else None)
            if failed and self.rng.random() < 0.5:
                relations.set_stopped(c, id, self.rng.randint(0, LAST))

    def pin(self, c: Connection) -> None:
        if found := epochs.recent(c, 5):
            self.pins.append(epochs.take_pin(c, self.rng.choice(found).id, f"reader:{self.rng.randint(1, 3)}"))

    def release(self, c: Connection) -> None:
        if self.pins:
            epochs.release_pin(c, self.pins.pop(self.rng.randrange(len(self.pins))))

    def thin(self, c: Connection) -> None:
        epochs.thin(c, time.time() + 1)


@pytest.mark.parametrize("seed", range(8))
def test_retention_keeps_what_the_lowest_of_all_holders_needs(log: Log, seed: int) -> None:
    life, connection = Life(log, seed), log.info()
    seen = set()
    with log.home.meta.write() as c:
        for _ in range(60):
            life.step(c)
            found = lowest(c, connection)
            assert found == min((h.index for h in holds(c, connection)), default=LAST)
            seen.add(found)
    assert len(seen) > 1


def test_a_holder_that_is_added_is_listed_and_respected(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    known = module._needs

    def with_follower(c: Connection, connection: ConnectionInfo) -> Iterator[Need]:
        yield from known(c, connection)
        yield Need("subscription audit", index=4)

    with log.home.meta.write() as c:
        relations.set_begin(c, add_table(c, "t", COLUMNS, ("a",), connection_id=log.id), 7)
        monkeypatch.setattr(module, "_needs", with_follower)
        assert ("subscription audit", 4) in {(h.holder, h.index) for h in holds(c, log.info())}
        assert claims.enforce(c, log.info()).needed == 4


@pytest.mark.parametrize("look", [lowest, holds])
def test_each_tables_layouts_are_read_once_however_many_readers_there_are(
    log: Log, monkeypatch: pytest.MonkeyPatch, look: Callable[[Connection, ConnectionInfo], object]
) -> None:
    looks: list[int] = []
    layouts_of = epochs.layouts_of

    def counted(c: Connection, relation_id: int) -> list[tuple[int, Layout]]:
        looks.append(relation_id)
        return layouts_of(c, relation_id)

    with log.home.meta.write() as c:
        tables = [add_table(c, f"t{n}", COLUMNS, ("a",), connection_id=log.id) for n in range(3)]
        for n in range(5):
            epochs.take_pin(c, epochs.publish(c, [], {}).id, f"reader:{n}")
        monkeypatch.setattr(epochs, "layouts_of", counted)
        look(c, log.info())
    assert sorted(looks) == tables
