"""The files that scans have written and no cover has added to the base yet."""

from __future__ import annotations

import json

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.meta.tables import span


def scan_files(c: Connection, relation_id: int) -> set[str]:
    """Their paths relative to the base, as in meta."""
    q = sa.select(span.c.files).where(span.c.relation_id == relation_id, span.c.files.is_not(None))
    return {f["path"] for text in c.execute(q).scalars() for f in json.loads(text)}
