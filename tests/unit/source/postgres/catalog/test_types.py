"""Which text is ordered alike in the database and in the lake, for collations that the embedded server lacks."""

from __future__ import annotations

import pytest

from headwater.source.postgres.catalog.types import RawType, Text, upstream_type


def text_type(provider: str, locale: str = "") -> RawType:
    return RawType(25, -1, 0, "text", "b", -1, None, None, None, provider, locale)


@pytest.mark.parametrize(
    ("column", "database", "ordered"),
    [
        (("d", ""), ("c", "C.UTF-8", True), True),
        (("d", ""), ("c", "C.UTF-8", False), False),  # an old C library that sorts otherwise
        (("d", ""), ("c", "en_US.UTF-8", True), False),  # a probe proves nothing for a language
        (("d", ""), ("i", "C.UTF-8", True), False),
        (("d", ""), ("b", "C.UTF-8", True), True),
        (("c", "C"), ("i", "C.UTF-8", False), True),
        (("c", "de_DE.utf8"), ("c", "C", True), False),
        (("i", "C"), ("c", "C", True), False),  # somebody's own collation called C
        (("b", ""), ("i", "de", False), True),
    ],
)
def test_text_is_ordered_only_by_code_point(
    column: tuple[str, str], database: tuple[str, str, bool], ordered: bool
) -> None:
    assert upstream_type(text_type(*column), Text(True, *database)).ordered == ordered
    assert not upstream_type(text_type(*column), Text(False, *database)).ordered
