"""PostgreSQL's functions under the names of `decode.dialects.Dialect`."""

from __future__ import annotations

from headwater.decode.postgres.evolve import as_written, logged_key, still_holds, whole_old
from headwater.decode.postgres.pgoutput import lay_out
from headwater.decode.postgres.scanned import select_expression, text_expression, to_lake
from headwater.decode.postgres.text import decode_text as decode_logged
from headwater.decode.postgres.types import can_hold, comparable, lake_type, resolve_type

__all__ = [
    "as_written",
    "can_hold",
    "comparable",
    "decode_logged",
    "lake_type",
    "lay_out",
    "logged_key",
    "resolve_type",
    "select_expression",
    "still_holds",
    "text_expression",
    "to_lake",
    "whole_old",
]
