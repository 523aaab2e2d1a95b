"""Catalog queries: a statement in, rows out, failures as our own errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from headwater.config import LOCK_TIMEOUT_S
from headwater.source.postgres.client.session import Endpoint, quote_identifier

Session = psycopg.Connection[tuple[Any, ...]]


def qualified(schema: str, name: str) -> str:
    """A table's name, quoted for use in a statement."""
    return f"{quote_identifier(schema)}.{quote_identifier(name)}"


def query(
    session: Session, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
) -> list[tuple[Any, ...]]:
    """The rows of a statement; failures are raised as SourceError."""
    try:
        cursor = session.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []
    except psycopg.Error as e:
        raise endpoint_of(session).translate(e) from e


@contextmanager
def with_lock_timeout(session: Session) -> Iterator[None]:
    """A transaction that does not queue for long behind the upstream's own locks, nor makes others queue behind it."""
    with session.transaction():
        session.execute(f"SET LOCAL lock_timeout = {int(LOCK_TIMEOUT_S * 1000)}")
        yield


def endpoint_of(session: Session) -> Endpoint:
    """Where a session is connected to, for messages; a broken session no longer knows."""
    try:
        i = session.info
        return Endpoint(host=i.host or i.hostaddr, port=i.port, user=i.user, database=i.dbname)
    except psycopg.Error:
        return Endpoint(host="the upstream", port=0, user="", database="")
