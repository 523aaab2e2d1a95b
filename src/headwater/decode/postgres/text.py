"""PostgreSQL's texts, from its log and its scans → an Arrow array of lake values."""

from __future__ import annotations

from typing import Any

from headwater.decode import text
from headwater.decode.column import Decoded
from headwater.decode.postgres.arrays import decode_arrays
from headwater.decode.postgres.types import is_array
from headwater.model import UpstreamType


def decode_text(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    """Like `decode.text.decode_text`, plus arrays."""
    if is_array(upstream) and lake_type.startswith("ARRAY<"):
        return decode_arrays(buffer, starts, lengths, upstream, lake_type, decode_text)
    return text.decode_text(buffer, starts, lengths, upstream, lake_type)
