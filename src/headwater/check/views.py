"""Compares materialized views with their queries, computed again at the same epoch."""

from __future__ import annotations

import time
from contextlib import ExitStack

from headwater.engine.failures import described
from headwater.engine.home import Home
from headwater.engine.query.between import Frames, at
from headwater.engine.query.read import Reader, Shown
from headwater.engine.results import Verified
from headwater.engine.view.definition import Reshaped, Trees
from headwater.errors import HeadwaterError
from headwater.meta import relations, views
from headwater.model import Epoch, RelationInfo
from headwater.relation.schema import quoted
from headwater.view import difference, recompute, shape
from headwater.view.shape import WEIGHT

POOL = "verify"
MOST_LISTED = 10


def verify_views(home: Home, reader: Reader, trees: Trees, name: str | None = None) -> list[Verified]:
    """Compares a view (or all): its stored rows at its newest version, and its query over its inputs there."""
    with home.meta.read() as c:
        known = [r for r in relations.named(c) if r.view is not None and name in (None, r.name)]
        filled = {r.id for r in known if views.last_version(c, r.id)}
    skipped = [Verified(r.name, False, skipped="it is not filled yet") for r in known if r.id not in filled]
    return skipped + [_compared(home, reader, trees, r) for r in known if r.id in filled]


def _compared(home: Home, reader: Reader, trees: Trees, relation: RelationInfo) -> Verified:
    began = time.monotonic()
    try:
        with reader.at_epoch({relation.name.lower()}) as (epoch, seen):
            found = _difference(home, reader, trees, epoch, next(iter(seen)))
    except (Reshaped, _Replaced) as e:
        return Verified(relation.name, False, skipped=str(e))
    except HeadwaterError as e:
        return Verified(relation.name, False, code=e.code, error=e.message, hint=e.hint)
    except Exception as e:
        error = described(e)
        return Verified(relation.name, False, code=error.code, error=error.message, hint=error.hint)
    stored, computed, extra, missing = found
    return Verified(
        table=relation.name,
        equal=not extra and not missing,
        lake_rows=stored,
        upstream_rows=computed,
        epoch=epoch.id,
        differences=len(set(extra) | set(missing)),
        missing=tuple(k for k in missing if k not in extra)[:MOST_LISTED],
        extra=tuple(k for k in extra if k not in missing)[:MOST_LISTED],
        different=tuple(k for k in missing if k in extra)[:MOST_LISTED],
        seconds=time.monotonic() - began,
    )


class _Replaced(Exception):
    """The epoch at which a view can be read is from before it, or an input, was replaced."""

    def __init__(self) -> None:
        super().__init__("it or one of its inputs was just replaced: verify again once it has caught up")


def _difference(
    home: Home, reader: Reader, trees: Trees, epoch: Epoch, s: Shown
) -> tuple[int, int, list[str], list[str]]:
    """Rows stored and computed, and the keys of rows that only one side has."""
    relation = s.relation
    assert relation.view is not None
    with home.meta.read() as c:
        own = at(c, relation, epoch)
        found = [at(c, relations.get(c, id), epoch) for id in relation.view.inputs]
    inputs = [x for x in found if x is not None]
    if relation.replaced_by or len(inputs) < len(found):
        raise _Replaced
    tree = trees.of(relation)
    with reader.session_for(POOL) as session, ExitStack() as stack:
        frames = Frames(session, home, reader.overlays, stack)
        assert own is not None
        stored = frames.stored(own)
        computed = recompute(tree, {x.relation.name: frames.of(x) for x in inputs})
        differing = difference(shape(tree), stored, computed).select(*map(quoted, relation.key), WEIGHT).toArrow()
        rows = [", ".join(str(row[k]) for k in relation.key) for row in differing.to_pylist()]
        weights = differing[WEIGHT].to_pylist()
        return (
            stored.count(),
            computed.count(),
            [key for key, w in zip(rows, weights, strict=True) if w < 0],
            [key for key, w in zip(rows, weights, strict=True) if w > 0],
        )
