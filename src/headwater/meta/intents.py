"""Intents in meta: what is about to be committed to a base, so that a crash can be rolled forward."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.meta.tables import intent


@dataclass(frozen=True, slots=True)
class Intent:
    """A commit that has been decided: kind `scan` (span, result) or `fold` (target index, spans)."""

    id: int
    relation_id: int
    kind: str
    body: dict[str, Any]


def add(c: Connection, relation_id: int, kind: str, body: dict[str, Any]) -> Intent:
    result = c.execute(
        sa.insert(intent).values(relation_id=relation_id, kind=kind, body=json.dumps(body), created_at=time.time())
    )
    assert result.inserted_primary_key is not None
    return Intent(int(result.inserted_primary_key[0]), relation_id, kind, body)


def all(c: Connection, relation_id: int | None = None) -> list[Intent]:
    q = sa.select(intent).order_by(intent.c.id)
    if relation_id is not None:
        q = q.where(intent.c.relation_id == relation_id)
    return [Intent(r.id, r.relation_id, r.kind, json.loads(r.body)) for r in c.execute(q)]


def done(c: Connection, id: int) -> None:
    c.execute(sa.delete(intent).where(intent.c.id == id))
