"""Connections in meta: definitions, state, and the changelog's published progress."""

from __future__ import annotations

import json
import time

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from headwater.config import Secret
from headwater.errors import DefinitionError, HeadwaterError
from headwater.meta.tables import connection, part, retired_segment, schema_version, segment
from headwater.model import ConnectionInfo, ConnectionState
from headwater.ownership import lease
from headwater.ownership.names import Name


def add(
    c: Connection,
    *,
    name: str,
    type: str,
    options: dict[str, str],
    secret: str | None,
    statement: str = "",
    identity: dict[str, str] | None = None,
    position: str = "",
    txn: int = 0,
    server_life: str = "",
) -> int:
    """Stores a new connection whose changelog is empty and begins after `position`; returns its id.

    Without a position nothing has been created upstream yet: see `prepared`.
    """
    result = c.execute(
        sa.insert(connection).values(
            name=name,
            type=type,
            options=json.dumps(options),
            secret=secret,
            statement=statement,
            state=ConnectionState.DEFINED,
            identity=json.dumps(identity or {}),
            last_index=0,
            committed_index=0,
            resume_position=position,
            position=position,
            position_at=time.time(),
            last_txn=txn,
            server_life=server_life,
        )
    )
    assert result.inserted_primary_key is not None
    return int(result.inserted_primary_key[0])


def prepared(c: Connection, id: int, *, identity: dict[str, str], position: str, txn: int, server_life: str) -> None:
    """Records where the changelog begins: everything that commits after `position` will arrive."""
    c.execute(
        sa.update(connection)
        .where(connection.c.id == id)
        .values(
            identity=json.dumps(identity),
            position=position,
            resume_position=position,
            position_at=time.time(),
            last_txn=txn,
            server_life=server_life,
        )
    )


def statement(c: Connection, id: int) -> str:
    """The canonical text of the definition; it contains no secret."""
    return str(c.execute(sa.select(connection.c.statement).where(connection.c.id == id)).scalar_one())


def set_secret(c: Connection, id: int, text: str | None) -> None:
    """Changes the password reference, and clears errors of the old one."""
    c.execute(sa.update(connection).where(connection.c.id == id).values(secret=text))
    forget_errors(c, id)


def forget_errors(c: Connection, id: int | None = None) -> None:
    """Clears errors, which are fixed or will be found again: of one connection, or of all."""
    wrong = connection.c.error.is_not(None)
    c.execute(
        sa.update(connection)
        .where(wrong if id is None else sa.and_(wrong, connection.c.id == id))
        .values(state=ConnectionState.DEFINED, error=None)
    )


def position_at(c: Connection, id: int) -> float:
    """When the position last moved."""
    return float(c.execute(sa.select(connection.c.position_at).where(connection.c.id == id)).scalar_one())


def find(c: Connection, name: str) -> ConnectionInfo | None:
    # SQLite's lower() handles only ASCII, so a name as written must be enough to find it
    same = sa.or_(connection.c.name == name, sa.func.lower(connection.c.name) == name.lower())
    row = c.execute(sa.select(connection).where(same)).first()
    return None if row is None else _info(row)


def get(c: Connection, id: int) -> ConnectionInfo:
    """The connection; if it has been dropped meanwhile, an error that ends its job."""
    row = c.execute(sa.select(connection).where(connection.c.id == id)).first()
    if row is None:
        raise DefinitionError("name.unknown", f"connection number {id} was dropped", "No action is needed.")
    return _info(row)


def all(c: Connection) -> list[ConnectionInfo]:
    return [_info(r) for r in c.execute(sa.select(connection).order_by(connection.c.id))]


def secret(c: Connection, id: int) -> Secret | None:
    """The connection's password reference; resolve it on the driver only."""
    text = c.execute(sa.select(connection.c.secret).where(connection.c.id == id)).scalar()
    return None if text is None else Secret(text)


def server_life(c: Connection, id: int) -> str:
    """The life of the upstream server that the capture last read from (its postmaster's start and timeline)."""
    return str(c.execute(sa.select(connection.c.server_life).where(connection.c.id == id)).scalar())


def set_server_life(c: Connection, id: int, life: str) -> None:
    c.execute(sa.update(connection).where(connection.c.id == id).values(server_life=life))


def set_identity(c: Connection, id: int, identity: dict[str, str]) -> None:
    c.execute(sa.update(connection).where(connection.c.id == id).values(identity=json.dumps(identity)))


def set_state(c: Connection, id: int, state: ConnectionState, error: HeadwaterError | None = None) -> None:
    c.execute(
        sa.update(connection)
        .where(connection.c.id == id)
        .values(state=state, error=None if error is None else json.dumps(error.stored()))
    )


def advance(c: Connection, id: int, position: str) -> None:
    """Records idle progress: everything up to `position` is published. The caller has checked its fence."""
    c.execute(
        sa.update(connection)
        .where(connection.c.id == id)
        .values(position=position, resume_position=position, position_at=time.time())
    )


def remove(c: Connection, id: int) -> None:
    for table in (segment, part, retired_segment, schema_version):
        c.execute(sa.delete(table).where(table.c.connection_id == id))
    c.execute(sa.delete(connection).where(connection.c.id == id))
    lease.forget(c, Name.connection(id))


def _info(r: Row[tuple[object, ...]]) -> ConnectionInfo:
    return ConnectionInfo(
        id=r.id,
        name=r.name,
        type=r.type,
        options=json.loads(r.options),
        state=ConnectionState(r.state),
        error=None if r.error is None else json.loads(r.error),
        identity=json.loads(r.identity),
        last_index=r.last_index,
        committed_index=r.committed_index,
        resume_position=r.resume_position,
        position=r.position,
        last_txn=r.last_txn,
    )
