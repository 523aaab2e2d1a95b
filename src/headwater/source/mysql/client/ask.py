"""Queries to the server: a statement in, rows out, failures as our own errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pymysql

from headwater.source.mysql.client.refusals import Address, translate
from headwater.source.mysql.client.session import Session, quote_identifier, quote_literal


def qualified(schema: str, name: str) -> str:
    """A table's name, quoted for use in a statement."""
    return f"{quote_identifier(schema)}.{quote_identifier(name)}"


def query(session: Session, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """The rows of a statement; failures are raised as SourceError."""
    try:
        with session.cursor() as cursor:
            cursor.execute(statement, tuple(parameters) or None)
            return list(cursor.fetchall())
    except (pymysql.Error, OSError) as e:
        raise translate(address_of(session), e) from e


def records(session: Session, statement: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """The rows of a statement by lower-case column name: servers differ in which other columns they return."""
    try:
        with session.cursor() as cursor:
            cursor.execute(statement, tuple(parameters) or None)
            names = [d[0].lower() for d in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    except (pymysql.Error, OSError) as e:
        raise translate(address_of(session), e) from e


def binlog_events(session: Session, file: str, offset: int, most: int = 0) -> list[dict[str, str]]:
    """The events of a binlog file from an offset on (at most `most`; 0: all), as the server prints them.

    It repeats statements in their original charset, whatever that was: their bytes are read one by one, as Latin-1.
    """
    limit = f" LIMIT {most}" if most else ""
    decodes, session.use_unicode = session.use_unicode, False
    try:
        found = records(session, f"SHOW BINLOG EVENTS IN {quote_literal(file)} FROM {offset}{limit}")
    finally:
        session.use_unicode = decodes
    return [{k: v.decode("latin-1") if isinstance(v, bytes) else str(v or "") for k, v in r.items()} for r in found]


def variables(session: Session, names: Sequence[str]) -> Mapping[str, str]:
    """Global variables by name, as text; without those that the server does not have."""
    listed = ", ".join(f"'{name}'" for name in names)
    return {k.lower(): v for k, v in query(session, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")}


def address_of(session: Session) -> Address:
    """Where a session is connected to, for messages."""
    user = session.user.decode() if isinstance(session.user, bytes) else session.user
    return Address(session.host, session.port, user, session.db or "")
