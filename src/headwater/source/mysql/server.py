"""The upstream server as it is now: its kind and version, its life, its log and what the log leaves out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.errors import SourceError
from headwater.source.mysql.client.ask import address_of, query, records, variables
from headwater.source.mysql.client.session import Session, is_mariadb

STATUS_RENAMED = (8, 2, 0)  # MySQL's SHOW MASTER STATUS became SHOW BINARY LOG STATUS
DAY_S = 86400

# Under the names of both kinds; a server has only the ones it knows.
VARIABLES = (
    *("server_id", "server_uuid", "server_uid", "hostname", "port", "datadir", "lower_case_table_names"),
    *("log_bin", "log_bin_basename", "binlog_format", "binlog_row_image", "binlog_row_metadata"),
    *("binlog_expire_logs_seconds", "binlog_expire_logs_auto_purge", "expire_logs_days"),
    *("binlog_space_limit", "log_replica_updates", "log_slave_updates", "gtid_mode", "gtid_slave_pos"),
    *("innodb_native_foreign_keys", "performance_schema"),
)

# Both terms are evaluated at the statement's start, so their difference is the server's start, to the second.
STARTED = """
SELECT VERSION(), CURRENT_USER(), CAST(UNIX_TIMESTAMP() - VARIABLE_VALUE AS SIGNED)
FROM {schema}.global_status WHERE VARIABLE_NAME = 'Uptime'
"""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The upstream server as it is now. `expire_s` is None if it never removes its binlogs automatically."""

    flavour: str  # mysql | mariadb
    version: tuple[int, int, int]
    server: str  # what distinguishes it from any other server
    started: int  # seconds since 1970
    user: str
    server_id: int
    log_bin: bool
    binlog_format: str
    row_image: str
    row_metadata: str
    gtids: bool
    gtid_mode: str  # MySQL's; MariaDB has no switch
    expire_s: int | None
    log_space_bytes: int | None
    logs_replicated: bool
    replicates: bool  # MariaDB: has replicated by GTID once; MySQL does not say so here
    cascades_logged: bool
    lower_case_names: int

    @property
    def is_mariadb(self) -> bool:
        return self.flavour == "mariadb"

    @property
    def version_text(self) -> str:
        return f"{'MariaDB' if self.is_mariadb else 'MySQL'} {'.'.join(map(str, self.version))}"

    @property
    def identity(self) -> dict[str, str]:
        """What identifies the server; another value at the same address is another server."""
        return {"flavour": self.flavour, "server": self.server}

    @property
    def life(self) -> str:
        """Changes whenever the server may have lost unflushed commits: a restart, another server."""
        return f"{self.server}/{self.started}"


@dataclass(frozen=True, slots=True)
class LogStatus:
    """Where the binlog ends, the transactions that MySQL had made visible then, and which databases it logs or not."""

    file: str
    offset: int
    executed: str
    only: frozenset[str]
    ignored: frozenset[str]

    def hides(self, database: str) -> bool:
        """Whether changes to the database's tables are not logged."""
        return (bool(self.only) and database not in self.only) or database in self.ignored


def describe_server(session: Session) -> ServerFacts:
    """The server behind a session."""
    mariadb = is_mariadb(session)
    ((version, user, started),) = query(
        session, STARTED.format(schema="information_schema" if mariadb else "performance_schema")
    )
    found = variables(session, VARIABLES)
    return ServerFacts(
        flavour="mariadb" if mariadb else "mysql",
        version=parse_version(version),
        server=_server(found),
        started=int(started),
        user=user,
        server_id=int(found["server_id"]),
        log_bin=_on(found, "log_bin"),
        binlog_format=found.get("binlog_format", "ROW"),
        row_image=found.get("binlog_row_image", "FULL"),
        row_metadata=found.get("binlog_row_metadata", "MINIMAL"),
        gtids=mariadb or found.get("gtid_mode") == "ON",
        gtid_mode=found.get("gtid_mode", ""),
        expire_s=_expiry(found),
        log_space_bytes=int(found.get("binlog_space_limit", "0")) or None,
        logs_replicated=_on(found, "log_replica_updates") or _on(found, "log_slave_updates"),
        replicates=bool(found.get("gtid_slave_pos")),
        cascades_logged=found.get("innodb_native_foreign_keys") == "OFF",
        lower_case_names=int(found.get("lower_case_table_names", "0")),
    )


def expect_server(session: Session, identity: Mapping[str, str]) -> str:
    """The server's life, after checking that it is the server that meta knows; an empty identity knows none."""
    server = describe_server(session)
    known = identity.get("server", "")
    if known and known != server.server:
        raise SourceError(
            "source.replaced",
            f"a different server now answers at {address_of(session)}",
            "Point the connection at its original server, or RESYNC its tables.",
        )
    return server.life


def log_status(session: Session) -> LogStatus:
    """Where the binlog ends now; needs REPLICATION CLIENT (MariaDB: BINLOG MONITOR)."""
    modern = not is_mariadb(session) and parse_version(session.server_version) >= STATUS_RENAMED
    found = records(session, "SHOW BINARY LOG STATUS" if modern else "SHOW MASTER STATUS")
    if not found:
        raise no_log()
    at = found[0]
    return LogStatus(
        file=at["file"],
        offset=int(at["position"]),
        executed="".join(at.get("executed_gtid_set", "").split()),
        only=frozenset(at["binlog_do_db"].split(",")) - {""},
        ignored=frozenset(at["binlog_ignore_db"].split(",")) - {""},
    )


def log_files(session: Session) -> list[tuple[str, int]]:
    """The binlog files that the server still has, oldest first, with their sizes."""
    return [(r["log_name"], int(r["file_size"])) for r in records(session, "SHOW BINARY LOGS")]


def no_log() -> SourceError:
    """The error for a server that writes no binlog."""
    return SourceError(
        "source.wal_level",
        "the upstream writes no binlog",
        "Add `log_bin = binlog` and a `server_id` to [mysqld] of the upstream's my.cnf, and restart it.",
    )


def parse_version(text: str) -> tuple[int, int, int]:
    """The version's three numbers; MariaDB's handshake puts 5.5.5 before its own."""
    m = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)", text)
    if m is None:
        message = f"the upstream reports version {text!r}, which is neither MySQL nor MariaDB"
        raise SourceError("source.version", message, "Use MySQL or MariaDB.")
    return int(m[1]), int(m[2]), int(m[3])


def _server(found: Mapping[str, str]) -> str:
    """The server's identity.

    For MySQL its server_uuid. MariaDB has none: a hash of the machine, the location of its data and its numbers, which
    no two servers share and which survives a restart. One that moves to another machine counts as another server.
    """
    if found.get("server_uuid"):
        return found["server_uuid"]
    parts = (found.get(name, "") for name in ("server_uid", "hostname", "port", "datadir", "server_id"))
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def _expiry(found: Mapping[str, str]) -> int | None:
    if found.get("binlog_expire_logs_auto_purge") == "OFF":
        return None
    seconds = int(found.get("binlog_expire_logs_seconds", "0"))
    return seconds or int(float(found.get("expire_logs_days", "0")) * DAY_S) or None


def _on(found: Mapping[str, str], name: str) -> bool:
    return found.get(name, "OFF") in ("ON", "1")
