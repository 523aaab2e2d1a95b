"""The functions of MySQL and MariaDB under the names of `decode.dialects.Dialect`."""

from __future__ import annotations

from headwater.decode.dialects import Comparable
from headwater.decode.mysql.binlog import lay_out
from headwater.decode.mysql.evolve import as_written, logged_key, still_holds, whole_old
from headwater.decode.mysql.logged import decode_logged
from headwater.decode.mysql.resultset import select_expression, text_expression, to_lake
from headwater.decode.mysql.types import INTEGERS, can_hold, is_boolean, lake_type, resolve_type
from headwater.model import UpstreamType

_MOMENTS = {"date": "date", "datetime": "timestamp", "timestamp": "instant"}
_TEXTS = frozenset({"char", "varchar", "enum"})
_UTF8 = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})


def comparable(upstream: UpstreamType) -> Comparable | None:
    """How a filter may compare values of the type; None: not reliably."""
    if is_boolean(upstream):
        return Comparable("bool", ordered=False, kept=False)
    if upstream.name in INTEGERS:
        return Comparable("integer", ordered=True, kept=True)
    if upstream.name == "decimal":
        return Comparable("decimal", ordered=True, kept=False)
    if upstream.name in _MOMENTS:
        return Comparable(_MOMENTS[upstream.name], ordered=True, kept=False)
    if upstream.name in _TEXTS and upstream.charset in _UTF8:
        return Comparable("text", ordered=False, kept=True)
    return None


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
