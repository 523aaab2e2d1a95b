"""Sessions with PostgreSQL: one place for options, fixed settings and the translation of errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg import errors as pg_errors

from headwater.errors import HeadwaterError, PrivilegeError, Retry, SourceError
from headwater.source import endpoint
from headwater.source.refusals import locked

# The same in scans and in the log, so that a value has only one text form.
SETTINGS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "lc_monetary": "C",
    "search_path": "",
    "client_encoding": "UTF8",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}


@dataclass(frozen=True, slots=True)
class Endpoint(endpoint.Endpoint):
    """How to reach a PostgreSQL."""

    default_port = 5432

    @property
    def settings_option(self) -> str:
        """The fixed settings as libpq's `options` value."""
        return " ".join(f"-c {k}={v.replace(' ', chr(92) + ' ')}" for k, v in SETTINGS.items())

    def uri(self) -> str:
        """A connection URI with the fixed settings, for ADBC. Contains the password: never log it."""
        query = {
            "sslmode": self.ssl_mode,
            "connect_timeout": str(self.connect_timeout_s),
            "application_name": "headwater scan",
            "options": self.settings_option,
        }
        if self.ssl_root_cert:
            query["sslrootcert"] = self.ssl_root_cert
        account = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        return (
            f"postgresql://{account}@{quote(self.host, safe='')}:{self.port}/{quote(self.database, safe='')}"
            f"?{urlencode(query, quote_via=quote)}"
        )

    def parameters(self, *, replication: bool = False) -> dict[str, Any]:
        """Keyword parameters for psycopg and libpq."""
        parameters: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "dbname": self.database,
            "sslmode": self.ssl_mode,
            "connect_timeout": self.connect_timeout_s,
            "application_name": "headwater",
            "options": self.settings_option,
            "keepalives_idle": 30,
        }
        if self.ssl_root_cert:
            parameters["sslrootcert"] = self.ssl_root_cert
        if replication:
            parameters["replication"] = "database"
            parameters["application_name"] = "headwater capture"
        return parameters

    def connect(self, *, replication: bool = False) -> psycopg.Connection[tuple[Any, ...]]:
        """An autocommit session with the fixed settings; failures are raised as SourceError with a hint."""
        try:
            return psycopg.connect(**self.parameters(replication=replication), autocommit=True)
        except psycopg.Error as e:
            raise self.translate(e) from e

    def translate(self, error: psycopg.Error) -> HeadwaterError:
        """A driver's error as one of ours. The text is the server's first line; it never contains the password."""
        text = str(error).strip()
        place = f"{self.host}:{self.port}"
        lower = text.lower()
        if isinstance(error, pg_errors.InvalidPassword | pg_errors.InvalidAuthorizationSpecification) or any(
            s in lower for s in ("password authentication failed", "no pg_hba.conf entry", "no password supplied")
        ):
            return SourceError(
                "source.authentication",
                f"{place} refused user {self.user}: {_line(text)}",
                "Correct username and password of the connection, or allow the user in pg_hba.conf.",
            )
        if "role" in lower and "does not exist" in lower:
            return SourceError(
                "source.authentication", f"{place} has no user {self.user}", "Correct the connection's username."
            )
        if isinstance(error, pg_errors.InvalidCatalogName) or ("database" in lower and "does not exist" in lower):
            return SourceError(
                "source.database_missing",
                f"{place} has no database {self.database}",
                "Correct the connection's database.name.",
            )
        if "max_wal_senders" in lower or ("wal sender" in lower and "number of requested" in lower):
            return SourceError(
                "source.no_free_walsender",
                f"{place} has no free walsender",
                "Raise max_wal_senders, or stop a replication client that is no longer needed.",
            )
        if isinstance(error, pg_errors.LockNotAvailable):
            return locked(place)
        if isinstance(error, pg_errors.InsufficientPrivilege):
            return PrivilegeError("source.privilege", _line(text), "Grant the privilege to the connection's user.")
        if isinstance(error, psycopg.OperationalError) and (
            error.sqlstate is None or error.sqlstate[:2] in ("08", "57")
        ):
            return SourceError(
                "source.unreachable",
                f"cannot reach {place}: {_line(text)}",
                "Check hostname and port, and that the server is running; a running Headwater retries.",
                Retry.AUTO,
            )
        return SourceError("source.failed", f"{place}: {_line(text)}", "See the upstream's message.")


def _line(text: str) -> str:
    """The message without libpq's repetition of the address."""
    first = text.splitlines()[0] if text else "no answer"
    return first.split("FATAL:", 1)[-1].strip() if "FATAL:" in first else first


def quote_identifier(name: str) -> str:
    """A name quoted for PostgreSQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """A text literal (standard_conforming_strings is on everywhere we connect)."""
    escaped = text.replace("'", "''")
    if "\\" in escaped:
        return " E'" + escaped.replace("\\", "\\\\") + "'"
    return f"'{escaped}'"


def lsn_to_int(text: str) -> int:
    """A text LSN as a comparable number."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def int_to_lsn(value: int) -> str:
    """A number as a text LSN."""
    return f"{value >> 32:X}/{value & 0xFFFFFFFF:X}"
