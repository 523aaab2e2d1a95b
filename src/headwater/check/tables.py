"""`headwater verify`: compares the tables of a home with their upstreams, each connection at one cut."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from headwater.check.compare import equal_but_for, key_text
from headwater.check.verify import Target, Unverified, reach_in, verify
from headwater.engine.failures import described, is_defect
from headwater.engine.home import Home
from headwater.engine.query.read import Reader, Shown
from headwater.engine.results import Verified
from headwater.errors import restored, unknown_name
from headwater.meta import changes as changes_of
from headwater.meta import relations
from headwater.model import Epoch, TableState
from headwater.source.connected import upstream_of

REACH_TIMEOUT_S = 120.0

log = logging.getLogger(__name__)


def verify_tables(home: Home, reader: Reader, table: str | None = None) -> list[Verified]:
    """Compares a table (or all) at one cut per connection; the capture must be running, and writers may be."""
    with home.meta.read() as c:
        names = {r.name.lower() for r in relations.named(c) if r.view is None}
    if table is not None and table.lower() not in names:
        raise unknown_name("table", table, sorted(names))
    with reader.at_epoch({table.lower()} if table else names) as (epoch, seen):
        results = [why for why in map(_why_not, seen) if why]
        by_connection: defaultdict[int, list[Target]] = defaultdict(list)
        for s in seen:
            if s.layout is not None and not _why_not(s):
                lake = partial(reader.at, s.relation, s.layout)
                by_connection[changes_of.connection_of(s.relation)].append(Target(s.relation, s.layout, lake))
        for connection_id, targets in by_connection.items():
            done = set()
            try:
                for found in _at_one_cut(home, reader, epoch, connection_id, targets):
                    results.append(found)
                    done.add(found.table)
            # the upstream itself failed: no table of this connection can be compared, but all others can
            except Exception as e:
                left = (t.relation.name for t in targets if t.relation.name not in done)
                results += [_not_compared(name, e) for name in left]
    return sorted(results, key=lambda v: v.table)


def _why_not(s: Shown) -> Verified | None:
    """Why a table cannot be compared; None if it can."""
    relation = s.relation
    if relation.state is TableState.FAILED and relation.error is not None:
        error = restored(relation.error)
        what = f"it has stopped: {error.message}"
        return Verified(relation.name, False, code=error.code, error=what, hint=error.hint)
    if not relation.whole:
        why = "its history is incomplete (snapshot = false, or its backfill was cancelled)"
        return Verified(relation.name, False, skipped=why)
    if s.layout is None or not s.layout.spans:
        return Verified(relation.name, False, skipped="nothing of it can be read yet")
    return None


def _at_one_cut(
    home: Home, reader: Reader, epoch: Epoch, connection_id: int, targets: list[Target]
) -> Iterator[Verified]:
    upstream = upstream_of(home.meta, connection_id)
    after = epoch.index_of(connection_id)
    reach = reach_in(
        home.meta,
        home.storage,
        connection_id,
        after,
        timeout_s=REACH_TIMEOUT_S,
        number=upstream.number,
        nudge=upstream.position,
    )
    by_name = {t.relation.name: t for t in targets}
    for found in verify(targets, upstream.reach, reach):
        if isinstance(found, Unverified):
            yield _not_compared(found.table, found.error)
            continue
        target, comparison = by_name[found.table], found.comparison
        try:
            holes = reader.holes(target.relation, target.layout, found.index)
        except Exception as e:
            yield _not_compared(found.table, e)
            continue
        # a key that is being read again is hidden, so it is not covered
        hidden = set(zip(*(map(key_text, holes[k].to_pylist()) for k in target.relation.key), strict=True))
        equal = equal_but_for(hidden, comparison, ordered=target.relation.ordered)
        if equal is None:
            yield Verified(found.table, False, skipped="it is being read again")
            continue
        yield Verified(
            table=found.table,
            equal=equal,
            lake_rows=comparison.lake_rows,
            upstream_rows=comparison.upstream_rows,
            position=found.position,
            epoch=epoch.id,
            differences=len(comparison.missing) + len(comparison.surplus) + len(comparison.different),
            missing=tuple(map(_text, comparison.missing)),
            extra=tuple(map(_text, comparison.surplus)),
            different=tuple(map(_text, comparison.different)),
            seconds=found.seconds,
        )


def _not_compared(table: str, cause: Exception) -> Verified:
    error = described(cause)
    if is_defect(cause):
        log.warning("table=%s could not be compared", table, exc_info=cause)
    return Verified(table, False, code=error.code, error=error.message, hint=error.hint)


def _text(key: tuple[str, ...]) -> str:
    return ", ".join(key)
