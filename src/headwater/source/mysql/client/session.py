"""Sessions with MySQL and MariaDB: one place for options, fixed settings and the translation of errors."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CLIENT, CR

from headwater.errors import HeadwaterError, Retry, SourceError, SqlError
from headwater.source import endpoint
from headwater.source.mysql.client.refusals import Address, translate

LOCK_TIMEOUT_S = 10  # for the metadata lock that any SELECT takes; a server's default is a year
LARGEST_KEY_BYTES = 3072  # of an InnoDB index

# The same in scans and in queries, whatever the server's defaults are: they could truncate, round or hide rows.
SETTINGS = {
    "time_zone": "'+00:00'",
    "sql_mode": "'NO_BACKSLASH_ESCAPES'",  # so that a literal needs only one rule; see `quote_literal`
    "sql_select_limit": "18446744073709551615",
    "sql_big_selects": "1",
    "sql_auto_is_null": "0",
    "sql_quote_show_create": "1",
    "completion_type": "0",
    "max_sort_length": str(LARGEST_KEY_BYTES + 1024),
    "lock_wait_timeout": str(LOCK_TIMEOUT_S),
    "wait_timeout": "28800",
    "net_write_timeout": "600",  # a scan may pause reading while the lake's disk is slow
}
MYSQL_SETTINGS = {"max_execution_time": "0", "information_schema_stats_expiry": "0"}
MARIADB_SETTINGS = {"max_statement_time": "0"}
KEEPALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}

Session = Any  # pymysql's Connection, which is untyped


@dataclass(frozen=True, slots=True)
class Endpoint(endpoint.Endpoint):
    """How to reach a MySQL or a MariaDB."""

    default_port = 3306

    @property
    def address(self) -> Address:
        return Address(self.host, self.port, self.user, self.database)

    def connect(self) -> Session:
        """An autocommit session with the fixed settings; failures are raised as SourceError with a hint.

        Reads wait without limit once it is open: TCP notices a dead peer after about a minute.
        """
        session = None
        try:
            session = _Connection(
                tls_required=self.ssl_mode not in ("disable", "prefer"),
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password.encode(),  # the driver would use latin1
                database=self.database,
                charset="utf8mb4",
                autocommit=True,
                program_name="headwater",
                connect_timeout=self.connect_timeout_s,
                read_timeout=self.connect_timeout_s,  # a server that accepts and then sends nothing
                write_timeout=self.connect_timeout_s,
                ssl=self._tls(),
                ssl_disabled=self.ssl_mode == "disable",
            )
            _configure(session)
        except (pymysql.Error, OSError, RuntimeError) as e:
            if session is None:
                raise self._unreached(self.translate(e)) from e
            session.close()
            raise self.translate(e) from e
        return session

    def _unreached(self, error: HeadwaterError) -> HeadwaterError:
        """The error for a session that ended before it was open: something else than a database listens there."""
        if error.code != "source.disconnected":
            return error
        return SourceError(
            "source.unreachable",
            f"no MySQL or MariaDB answers at {self.address}: {error.message}",
            "Check hostname and port of the connection, and its type.",
            Retry.AUTO,
        )

    def translate(self, error: Exception) -> HeadwaterError:
        """A driver's error as one of ours. The text never contains the password."""
        return translate(self.address, error)

    def _tls(self) -> ssl.SSLContext | None:
        """The TLS context; modes have libpq's meaning: with a root certificate `require` also checks the server's."""
        if self.ssl_mode == "disable":
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the certificates that MySQL generates itself would not pass
        context.check_hostname = self.ssl_mode == "verify-full"
        if self.ssl_root_cert and self.ssl_mode != "prefer":
            _load(context, self.ssl_root_cert)
        elif self.ssl_mode.startswith("verify-"):
            context.load_default_certs()
        else:
            context.verify_mode = ssl.CERT_NONE
        return context


def _load(context: ssl.SSLContext, root_cert: str) -> None:
    try:
        context.load_verify_locations(root_cert)
    except OSError as e:
        raise SqlError(
            "sql.bad_option", f"ssl.root.cert {root_cert} cannot be used: {e.strerror or e}", "Correct ssl.root.cert."
        ) from e


class _Connection(Connection):  # type: ignore[misc]
    """PyMySQL's connection, which on its own continues unencrypted if the server offers no TLS."""

    def __init__(self, *, tls_required: bool, **options: Any) -> None:
        self._tls_required = tls_required
        super().__init__(**options)

    def _request_authentication(self) -> None:
        if self._tls_required and not self.server_capabilities & CLIENT.SSL:
            raise pymysql.err.OperationalError(CR.CR_SSL_CONNECTION_ERROR, "the server offers no TLS")
        super()._request_authentication()

    def _process_auth(self, plugin_name: bytes, auth_packet: Any) -> Any:
        if plugin_name == b"mysql_clear_password" and not self._secure:
            raise pymysql.err.OperationalError(
                CR.CR_AUTH_PLUGIN_CANNOT_LOAD, "the server wants the password in clear text, without TLS"
            )
        return super()._process_auth(plugin_name, auth_packet)


def _configure(session: Session) -> None:
    """Gives a new session the fixed settings, and lets it wait."""
    own = MARIADB_SETTINGS if is_mariadb(session) else MYSQL_SETTINGS
    with session.cursor() as cursor:
        cursor.execute("SET " + ", ".join(f"SESSION {k} = {v}" for k, v in {**SETTINGS, **own}.items()))
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    for option, value in KEEPALIVE.items():
        session._sock.setsockopt(socket.IPPROTO_TCP, option, value)
    session._read_timeout = session._write_timeout = None
    session._sock.settimeout(None)


def is_mariadb(session: Session) -> bool:
    """Whether MariaDB answers: it says so in its version."""
    return "mariadb" in str(session.server_version).lower()


def quote_identifier(name: str) -> str:
    """A name quoted for MySQL, in any sql_mode."""
    return "`" + name.replace("`", "``") + "`"


def quote_literal(text: str) -> str:
    """A text literal for our sessions, in which a backslash is an ordinary character (NO_BACKSLASH_ESCAPES)."""
    return "'" + text.replace("'", "''") + "'"
