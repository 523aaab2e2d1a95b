"""The upstream server as it is now: its version, its life, its log and how it orders text."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.source.postgres.catalog.types import Text
from headwater.source.postgres.client.ask import Session, query


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The upstream server as it is now."""

    version_num: int
    system_identifier: str
    timeline: int
    postmaster_start: str
    in_recovery: bool
    wal_level: str
    user: str
    slots: int
    slots_used: int
    synchronous_standby_names: str
    text: Text

    @property
    def version(self) -> str:
        return f"{self.version_num // 10000}.{self.version_num % 10000}"

    @property
    def identity(self) -> dict[str, str]:
        """What identifies the server; another value at the same address is another server."""
        return {"system_identifier": self.system_identifier, "timeline": str(self.timeline)}

    @property
    def life(self) -> str:
        """Changes whenever the server may have lost unflushed commits: a postmaster start, a timeline."""
        return f"{self.postmaster_start}/{self.timeline}"


SERVER = """
SELECT current_setting('server_version_num')::int,
       (SELECT system_identifier::text FROM pg_control_system()),
       CASE WHEN pg_is_in_recovery() THEN (SELECT to_hex(timeline_id) FROM pg_control_checkpoint())
            ELSE substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END,
       to_char(pg_postmaster_start_time() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'),
       pg_is_in_recovery(),
       current_setting('wal_level'),
       current_user::text,
       current_setting('max_replication_slots')::int,
       (SELECT count(*) FROM pg_replication_slots),
       current_setting('synchronous_standby_names')
"""

# Text collations differ from byte order in these: case, accents, punctuation, and beyond 16 bits.
ORDER_PROBE = r"""
SELECT array_agg(s ORDER BY s) = array_agg(s ORDER BY s COLLATE "C")
FROM unnest(ARRAY['', ' ', '!', '-', '0', '9', 'A', 'B', 'Z', '_', 'a', 'b', 'z', 'aB', 'Ab', 'a b', 'a-b', 'ab', 'ß',
                  'Ä', 'ä', 'é', 'ÿ', 'Ā', 'ſ', 'Ω', 'а', '中', U&'\FB01', U&'\FFFD', U&'\+01F600', U&'\+010FFFF']) s
"""


def describe_server(session: Session) -> ServerFacts:
    """The server behind a session."""
    (row,) = query(session, SERVER)
    return ServerFacts(
        version_num=row[0],
        system_identifier=row[1],
        timeline=int(row[2], 16),
        postmaster_start=row[3],
        in_recovery=row[4],
        wal_level=row[5],
        user=row[6],
        slots=row[7],
        slots_used=row[8],
        synchronous_standby_names=row[9],
        text=describe_text(session),
    )


def describe_text(session: Session) -> Text:
    """How the database orders text by default."""
    ((utf8, provider, collate),) = query(
        session,
        "SELECT pg_encoding_to_char(encoding) = 'UTF8', datlocprovider::text, datcollate::text FROM pg_database "
        "WHERE datname = current_database()"
        if session.info.server_version >= 150000
        else "SELECT pg_encoding_to_char(encoding) = 'UTF8', 'c', datcollate::text FROM pg_database "
        "WHERE datname = current_database()",
    )
    probed = bool(query(session, ORDER_PROBE)[0][0]) if utf8 else False
    return Text(utf8=utf8, provider=provider, collate=collate, bytewise=probed)
