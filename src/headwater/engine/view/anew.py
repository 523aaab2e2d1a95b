"""Views that have to be filled from scratch: defined a second time, over their inputs as they are now."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from headwater.meta import relations, views
from headwater.model import Column, Ordering, RelationInfo, TableState, UpstreamType
from headwater.view.shape import Shape


def stored_columns(found: Shape) -> tuple[Column, ...]:
    """The columns of a view's relation."""
    return tuple(Column(c.name, c.type, UpstreamType("", 0), c.nullable) for c in found.columns)


def stored_order(found: Shape) -> tuple[Ordering, ...]:
    """How a view is ordered when it is read."""
    return tuple(Ordering(o.name, not o.ascending, o.nulls_first) for o in found.order)


def fill_beside(c: Connection, old: RelationInfo, found: Shape) -> bool:
    """Defines a view a second time, with what its query gives now; False if that has been done, or is being done.

    The old one stays readable until the new one has been filled and takes its place.
    """
    if old.replaced_by:
        return False
    replacement = relations.replacement(c, old.id)
    if replacement is not None and replacement.state is not TableState.FAILED:
        return False
    if replacement is not None:
        relations.remove(c, replacement.id)
    _define(c, old, found, beside=True)
    return True


def begin_again(c: Connection, old: RelationInfo, found: Shape | None = None) -> None:
    """Starts an unfilled view over, as a new relation: the old base may have slices of inputs that are gone.

    Without a shape it has the columns and the key that it had.
    """
    _define(c, old, found, beside=False)


def _define(c: Connection, old: RelationInfo, found: Shape | None, *, beside: bool) -> None:
    assert old.view is not None
    statement, plain, uses = relations.statement(c, old.id), views.plain_views(c, old.id), _uses(c, old)
    if not beside:
        relations.remove(c, old.id)
    id = relations.add(
        c,
        name=relations.BESIDE + old.name if beside else old.name,
        connection_id=0,
        upstream_schema="",
        upstream_table="",
        upstream_id=0,
        columns=old.columns if found is None else stored_columns(found),
        key=old.key if found is None else found.key,
        options=dict(old.options),
        statement=statement,
        block=0 if beside else old.block,
        replaces=old.id if beside else old.replaces,
    )
    views.add(
        c,
        id,
        query=old.view.query,
        inputs=old.view.inputs,
        uses=uses,
        visible=old.view.visible,
        order=old.view.order if found is None else stored_order(found),
        limit=old.view.limit,
        offset=old.view.offset,
        plain_views=plain,
    )
    relations.set_control(c, id, old.control)
    if not beside:
        views.replace_input(c, old.id, id)


def _uses(c: Connection, old: RelationInfo) -> dict[int, dict[str, str]]:
    """The columns that the view uses of each input, with the types that they have now."""
    found = {}
    for id, columns in views.uses(c, old.id).items():
        now = {x.name: x.lake_type for x in relations.get(c, id).columns}
        found[id] = {name: now[name] for name in columns if name in now}
    return found
