"""The options of a PostgreSQL connection."""

from __future__ import annotations

import re

from headwater.settings.values import boolean
from headwater.source.options import Option, connection


def _slot(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9_]{1,63}", value):
        raise ValueError("must be 1 to 63 lower-case letters, digits or underscores")
    return value


def _name(value: str) -> str:
    if not 0 < len(value.encode()) <= 63 or "\x00" in value:
        raise ValueError("must be 1 to 63 bytes")
    return value


OPTIONS = connection(
    "postgres-cdc",
    "5432",
    "LOGIN and REPLICATION",
    Option("schema.name", _name, "Schema of tables named without one.", "public"),
    Option("slot.name", _slot, "Replication slot; by default named after the connection."),
    Option("publication.name", _name, "Publication; by default named after the connection."),
    Option(
        "publication.create",
        boolean,
        "`false`: a DBA has created the publication; Headwater does not alter it.",
        "true",
    ),
)
