"""Intents in meta: what is about to be committed to a base, so that a crash can be rolled forward."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater import stored
from headwater.meta.tables import intent
from headwater.model import DataFile, Span


@dataclass(frozen=True, slots=True)
class Cover:
    """Adds the files of scanned spans; first removes what an earlier scan of the spans `again` had added."""

    kind: ClassVar[str] = "cover"
    spans: tuple[int, ...]
    files: tuple[DataFile, ...] = ()
    again: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Fold:
    """Folds the overlay, as of an epoch, up to an index into the base; `spans` are those that it settles."""

    kind: ClassVar[str] = "fold"
    index: int
    epoch: int
    spans: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Maintain:
    """Commits without changing the base's rows; `checkpoint`: it may have left a torn one of a recorded version."""

    kind: ClassVar[str] = "upkeep"
    checkpoint: bool = False


Work = Cover | Fold | Maintain


@dataclass(frozen=True, slots=True)
class Intent:
    """A commit that has been decided, in one life of the storage (`Storage.life`)."""

    id: int
    relation_id: int
    work: Work
    life: str = ""


def add(c: Connection, relation_id: int, work: Work, life: str) -> Intent:
    body = json.dumps({**asdict(work), "boot": life})
    row = {"relation_id": relation_id, "kind": work.kind, "body": body, "created_at": time.time()}
    result = c.execute(sa.insert(intent).values(**row))
    assert result.inserted_primary_key is not None
    return Intent(int(result.inserted_primary_key[0]), relation_id, work, life)


def all(c: Connection, relation_id: int | None = None) -> list[Intent]:
    q = sa.select(intent).order_by(intent.c.id)
    if relation_id is not None:
        q = q.where(intent.c.relation_id == relation_id)
    return [_intent(r.id, r.relation_id, r.kind, json.loads(r.body)) for r in c.execute(q)]


def done(c: Connection, id: int) -> None:
    c.execute(sa.delete(intent).where(intent.c.id == id))


def _intent(id: int, relation_id: int, kind: str, body: dict[str, Any]) -> Intent:
    work: Work
    if kind == Cover.kind:
        files, again = (DataFile(**f) for f in body["files"]), (stored.span(s) for s in body["again"])
        work = Cover(tuple(body["spans"]), tuple(files), tuple(again))
    elif kind == Fold.kind:
        work = Fold(int(body["index"]), int(body["epoch"]), tuple(body["spans"]))
    else:
        work = Maintain(bool(body.get("checkpoint")))
    return Intent(id, relation_id, work, body.get("boot", ""))
