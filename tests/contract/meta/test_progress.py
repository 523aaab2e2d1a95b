"""Questions to meta about all relations at once give what the same question about each gives."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from headwater.meta import epochs, progress, relations, segments, spans, tables
from headwater.meta.progress import Range
from headwater.meta.store import Meta
from headwater.model import CoveredSpan, Layout, Span
from support.defined import add_table


@pytest.fixture(params=["sqlite", "postgres"])
def meta(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Meta]:
    url = f"sqlite:///{tmp_path / 'meta.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("database").dsn
    store = Meta(url)
    yield store
    store.close()


def test_changes_of_many_ranges_are_counted_as_those_of_each(meta: Meta, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "BATCH", 7)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    parts = []
    for connection in (1, 2):
        index = 1
        for number in range(120):
            first, last = index, index + dice.randrange(40)
            index = last + 1
            changes = dice.randint(1, last - first + 1)
            row = {
                "connection_id": connection,
                "segment_index": first,
                "batch": number,
                "upstream_id": dice.randrange(5),
            }
            parts.append(
                {**row, "schema_id": 1, "changes": changes, "truncates": 0, "first_index": first, "last_index": last}
            )
    ranges = {
        id: Range(dice.randint(1, 2), dice.randrange(6), dice.randrange(3000), dice.randrange(3000)) for id in range(40)
    }
    with meta.write() as c:
        c.execute(sa.insert(tables.part), parts)
        found = progress.changes(c, ranges)
        each = {
            id: segments.count_changes(c, r.connection_id, r.upstream_id, r.after, r.upto) for id, r in ranges.items()
        }
    assert found == each and any(each.values())
    with meta.read() as c:
        assert progress.changes(c, {}) == {}


def test_layouts_of_all_relations_are_those_of_each(meta: Meta) -> None:
    def layout(id: int, version: int) -> Layout:
        return Layout(id, version, (CoveredSpan(Span(None, None), version, version),), True)

    with meta.write() as c:
        for version, changed in enumerate([(1, 2), (2,), (), (1, 3)]):
            epochs.publish(c, [], {id: layout(id, version) for id in changed})
        for epoch in range(5):
            each = {id: found for id in (1, 2, 3) if (found := epochs.layout_at(c, id, epoch)) is not None}
            assert epochs.layouts_at(c, epoch) == each


def test_progress_of_all_relations_is_that_of_each(meta: Meta) -> None:
    with meta.write() as c:
        for name in ("a", "b"):
            add_table(c, name)
        spans.add(c, 1, [Span(None, None)] * 3, 1.0)
        spans.cover(c, spans.all(c, 1)[0].id, 9)
        relations.set_planned(c, 1, True)
        relations.set_rows_estimate(c, 2, 77)
        found = progress.of_all(c)
        for id in (1, 2):
            each = spans.all(c, id)
            assert found[id].counts == Counter(s.state for s in each) and found[id].rows == sum(s.rows for s in each)
            assert found[id].planned == relations.planned(c, id)
        assert (found[1].covered, found[1].total, found[1].share, found[1].complete) == (1, 3, 0.0, False)
        assert (found[2].rows_estimate, found[2].total, found[2].share) == (77, 0, 0.0)
        before = relations.folded_times(c)
        relations.set_folded(c, 2)
        after = relations.folded_times(c)
        assert after.keys() == {1, 2} and after[1] == before[1] and after[2] > before[2]
