"""Spans as SQL: conditions on all key columns in the database's own order, values as quoted text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from headwater.model import Bound, Span
from headwater.source import keyset
from headwater.source.postgres.client.session import quote_identifier, quote_literal

CATALOG = "pg_catalog"
ROW = "scanned"  # the table's alias: a bare name after ORDER BY would mean the selected *text* of a key

# The key's columns with the schema of the operators that its index compares them with. An extension's type (citext) has
# its own, and the fixed search_path is empty: a bare `>` would silently compare such a column as plain text. A
# composite type is compared as a record, and a record's text does not tell its type: it needs a cast.
KEY = """
SELECT a.attname::text, n.nspname::text,
       CASE WHEN c.opcintype = 'record'::regtype THEN format_type(a.atttypid, -1) END
FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey::int2[], i.indclass::oid[]) WITH ORDINALITY k(attnum, opclass, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
JOIN pg_opclass c ON c.oid = k.opclass
JOIN pg_amop o ON o.amopfamily = c.opcfamily AND o.amopstrategy = 5
              AND o.amoplefttype = c.opcintype AND o.amoprighttype = c.opcintype
JOIN pg_operator p ON p.oid = o.amopopr
JOIN pg_namespace n ON n.oid = p.oprnamespace
WHERE i.indisprimary AND i.indrelid = {oid}
ORDER BY k.place
"""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A key column, the schema of its comparison operators, and the type that a literal next to it must name."""

    name: str
    operators: str = CATALOG
    cast: str | None = None

    @property
    def quoted(self) -> str:
        return f"{ROW}.{quote_identifier(self.name)}"

    def literal(self, text: str) -> str:
        """A key value; its type follows from the column, or is named."""
        return quote_literal(text) + (f"::{self.cast}" if self.cast else "")


def condition(key: Sequence[KeyColumn], span: Span) -> str:
    """The span as a WHERE condition."""
    return keyset.condition(span, partial(_compare, key))


def _compare(key: Sequence[KeyColumn], operator: str, bound: Bound) -> str:
    literals = [k.literal(v) for k, v in zip(key, bound.key, strict=True)]
    if len(key) == 1:
        return f"{key[0].quoted} {_operator(key[0], operator)} {literals[0]}"
    if all(k.operators == CATALOG for k in key):
        return f"({', '.join(k.quoted for k in key)}) {operator} ({', '.join(literals)})"
    return _spelled_out(key, operator, literals)


def _spelled_out(key: Sequence[KeyColumn], operator: str, literals: Sequence[str]) -> str:
    """A row comparison whose columns need operators from different schemas; its first term lets the index be used."""
    strict = operator[0]
    cases = []
    for i, k in enumerate(key):
        last = operator if i == len(key) - 1 else strict
        equal = [f"{e.quoted} {_operator(e, '=')} {v}" for e, v in zip(key[:i], literals[:i], strict=True)]
        cases.append(" AND ".join([*equal, f"{k.quoted} {_operator(k, last)} {literals[i]}"]))
    first = f"{key[0].quoted} {_operator(key[0], strict + '=')} {literals[0]}"
    return f"({first} AND ({' OR '.join(cases)}))"


def _operator(key: KeyColumn, operator: str) -> str:
    return operator if key.operators == CATALOG else f"OPERATOR({quote_identifier(key.operators)}.{operator})"
