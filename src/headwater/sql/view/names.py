"""The one namespace of tables, materialized views and plain views."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sqlalchemy.engine import Connection

from headwater.errors import DefinitionError, unknown_name
from headwater.meta import plain_views, relations
from headwater.meta.plain_views import PlainView
from headwater.model import RelationInfo
from headwater.sql.same import same
from headwater.sql.statements import CreateMaterializedView, CreateTable, CreateView, ObjectKind, difference

Object = RelationInfo | PlainView


def kind_of(found: Object) -> ObjectKind:
    if isinstance(found, PlainView):
        return ObjectKind.VIEW
    return ObjectKind.TABLE if found.view is None else ObjectKind.MATERIALIZED_VIEW


def find(c: Connection, name: str) -> Object | None:
    """What has this name."""
    return relations.find(c, name) or plain_views.find(c, name)


def names(c: Connection) -> list[str]:
    """The names of everything that a query can name."""
    return [r.name for r in relations.named(c)] + [v.name for v in plain_views.all(c)]


def relation(c: Connection, kind: ObjectKind, name: str) -> RelationInfo:
    """The table or materialized view of this name."""
    found = relations.find(c, name)
    if found is None or kind_of(found) is not kind:
        raise unknown(c, kind, name)
    return found


def plain_view(c: Connection, name: str) -> PlainView:
    """The plain view of this name."""
    found = plain_views.find(c, name)
    if found is None:
        raise unknown(c, ObjectKind.VIEW, name)
    return found


def unknown(c: Connection, kind: ObjectKind, name: str) -> DefinitionError:
    """The error for a name that nothing of this kind has: what else has it, or the nearest name."""
    other = find(c, name)
    if other is None:
        return unknown_name(kind, name, names(c))
    hint = f"Write {kind_of(other).upper()} instead of {kind.upper()}: {other.name} is a {kind_of(other)}."
    return DefinitionError("name.unknown", f"there is no {kind} {name}", hint)


def existing(c: Connection, given: CreateTable | CreateMaterializedView | CreateView) -> Object | None:
    """What a definition would define again; None if its name is free. Raises if the name means something else."""
    kind = {CreateTable: ObjectKind.TABLE, CreateView: ObjectKind.VIEW}.get(type(given), ObjectKind.MATERIALIZED_VIEW)
    found = find(c, given.name)
    if found is None:
        return None
    if kind_of(found) is not kind:
        raise DefinitionError(
            "name.taken",
            f"{found.name} is already the name of a {kind_of(found)}",
            "Use another name: tables and views share one namespace.",
        )
    stored = found.statement if isinstance(found, PlainView) else relations.statement(c, found.id)
    if not given.if_not_exists and not same(stored, given):
        raise taken(kind, found.name, stored, given.canonical())
    return found


def taken(kind: str, name: str, stored: str, given: str) -> DefinitionError:
    """The error for a definition that differs from the stored one of its name."""
    return DefinitionError(
        "name.taken",
        f"a different {kind} {name} already exists:\n{difference(stored, given)}",
        f"Write it as SHOW CREATE {kind.upper()} {name} shows it, or use another name, or DROP the old one first.",
    )


def listed(found: Iterable[Object]) -> str:
    """Objects in words: `materialized views a and b, view c`."""
    by_kind: dict[ObjectKind, list[str]] = {kind: [] for kind in ObjectKind}
    for each in found:
        by_kind[kind_of(each)].append(each.name)
    return ", ".join(f"{kind}{'s' if len(of) > 1 else ''} {_and(sorted(of))}" for kind, of in by_kind.items() if of)


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def in_message(quoted: str) -> str:
    """The name that Spark writes in backticks; empty if it has several parts, which no name here has."""
    found = re.fullmatch(r"`((?:[^`]|``)*)`", quoted)
    return found.group(1).replace("``", "`") if found else ""
