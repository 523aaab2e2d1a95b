"""The publication of a connection: created, extended and dropped; every step can be repeated."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

import psycopg
from psycopg import errors as pg_errors

from headwater.errors import PrivilegeError, SourceError
from headwater.source.postgres.client.ask import Session, endpoint_of, qualified, query, with_lock_timeout
from headwater.source.postgres.client.session import quote_identifier

GENERATED_IN_LOG = 180000  # since this version a publication can carry stored generated columns
NAME_LENGTH = 63

DURABLE = "SELECT set_config('synchronous_commit', 'local', true) WHERE current_setting('synchronous_commit') = 'off'"


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication as it is upstream."""

    name: str
    complete: bool  # carries insert, update, delete and truncate
    via_root: bool
    generated: bool  # carries stored generated columns


def default_name(connection: str, short_id: str | None = None) -> str:
    """A name for slot and publication that shows its owner and is not taken."""
    plain = re.sub(r"[^a-z0-9_]", "_", connection.lower())
    short = short_id or secrets.token_hex(4)
    return f"headwater_{plain[: NAME_LENGTH - len('headwater__') - len(short)]}_{short}"


def create_statement(name: str, version_num: int) -> str:
    """The statement that creates a publication as Headwater needs it."""
    generated = ", publish_generated_columns = stored" if version_num >= GENERATED_IN_LOG else ""
    return (
        f"CREATE PUBLICATION {quote_identifier(name)} WITH (publish = 'insert, update, delete, truncate', "
        f"publish_via_partition_root = true{generated});"
    )


def add_statement(publication: str, schema: str, table: str) -> str:
    """The statement that publishes a table. ONLY, because inheritance children are separate tables."""
    return f"ALTER PUBLICATION {quote_identifier(publication)} ADD TABLE ONLY {qualified(schema, table)};"


def find(session: Session, name: str) -> Publication | None:
    """The publication under this name, or None."""
    generated = "p.pubgencols = 's'" if session.info.server_version >= GENERATED_IN_LOG else "false"
    rows = query(
        session,
        "SELECT p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate, p.pubviaroot, "
        f"{generated} FROM pg_publication p WHERE p.pubname = %s",
        (name,),
    )
    return Publication(name, *rows[0]) if rows else None


def ensure(session: Session, name: str, *, create: bool = True) -> Publication:
    """The publication, created if allowed; one that somebody else created must carry all we need."""
    found = find(session, name)
    statement = create_statement(name, session.info.server_version)
    if found is None:
        if not create:
            raise SourceError(
                "source.publication_missing",
                f"the upstream has no publication {name}, and publication.create is false",
                f"Run as the owner of the tables: {statement}",
            )
        _alter(session, statement, "a user with CREATE on the database")
        found = find(session, name)
        assert found is not None
    if not (found.complete and found.via_root):
        raise SourceError(
            "source.publication_unusable",
            f"the publication {name} leaves out changes that the lake needs",
            f"Run as its owner: ALTER PUBLICATION {quote_identifier(name)} SET (publish = 'insert, update, delete, "
            "truncate', publish_via_partition_root = true);",
        )
    return found


def holds(session: Session, name: str, schema: str, table: str) -> bool:
    """Whether the publication carries the table, by name, by `FOR ALL TABLES` or by its schema."""
    return bool(
        query(
            session,
            "SELECT 1 FROM pg_publication_tables WHERE pubname = %s AND schemaname = %s AND tablename = %s",
            (name, schema, table),
        )
    )


def add_table(session: Session, name: str, schema: str, table: str, *, create: bool = True) -> None:
    """Publishes the table unless it already is; check its replica identity first."""
    if not holds(session, name, schema, table):
        statement = add_statement(name, schema, table)
        if not create:
            raise SourceError(
                "source.publication_missing",
                f"the publication {name} does not carry {qualified(schema, table)}, and publication.create is false",
                f"Run as its owner: {statement}",
            )
        try:
            _alter(session, statement, "a superuser")
        except SourceError as e:
            if isinstance(e.__cause__, pg_errors.InsufficientPrivilege):
                raise PrivilegeError(
                    "source.privilege", e.message, f"{e.hint}{_membership(session, schema, table)}"
                ) from e
            if not isinstance(e.__cause__, pg_errors.DuplicateObject):  # another of our servers was faster
                raise
    _check_whole(session, name, schema, table)


def _membership(session: Session, schema: str, table: str) -> str:
    """The statement that lets our user publish all tables of this table's owner; none if that is a superuser."""
    named = (qualified(schema, table),)
    owner = query(
        session,
        "SELECT r.rolname FROM pg_class t JOIN pg_roles r ON r.oid = t.relowner "
        "WHERE t.oid = to_regclass(%s) AND NOT r.rolsuper",
        named,
    )
    if not owner:
        return ""
    grant = f"GRANT {quote_identifier(owner[0][0])} TO {quote_identifier(session.info.user)};"
    return f" Or, for all tables of its owner: {grant}"


def _check_whole(session: Session, name: str, schema: str, table: str) -> None:
    """Raises unless the publication carries all rows and ordinary columns of the table (15 and later can filter)."""
    if session.info.server_version < 150000:
        return
    rows = query(
        session,
        "SELECT p.rowfilter IS NOT NULL, array(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid "
        "AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND a.attname <> ALL(p.attnames)) "
        "FROM pg_publication_tables p JOIN pg_namespace n ON n.nspname = p.schemaname "
        "JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename "
        "WHERE p.pubname = %s AND p.schemaname = %s AND p.tablename = %s",
        (name, schema, table),
    )
    for filtered, left_out in rows:
        if filtered or left_out:
            what = "some of the rows" if filtered else f"column {left_out[0]}"
            publication, target = quote_identifier(name), qualified(schema, table)
            raise SourceError(
                "source.publication_unusable",
                f"the publication {name} leaves out {what} of {target}",
                f"Run as its owner: ALTER PUBLICATION {publication} DROP TABLE {target}; "
                f"{add_statement(name, schema, table)}",
            )


def drop_table(session: Session, name: str, schema: str, table: str) -> None:
    """Removes the table from the publication; fine if either is gone. Not for publications created by others."""
    listed = query(
        session,
        "SELECT 1 FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid JOIN pg_class c "
        "ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE p.pubname = %s AND n.nspname = %s AND c.relname = %s",
        (name, schema, table),
    )
    if listed:
        statement = f"ALTER PUBLICATION {quote_identifier(name)} DROP TABLE ONLY {qualified(schema, table)};"
        _alter(session, statement, "the owner of the publication")


def refresh(session: Session, name: str, since: int) -> list[str]:
    """Makes the log's readers drop their cached view of the publication, by an ALTER that changes nothing.

    If the publication is not ours, only its owner can do that; then returns who is waited for, in words, until they
    have done it, in a transaction newer than `since`. A publication of all tables was not altered for a table and does
    not need it.
    """
    rows = query(
        session,
        "SELECT p.puballtables, pg_has_role(p.pubowner, 'USAGE'), "
        "((p.xmin::text::bigint - %s) & 4294967295) BETWEEN 1 AND 2147483647 "
        "FROM pg_publication p WHERE p.pubname = %s",
        (since & 0xFFFFFFFF, name),
    )
    statement = f"ALTER PUBLICATION {quote_identifier(name)} SET (publish_via_partition_root = true);"
    if not rows:
        return [f"the publication {name}, which is gone"]
    every, ours, refreshed = rows[0]
    if every or (refreshed and not ours):
        return []
    if not ours:
        return [f"the owner of the publication {name}, who must run now: {statement}"]
    _alter(session, statement, "the owner of the publication")
    return []


def drop(session: Session, name: str) -> None:
    """Drops the publication; fine if it is gone."""
    _alter(session, f"DROP PUBLICATION IF EXISTS {quote_identifier(name)};", "the owner of the publication")


def _alter(session: Session, statement: str, who: str) -> None:
    """Runs a DDL statement without queueing for long behind the upstream's own; it is durable on return.

    If commits do not wait for the disk (synchronous_commit = off), a crash would undo it after we relied on it.
    """
    try:
        with with_lock_timeout(session):
            session.execute(DURABLE)
            session.execute(statement)
    except pg_errors.InsufficientPrivilege as e:
        message = str(e).splitlines()[0]
        raise PrivilegeError("source.privilege", message, f"Run as {who}: {statement}") from e
    except psycopg.Error as e:
        raise endpoint_of(session).translate(e) from e
