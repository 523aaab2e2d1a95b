"""Connections and tables defined only in meta, for tests that need no upstream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import Connection

from headwater.engine.home import Home
from headwater.meta import connections, relations
from headwater.model import Column, ConnectionState


@contextmanager
def home_with(path: Path, *tables: str, running: bool = True) -> Iterator[Home]:
    """A home with a connection `pg`, id 1, and tables without columns, ids from 1 on."""
    home = Home.open(path)
    with home.meta.write() as c:
        id = add_connection(c)
        if running:
            connections.set_state(c, id, ConnectionState.RUNNING)
        for name in tables:
            add_table(c, name, connection_id=id)
    yield home
    home.meta.close()


def add_connection(c: Connection, name: str = "pg") -> int:
    return connections.add(c, name=name, type="postgres-cdc", options={}, secret=None, position="0/10")


def add_table(
    c: Connection,
    name: str,
    columns: tuple[Column, ...] = (),
    key: tuple[str, ...] = (),
    *,
    connection_id: int = 1,
    upstream_id: int = 1,
    upstream: str = "",
    block: int = 0,
    replaces: int = 0,
) -> int:
    schema, _, table = (upstream or f"public.{name}").partition(".")
    return relations.add(
        c,
        name=name,
        connection_id=connection_id,
        upstream_schema=schema,
        upstream_table=table,
        upstream_id=upstream_id,
        columns=columns,
        key=key,
        options={},
        statement="",
        block=block,
        replaces=replaces,
    )
