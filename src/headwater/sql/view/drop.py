"""DROP: what depends on what, and what goes with what."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.engine import Connection

from headwater.engine.home import Home
from headwater.errors import DefinitionError
from headwater.meta import plain_views, relations, views
from headwater.meta.plain_views import PlainView
from headwater.sql.outcome import Outcome
from headwater.sql.statements import DropView, ObjectKind
from headwater.sql.view import names
from headwater.sql.view.names import Object, listed


def drop_view(home: Home, statement: DropView) -> Outcome:
    """Removes a view; files of a materialized one are deleted when no reader needs them any more."""
    with home.meta.write() as c:
        if names.find(c, statement.name) is None and statement.if_exists:
            return Outcome(f"{statement.kind} {statement.name} does not exist")
        found: Object
        if statement.kind is ObjectKind.VIEW:
            found = names.plain_view(c, statement.name)
        else:
            found = names.relation(c, statement.kind, statement.name)
        return Outcome(f"{statement.kind} {found.name} dropped{drop_over(c, [found], statement.cascade)}")


def drop_over(c: Connection, found: Sequence[Object], cascade: bool) -> str:
    """Removes objects and, with CASCADE, the views over them; returns what else was dropped, as text.

    Without CASCADE it raises if there are such views.
    """
    dependents = over(c, found)
    if dependents and not cascade:
        which, that = listed(found), "it" if len(dependents) == 1 else "them"
        raise DefinitionError(
            "name.in_use",
            f"{which} {'is' if len(found) == 1 else 'are'} used by {listed(dependents)}",
            f"DROP {that} first, or add CASCADE to drop {that} too.",
        )
    for each in (*dependents, *found):
        remove(c, each)
    return f", with {listed(dependents)}" if dependents else ""


def remove(c: Connection, found: Object) -> None:
    """Removes one object, with the relation that is being built to replace it."""
    if isinstance(found, PlainView):
        plain_views.remove(c, found.id)
        return
    replacement = relations.replacement(c, found.id)
    for each in (found, *([replacement] if replacement else [])):
        relations.remove(c, each.id)


def over(c: Connection, found: Sequence[Object]) -> list[Object]:
    """All views over these objects, also those over views over them; without these objects themselves."""
    seen: dict[str, Object] = {x.name: x for x in found}
    waiting = list(found)
    while waiting:
        for each in _directly_over(c, waiting.pop(0)):
            if each.name not in seen:
                seen[each.name] = each
                waiting.append(each)
    return [x for x in seen.values() if x not in found]


def _directly_over(c: Connection, found: Object) -> list[Object]:
    if isinstance(found, PlainView):
        ids = views.naming(c, found.name)
    else:
        ids = views.over(c, found.id)
    materialized = [relations.get(c, id) for id in ids]
    return [*(r for r in materialized if not r.replaces), *plain_views.over(c, found.name)]
