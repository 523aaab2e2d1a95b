"""Relations in meta: definitions, state, base version, notices."""

from __future__ import annotations

import builtins
import json
import time
from functools import lru_cache

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from headwater import stored
from headwater.errors import DefinitionError, HeadwaterError, base_damaged
from headwater.meta import views
from headwater.meta.tables import intent, layout, notice, refresh, relation, run, span, version, view
from headwater.model import Column, Control, Notice, Ordering, RelationInfo, TableOrigin, TableState, ViewOrigin

BESIDE = "\x01"  # prefix of the name of a relation that is built next to another one; no user can write it
PAST = "\x02"  # prefix of the name of a relation that another one has replaced
UNWATCHED = "table.unwatched"  # the code of the notice for a table whose upstream could not be checked


def add(
    c: Connection,
    *,
    name: str,
    connection_id: int,
    upstream_schema: str,
    upstream_table: str,
    upstream_id: int,
    columns: tuple[Column, ...],
    key: tuple[str, ...],
    options: dict[str, str],
    statement: str,
    block: int = 0,
    replaces: int = 0,
) -> int:
    """Stores a new relation; returns its id. The id is never reused, so neither is anything named after it."""
    result = c.execute(
        sa.insert(relation).values(
            name=name,
            connection_id=connection_id,
            upstream_schema=upstream_schema,
            upstream_table=upstream_table,
            upstream_id=upstream_id,
            columns=stored.dump_columns(columns),
            key=json.dumps(key),
            options=json.dumps(options),
            statement=statement,
            state=TableState.DEFINED,
            base_path="",
            base_version=-1,
            begin_index=0,
            fingerprint="",
            planned=0,
            folded_at=time.time(),
            created_at=time.time(),
            block=block,
            replaces=replaces,
        )
    )
    assert result.inserted_primary_key is not None
    id = int(result.inserted_primary_key[0])
    c.execute(sa.update(relation).where(relation.c.id == id).values(base_path=f"warehouse/{id}"))
    return id


def find(c: Connection, name: str) -> RelationInfo | None:
    # SQLite's lower() handles only ASCII, so a name as written must be enough to find it
    same = sa.or_(relation.c.name == name, sa.func.lower(relation.c.name) == name.lower())
    row = c.execute(_select().where(same)).first()
    return None if row is None else _info(row)


def get(c: Connection, id: int) -> RelationInfo:
    """The relation; if it has been dropped meanwhile, an error that ends its job."""
    found = get_or_none(c, id)
    if found is None:
        raise DefinitionError("name.unknown", f"table number {id} was dropped", "No action is needed.")
    return found


def get_or_none(c: Connection, id: int) -> RelationInfo | None:
    row = c.execute(_select().where(relation.c.id == id)).first()
    return None if row is None else _info(row)


def all(c: Connection, connection_id: int | None = None) -> list[RelationInfo]:
    """All relations but replaced ones; with a connection, the tables that come through it."""
    q = _select().where(relation.c.replaced_by == 0).order_by(relation.c.id)
    if connection_id is not None:
        q = q.where(relation.c.connection_id == connection_id)
    return [_info(r) for r in c.execute(q)]


def replaced(c: Connection) -> list[RelationInfo]:
    """The relations that others have replaced, newest first. They no longer change; views may still need them."""
    return [_info(r) for r in c.execute(_select().where(relation.c.replaced_by != 0).order_by(relation.c.id.desc()))]


def ids(c: Connection) -> set[int]:
    """The ids of all relations, replaced ones included."""
    return set(c.execute(sa.select(relation.c.id)).scalars())


def tables(c: Connection) -> list[RelationInfo]:
    """The relations that follow an upstream table."""
    return [r for r in all(c) if r.view is None]


def named(c: Connection) -> list[RelationInfo]:
    """The relations that a user can name: without those being built to replace another."""
    return [r for r in all(c) if not r.replaces]


def replacement(c: Connection, id: int) -> RelationInfo | None:
    """The relation that is being built to replace another one."""
    row = c.execute(_select().where(relation.c.replaces == id)).first()
    return None if row is None else _info(row)


def in_block(c: Connection, block: int) -> list[RelationInfo]:
    """The relations that wait for each other to become readable."""
    return [_info(r) for r in c.execute(_select().where(relation.c.block == block))] if block else []


def set_control(c: Connection, id: int, control: Control) -> None:
    c.execute(sa.update(relation).where(relation.c.id == id).values(control=control))


def set_options(c: Connection, id: int, options: dict[str, str]) -> None:
    c.execute(sa.update(relation).where(relation.c.id == id).values(options=json.dumps(options)))


def next_block(c: Connection) -> int:
    """A number for a block: ids only grow, and each block uses some."""
    return int(c.execute(sa.select(sa.func.coalesce(sa.func.max(relation.c.id), 0))).scalar_one()) + 1


def open_if_complete(c: Connection, block: int) -> None:
    """Lets the relations of a block become readable once each of them is complete."""
    if block and builtins.all(r.state is TableState.LIVE for r in in_block(c, block)):
        c.execute(sa.update(relation).where(relation.c.block == block).values(block=0))


def take_place(c: Connection, id: int) -> None:
    """Gives a relation the name and the dependants of the one that it replaces.

    That one stays as it is while views have no version yet at which the new one can be read (`barriers.prune`). A table
    that had failed does not: what it needs of the changelog would be kept without a limit.
    """
    new = get(c, id)
    old = get_or_none(c, new.replaces)
    name = new.name.removeprefix(BESIDE)
    if old is not None:
        name = old.name
        views.replace_input(c, old.id, id)
        if old.view is not None or (old.state is TableState.LIVE and views.versions(c)):
            _retire(c, old, id)
        else:
            remove(c, old.id)
    c.execute(sa.update(relation).where(relation.c.id == id).values(name=name, replaces=0))


def _retire(c: Connection, old: RelationInfo, new: int) -> None:
    """Lets a relation stand still, under a name that nobody can write, and hands its record to the new one."""
    c.execute(sa.update(relation).where(relation.c.replaced_by == old.id).values(replaced_by=new))
    own = {"name": f"{PAST}{old.id}", "replaced_by": new, "block": 0}
    c.execute(sa.update(relation).where(relation.c.id == old.id).values(**own))
    views.hand_over(c, old.id, new)


def statement(c: Connection, id: int) -> str:
    """The canonical text of the definition."""
    return str(c.execute(sa.select(relation.c.statement).where(relation.c.id == id)).scalar_one())


def set_state(c: Connection, id: int, state: TableState, error: HeadwaterError | None = None) -> None:
    """Sets the state, and with an error its time."""
    stored = None if error is None else json.dumps({**error.stored(), "at": f"{time.time():.3f}"})
    c.execute(sa.update(relation).where(relation.c.id == id).values(state=state, error=stored))


def set_stopped(c: Connection, id: int, index: int) -> None:
    """Records that a stopped table is complete in its base up to `index`, and needs no change after it."""
    found = get_or_none(c, id)
    if found is not None and found.state is TableState.FAILED and found.error is not None:
        stored = json.dumps({**found.error, "stopped_at": str(index)})
        c.execute(sa.update(relation).where(relation.c.id == id).values(error=stored))


def counted_index(c: Connection, id: int) -> int:
    """The index up to which a relation's changes have been checked for notices."""
    return int(c.execute(sa.select(relation.c.counted_index).where(relation.c.id == id)).scalar() or 0)


def count_to(c: Connection, id: int, before: int, index: int) -> bool:
    """Advances the counted index; False if somebody else has moved it since it was `before`."""
    where = sa.and_(relation.c.id == id, relation.c.counted_index == before)
    return bool(c.execute(sa.update(relation).where(where).values(counted_index=index)).rowcount)


def set_begin(c: Connection, id: int, begin_index: int) -> None:
    c.execute(sa.update(relation).where(relation.c.id == id).values(begin_index=begin_index))


def set_fingerprint(c: Connection, id: int, fingerprint: str) -> None:
    c.execute(sa.update(relation).where(relation.c.id == id).values(fingerprint=fingerprint))


def fingerprint(c: Connection, id: int) -> str:
    """The last accepted look at the upstream table, as its source stores it; empty: there was none."""
    return str(c.execute(sa.select(relation.c.fingerprint).where(relation.c.id == id)).scalar_one())


def set_base_version(c: Connection, id: int, version: int) -> None:
    """Records a version of the base; never an earlier one than recorded, whose spans hold more."""
    where = sa.and_(relation.c.id == id, relation.c.base_version <= version)
    changed = c.execute(sa.update(relation).where(where).values(base_version=version)).rowcount
    if not changed:
        current = get(c, id).base_version
        raise base_damaged(f"the base is recorded at version {current} and cannot go back to {version}")


def set_folded(c: Connection, id: int) -> None:
    c.execute(sa.update(relation).where(relation.c.id == id).values(folded_at=time.time()))


def folded_times(c: Connection) -> dict[int, float]:
    """When each relation was last folded, by its id."""
    return {id: float(at) for id, at in c.execute(sa.select(relation.c.id, relation.c.folded_at))}


def set_planned(c: Connection, id: int, planned: bool) -> None:
    c.execute(sa.update(relation).where(relation.c.id == id).values(planned=int(planned)))


def set_rows_estimate(c: Connection, id: int, rows: int) -> None:
    """Records the upstream's row estimate when planning began; -1: unknown."""
    c.execute(sa.update(relation).where(relation.c.id == id).values(rows_estimate=rows))


def planned(c: Connection, id: int) -> bool:
    return bool(c.execute(sa.select(relation.c.planned).where(relation.c.id == id)).scalar_one())


def remove(c: Connection, id: int) -> None:
    """Removes a relation, and those that it has replaced."""
    for past in c.execute(sa.select(relation.c.id).where(relation.c.replaced_by == id)).scalars().all():
        remove(c, past)
    for table in (span, layout, intent, run, notice, view, version, refresh):
        c.execute(sa.delete(table).where(table.c.relation_id == id))
    c.execute(sa.delete(relation).where(relation.c.id == id))


def note(c: Connection, relation_id: int, code: str, text: str, count: int = 1) -> None:
    """Counts something a user should know about a relation."""
    where = sa.and_(notice.c.relation_id == relation_id, notice.c.code == code, notice.c.text == text)
    changed = c.execute(
        sa.update(notice).where(where).values(count=notice.c.count + count, seen_at=time.time())
    ).rowcount
    if not changed:
        c.execute(
            sa.insert(notice).values(relation_id=relation_id, code=code, text=text, count=count, seen_at=time.time())
        )


def set_note(c: Connection, relation_id: int, code: str, text: str) -> None:
    """Sets a relation's one notice of this code; empty: none."""
    c.execute(sa.delete(notice).where(notice.c.relation_id == relation_id, notice.c.code == code))
    if text:
        note(c, relation_id, code, text)


def noted(c: Connection, code: str) -> dict[int, str]:
    """The current notice of a code, for each relation that has one."""
    rows = c.execute(sa.select(notice.c.relation_id, notice.c.text).where(notice.c.code == code))
    return {id: str(text) for id, text in rows}


def notices(c: Connection, relation_id: int) -> list[Notice]:
    rows = c.execute(sa.select(notice).where(notice.c.relation_id == relation_id).order_by(notice.c.code))
    return [Notice(r.relation_id, r.code, r.text, r._mapping["count"]) for r in rows]


@lru_cache(maxsize=1024)
def _columns(text: str) -> tuple[Column, ...]:
    """A table's columns, cached because they do not change: parsing them at every read of every table is slow."""
    return stored.columns(text)


def _select() -> sa.Select[tuple[object, ...]]:
    """Relations, with the further columns of those that are views."""
    own = (view.c.query, view.c.inputs, view.c.visible, view.c.reading)
    return sa.select(relation, *own).outerjoin(view, view.c.relation_id == relation.c.id)


def _origin(r: Row[tuple[object, ...]]) -> TableOrigin | ViewOrigin:
    if r.query is None:
        return TableOrigin(r.connection_id, r.upstream_schema, r.upstream_table, r.upstream_id, r.begin_index)
    reading = json.loads(r.reading)
    order = tuple(Ordering(**o) for o in reading["order"])
    return ViewOrigin(
        r.query, tuple(json.loads(r.inputs)), r.visible, order, reading["limit"], reading.get("offset", 0)
    )


def _info(r: Row[tuple[object, ...]]) -> RelationInfo:
    return RelationInfo(
        id=r.id,
        name=r.name,
        origin=_origin(r),
        columns=_columns(r.columns),
        key=tuple(json.loads(r.key)),
        options=json.loads(r.options),
        state=TableState(r.state),
        error=None if r.error is None else json.loads(r.error),
        base_path=r.base_path,
        base_version=r.base_version,
        control=Control(r.control),
        block=r.block,
        replaces=r.replaces,
        replaced_by=r.replaced_by,
        schema_version=r.schema_version,
    )
