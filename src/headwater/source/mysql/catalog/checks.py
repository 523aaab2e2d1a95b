"""Requirements for defining a connection: each error names the statement that fixes it, and nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pymysql

from headwater.errors import HeadwaterError, PrivilegeError, SourceError, SqlError
from headwater.source.mysql.catalog.catalog import account
from headwater.source.mysql.client.ask import address_of, query, records
from headwater.source.mysql.client.register import register
from headwater.source.mysql.client.session import Endpoint, Session, quote_identifier
from headwater.source.mysql.server import DAY_S, LogStatus, ServerFacts, describe_server, log_status, no_log

# the first versions that log full row metadata and know SHOW REPLICA STATUS
OLDEST = {"mysql": (8, 0, 22), "mariadb": (10, 5, 0)}
EXPIRES_IN_SECONDS = (10, 6, 1)  # MariaDB; earlier versions count only in days
SHORT_EXPIRY_S = 3 * DAY_S
NO_SUCH_TABLE = 1146
PROBE = "no_table_of_headwater"


@dataclass(frozen=True, slots=True)
class CheckedConnection:
    """An upstream that can be captured, and notices for the user."""

    server: ServerFacts
    notices: tuple[str, ...]


def check_connection(endpoint: Endpoint, options: Mapping[str, str]) -> CheckedConnection:
    """The server, after checking that a capture can run on it."""
    with endpoint.connect() as session:
        server = describe_server(session)
        check_server(server)
        status = _status(session, server)
        _check_filters(status, endpoint.database)
        _check_replica(session, server)
        _check_server_id(session, server, int(options.get("server.id", "0")))
        _check_transactions(session, server)
        notices = [*_database_notices(session, endpoint.database), *notices_of(server)]
        _check_reader(session, server, int(options.get("server.id", "0")))
    return CheckedConnection(server, tuple(notices))


def check_server(server: ServerFacts) -> None:
    """Raises unless the server's version and log suffice. Also for a starting capture: settings may have changed."""
    oldest = OLDEST[server.flavour]
    if server.version < oldest:
        raise SourceError(
            "source.version",
            f"{server.version_text} is not supported",
            f"Upgrade it to {'MariaDB' if server.is_mariadb else 'MySQL'} {'.'.join(map(str, oldest))} or later.",
        )
    if not server.log_bin:
        raise no_log()
    if server.binlog_format != "ROW":
        raise _setting("binlog_format", server.binlog_format, "ROW", "does not contain the changed rows")
    if server.row_image != "FULL":
        raise _setting("binlog_row_image", server.row_image, "FULL", "does not contain whole rows")


def _setting(name: str, value: str, wanted: str, why: str) -> SourceError:
    return SourceError(
        "source.wal_level",
        f"{name} of the upstream is {value}: its log {why}",
        f"Run upstream: SET GLOBAL {name} = '{wanted}'; reconnect its sessions, and set it in my.cnf too.",
    )


def _status(session: Session, server: ServerFacts) -> LogStatus:
    privilege = "BINLOG MONITOR" if server.is_mariadb else "REPLICATION CLIENT"
    try:
        return log_status(session)
    except PrivilegeError as e:
        raise _lacks(session, privilege, "read where the upstream's log ends") from e


def _lacks(session: Session, privilege: str, what: str) -> SourceError:
    return PrivilegeError(
        "source.privilege",
        f"user {address_of(session).user} may not {what}",
        f"Run upstream: GRANT {privilege} ON *.* TO {account(session)};",
    )


def _check_filters(status: LogStatus, database: str) -> None:
    if not status.hides(database):
        return
    name = "binlog_ignore_db" if database in status.ignored else "binlog_do_db"
    fix = f"Remove {database} from" if name == "binlog_ignore_db" else f"Add {name} = {database} to"
    raise SourceError(
        "source.log_incomplete",
        f"{name} of the upstream keeps the database {database} out of its log",
        f"{fix} [mysqld] of the upstream's my.cnf, and restart it.",
    )


def _check_replica(session: Session, server: ServerFacts) -> None:
    """Raises if a replica does not log what it replicates."""
    if server.logs_replicated:
        return
    statement = "SHOW ALL SLAVES STATUS" if server.is_mariadb else "SHOW REPLICA STATUS"
    try:
        replicates = bool(records(session, statement))
    except PrivilegeError:
        replicates = server.replicates  # on MariaDB this needs one more privilege than it is worth
    if replicates:
        name = "log_slave_updates" if server.is_mariadb else "log_replica_updates"
        raise SourceError(
            "source.log_incomplete",
            f"the upstream is a replica that does not log what it replicates ({name} is OFF)",
            f"Add {name} = ON to [mysqld] of its my.cnf and restart it, or connect to the server that it replicates.",
        )


def _check_server_id(session: Session, server: ServerFacts, own: int) -> None:
    """Raises if another reader of the log uses our number: the server would keep ending one of the two."""
    if own == server.server_id:
        raise _taken(own, "is the upstream's own server_id")
    if not own:
        return
    statement = "SHOW SLAVE HOSTS" if server.is_mariadb else "SHOW REPLICAS"
    try:
        replicas = records(session, statement)
    except PrivilegeError:
        return  # MariaDB shows its replicas to few users; the capture then detects and reports a clash
    if any(int(r["server_id"]) == own for r in replicas):
        raise _taken(own, "is the server_id of a replica of the upstream")


def _taken(own: int, why: str) -> SqlError:
    return SqlError("sql.bad_option", f"server.id {own} {why}", "Give the connection another server.id.")


def _check_transactions(session: Session, server: ServerFacts) -> None:
    """Raises if the user may not list running transactions: without GTIDs only they show what is not visible yet."""
    if server.gtids:
        return
    try:
        query(session, "SELECT count(*) FROM information_schema.innodb_trx")
    except PrivilegeError as e:
        raise _lacks(session, "PROCESS", "list the upstream's transactions, which is needed without GTIDs") from e


def _check_reader(session: Session, server: ServerFacts, own: int) -> None:
    """Raises if the user may not read the log: only trying proves it, because privileges may come from a role."""
    try:
        register(session, own or server.server_id + 1)
    except pymysql.Error as e:
        refused = e.args[0] if e.args else 0
        if refused in (1045, 1227):
            raise _lacks(session, "REPLICATION SLAVE", "read the upstream's log") from e
        raise


def _database_notices(session: Session, database: str) -> list[str]:
    """Raises if the user may not read the database; a server reports missing privileges before a missing database."""
    try:
        query(session, f"SELECT 1 FROM {quote_identifier(database)}.{PROBE} LIMIT 0")
    except PrivilegeError as e:
        seen = query(session, "SELECT 1 FROM information_schema.tables WHERE table_schema = %s LIMIT 1", (database,))
        grant = f"GRANT SELECT ON {quote_identifier(database)}.* TO {account(session)};"
        user = address_of(session).user
        if not seen:
            raise PrivilegeError(
                "source.privilege", f"user {user} may not read the tables of {database}", f"Run upstream: {grant}"
            ) from e
        return [f"user {user} may not read every table of {database}; for all of them: {grant}"]
    except HeadwaterError as e:
        if getattr(e.__cause__, "args", (0,))[:1] != (NO_SUCH_TABLE,):
            raise
    return []


def notices_of(server: ServerFacts) -> list[str]:
    """Facts about this server that work but may surprise."""
    notices = []
    if server.row_metadata != "FULL":
        notices.append(
            f"binlog_row_metadata of the upstream is {server.row_metadata}: column names come from its catalog, "
            "which may be newer than the log; better: SET GLOBAL binlog_row_metadata = 'FULL';"
        )
    if not server.gtids:
        notices.append(
            f"gtid_mode of the upstream is {server.gtid_mode}: its log cannot be followed on another server "
            "after a failover"
        )
    if server.expire_s is None and server.log_space_bytes is None:
        notices.append("the upstream never removes its binlogs automatically; PURGE BINARY LOGS once they are read")
    elif server.expire_s is not None and server.expire_s < SHORT_EXPIRY_S:
        in_days = server.is_mariadb and server.version < EXPIRES_IN_SECONDS
        expiry = "expire_logs_days = 7" if in_days else f"binlog_expire_logs_seconds = {7 * DAY_S}"
        notices.append(
            f"the upstream removes its binlogs after {_duration(server.expire_s)}; a longer outage requires a "
            f"resync; better: SET GLOBAL {expiry};"
        )
    if server.log_space_bytes is not None:
        notices.append(
            f"the upstream removes its oldest binlogs once they exceed {server.log_space_bytes} bytes "
            "(max_binlog_total_size); falling that far behind requires a resync"
        )
    return notices


def _duration(seconds: int) -> str:
    return f"{seconds // 3600} h" if seconds >= 3600 else f"{seconds} s"
