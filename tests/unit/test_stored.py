"""The nouns as JSON text: what homes of earlier releases hold is read, and what is written can be read by them."""

from __future__ import annotations

import json

from headwater import stored
from headwater.model import Column, UpstreamType


def test_a_columns_number_is_stored_under_the_name_it_always_had() -> None:
    column = Column("id", "BIGINT", UpstreamType("int8", 20, number=3))
    text = stored.dump_columns([column])
    upstream = json.loads(text)[0]["upstream"]
    assert upstream["place"] == 3 and "number" not in upstream
    (again,) = stored.columns(text)
    assert again == column and again.upstream.number == 3


def test_a_column_stored_before_columns_had_numbers_has_none() -> None:
    text = stored.dump_columns([Column("id", "BIGINT", UpstreamType("int8", 20, number=3))])
    (again,) = stored.columns(text.replace('"place": 3', '"unique": false'))
    assert again.upstream.number == 0
