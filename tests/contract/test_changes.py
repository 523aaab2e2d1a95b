"""What every source of a relation's changes keeps: the suite of `relation.changes.Changes`, over each implementation.

One random history is the model. A source of changes is asked for parts of it, under limits that cut it anywhere.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.meta import relations
from headwater.model import Bound, Column, Op, RelationInfo, Span
from headwater.relation.changes import Changes, LoggedChanges
from headwater.settings.table import Settings
from headwater.source.names import BEFORE, INDEX, OLD, OP, TXN
from support.defined import add_table
from support.examples import examples
from support.log import Log
from support.messages import begin, commit, data, row, truncate
from support.relation import TEXT, Change, History, ScriptedChanges, columns_of, inside, relation_of

TABLE = 1  # the upstream's number
LAST = 120
MOST = 1 << 20

Make = Callable[[int, int], Changes]


@dataclass(frozen=True)
class Implementation:
    """A source of changes: `make(changes, bytes)` opens it with limits on its slices."""

    relation: RelationInfo
    history: History = field(repr=False)
    make: Make
    limits_bytes: bool


@pytest.fixture(scope="module")
def history() -> History:
    it = History(columns_of(), ("k",), random.Random(4), keys=12)
    it.begin(5)
    it.run(LAST)
    kinds = {(c.op, c.old is not None, bool(c.missing)) for c in it.changes}
    assert len(kinds) == 7, "every kind of change is in it"
    return it


@pytest.fixture(scope="module", params=["logged", "scripted"])
def given_changes(
    request: pytest.FixtureRequest, history: History, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Implementation]:
    if request.param == "scripted":
        relation = relation_of(history.columns, history.key)
        yield Implementation(relation, history, lambda changes, _: ScriptedChanges(history, changes), False)
        return
    log = Log(tmp_path_factory.mktemp("log") / "home")
    _write(log, history)
    with log.home.meta.write() as c:
        id = add_table(c, "things", history.columns, history.key, connection_id=log.id, upstream_id=TABLE)
        relation = relations.get(c, id)

    def make(changes: int, bytes: int) -> Changes:
        settings = Settings(slice_changes=changes, slice_bytes=bytes)
        return LoggedChanges(log.home.storage, log.home.meta, settings=settings)

    yield Implementation(relation, history, make, True)
    log.home.meta.close()


def _write(log: Log, history: History) -> None:
    """The history as transactions of several changes; each change learns its transaction."""
    rng, changes, n = random.Random(5), list(history.changes), 0
    while changes:
        n += 1
        width = rng.randint(1, 9)
        messages = [begin(100 + n), _described(history)]
        for change in changes[:width]:
            change.txn = 100 + n
            messages.append(_message(history, change))
        log.write(*messages, commit(1000 + n))
        changes = changes[width:]


def _described(history: History) -> bytes:
    """REPLICA IDENTITY FULL: the log has rows as they were before a change."""
    body = b"R" + struct.pack("!I", TABLE) + b"public\0things\0f" + struct.pack("!H", len(history.columns))
    for c in history.columns:
        body += b"\1" + c.name.encode() + b"\0" + struct.pack("!Ii", c.upstream.oid, c.upstream.modifier)
    return data(body)


def _message(history: History, change: Change) -> bytes:
    old = history.before(change)
    before = b"" if old is None else b"O" + _tuple(history, old, ())
    match change.op:
        case Op.TRUNCATE:
            return truncate(TABLE)
        case Op.DELETE:
            return row("D", TABLE, before)
        case Op.INSERT:
            return row("I", TABLE, b"N" + _tuple(history, change.row, ()))
        case _:
            return row("U", TABLE, before + b"N" + _tuple(history, change.row, change.missing))


def _tuple(history: History, values: dict[str, Any], missing: tuple[int, ...]) -> bytes:
    found = struct.pack("!H", len(history.columns))
    for i, column in enumerate(history.columns):
        value = values.get(column.name)
        text = str(value).encode()
        found += b"u" if i in missing else b"n" if value is None else b"t" + struct.pack("!I", len(text)) + text
    return found


ranges = st.tuples(st.integers(0, LAST), st.integers(0, LAST)).map(sorted)
spans = st.tuples(st.none() | st.integers(-1, 13), st.none() | st.integers(-1, 13)).map(
    lambda ends: Span(*(None if end is None else Bound((str(end),)) for end in _in_order(*ends)))
)


def _in_order(lo: int | None, hi: int | None) -> tuple[int | None, int | None]:
    return (lo, hi) if lo is None or hi is None else (min(lo, hi), max(lo, hi))


def ask(it: Implementation, changes: Changes, after: int, upto: int, **what: Any) -> list[dict[str, Any]]:
    """All changes of a range; asserts what every answer keeps."""
    slices = list(changes.slices(it.relation, after, upto, **what))
    assert slices, "at least one"
    assert [s.after for s in slices] == [after, *(s.upto for s in slices[:-1])], "without gaps"
    assert slices[-1].upto == upto
    for s in slices:
        assert all(s.after < i <= s.upto for i in s.table[INDEX].to_pylist())
    return [r for s in slices for r in s.table.to_pylist()]


def expected(it: Implementation, after: int, upto: int) -> list[Change]:
    return [c for c in it.history.changes if after < c.index <= upto]


@examples(40)
@given(ranges, st.integers(1, 40) | st.just(MOST), st.integers(1, 4000) | st.just(MOST))
def test_the_changes_of_a_range_are_the_same_however_they_are_sliced(
    given_changes: Implementation, part: list[int], most: int, size: int
) -> None:
    it, (after, upto) = given_changes, part
    found = ask(it, it.make(most, size), after, upto)
    model = expected(it, after, upto)
    assert [(r[INDEX], r[TXN], r[OP]) for r in found] == [(c.index, c.txn, c.op) for c in model]
    for got, change in zip(found, model, strict=True):
        old = None if change.old is None else dict(zip(it.history.key, change.old, strict=True))
        assert got[OLD] == old
        carried = {k: change.row[k] for k in it.history.key} if change.op is Op.DELETE else change.row
        assert {k: got[k] for k in carried} == carried, "each with its own values"
    assert found == ask(it, it.make(MOST, MOST), after, upto)
    assert found == ask(it, it.make(most, size), after, upto, apart=True)


@examples(40)
@given(st.lists(ranges, min_size=1, max_size=6), st.integers(1, 40))
def test_a_slice_holds_no_more_changes_than_its_limit_whatever_was_asked_before(
    given_changes: Implementation, parts: list[list[int]], most: int
) -> None:
    it = given_changes
    changes = it.make(most, MOST)
    for after, upto in parts:
        slices = list(changes.slices(it.relation, after, upto))
        assert max(s.table.num_rows for s in slices) <= most
        assert sum(s.table.num_rows for s in slices) == upto - after


def test_a_slice_also_ends_when_it_has_enough_bytes(given_changes: Implementation) -> None:
    it = given_changes
    if not it.limits_bytes:
        pytest.skip("it has no limit on bytes")
    whole = pa.concat_tables(s.table for s in it.make(MOST, MOST).slices(it.relation, 0, LAST)).nbytes
    changes = it.make(MOST, whole // 6)
    for _ in range(2):
        sizes = [s.table.nbytes for s in changes.slices(it.relation, 0, LAST)]
        assert len(sizes) > 2 and max(sizes) < whole / 2
        assert [s.table.num_rows for s in it.make(MOST, 1).slices(it.relation, 0, 3)] == [1, 1, 1], "one comes anyway"


@examples(40)
@given(ranges, spans, st.integers(1, 40), st.booleans())
def test_a_span_gets_exactly_the_changes_that_affect_its_keys(
    given_changes: Implementation, part: list[int], span: Span, most: int, before: bool
) -> None:
    it, (after, upto) = given_changes, part
    found = ask(it, it.make(most, MOST), after, upto, within=span, before=before)
    model = [
        c.index
        for c in expected(it, after, upto)
        if c.op is Op.TRUNCATE or any(inside(span, k) for k in it.history.keys_of(c))
    ]
    assert [r[INDEX] for r in found] == model


@examples(40)
@given(ranges, st.integers(1, 40))
def test_whole_rows_from_before_are_added_on_request(given_changes: Implementation, part: list[int], most: int) -> None:
    it, (after, upto) = given_changes, part
    changes = it.make(most, MOST)
    plain = ask(it, changes, after, upto)
    found = ask(it, changes, after, upto, before=True)
    assert [r.pop(BEFORE) for r in found] == [it.history.before(c) for c in expected(it, after, upto)]
    assert found == plain


@examples(40)
@given(ranges)
def test_truncates_are_those_among_the_changes(given_changes: Implementation, part: list[int]) -> None:
    it, (after, upto) = given_changes, part
    changes = it.make(MOST, MOST)
    among = [(r[INDEX], r[TXN]) for r in ask(it, changes, after, upto) if r[OP] == Op.TRUNCATE]
    assert changes.truncates(it.relation, after, upto) == among


@pytest.mark.parametrize("most", [1, 7, MOST])
def test_readers_at_the_same_time_get_what_each_would_get_alone(given_changes: Implementation, most: int) -> None:
    it, rng = given_changes, random.Random(most)
    changes = it.make(most, MOST)
    asked = [sorted((rng.randint(0, LAST), rng.randint(0, LAST))) for _ in range(24)]
    with ThreadPoolExecutor(4) as readers:
        together = list(readers.map(lambda part: ask(it, changes, *part), asked))
    assert together == [ask(it, it.make(MOST, MOST), *part) for part in asked]


def test_columns_of_a_new_version_are_seen_at_once(given_changes: Implementation) -> None:
    it = given_changes
    changes = it.make(MOST, MOST)
    old = ask(it, changes, 0, LAST)
    columns = (*it.relation.columns, Column("z", "STRING", TEXT))
    new = replace(it, relation=replace(it.relation, columns=columns, schema_version=2))
    assert ask(new, changes, 0, LAST) == [{**r, "z": None} for r in old]
    assert ask(it, changes, 0, LAST) == old, "a reader of an old epoch still sees the old ones"
