"""The driver's and the server's errors as our own: by number, with the server's message, never with values."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass

import pymysql

from headwater.errors import DataError, HeadwaterError, PrivilegeError, Retry, SourceError
from headwater.source.refusals import locked, passing

# Numbers of the servers' errors; 2000 to 2999 are the client's.
WRONG_USER = frozenset({1045, 1130, 1698})
NOT_ALLOWED = frozenset({1142, 1143, 1227, 1370})
PASSWORD_EXPIRED = frozenset({1820, 1862})
LOCKED_ACCOUNT = frozenset({3118, 4151})
NO_PLUGIN = frozenset({1251, 1524, 2058, 2059})
CANNOT_REACH = frozenset({1129, 2002, 2003, 2005, 2012, 2026})
# The session is gone or was ended: shutdown, KILL, idle timeout, network.
ENDED = frozenset({1053, 1077, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927, 2006, 2013, 2014, 2055, 3169, 4031})
LOCKED = frozenset({1205, 3572})
# Too many connections, an account limit, a deadlock, a statement timeout, a table definition that just changed.
AGAIN = frozenset({1040, 1203, 1213, 1226, 1412, 1969, 3024})
CHANGED = frozenset({1051, 1054, 1072, 1109, 1146, 1932})

NO_CRYPTOGRAPHY = "cryptography"
NO_NACL = "pynacl"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a session is connected to, for messages."""

    host: str
    port: int
    user: str
    database: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def hashed(self) -> str:
        """The text that a connection's default server ID is derived from; it must never change."""
        return f"Place(host={self.host!r}, port={self.port!r}, user={self.user!r}, database={self.database!r})"


def translate(address: Address, error: Exception) -> HeadwaterError:
    """The driver's error, with a hint. Its number decides; the text is the server's."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    refused = _session(address, number, text, error) or _statement(address, number, text)
    if refused:
        return refused
    if isinstance(error, pymysql.err.InterfaceError):  # a closed session was used
        return _ended(address, "the connection is closed")
    message = f"{address}: {_without_values(text)}" + (f" (error {number})" if number else "")
    return SourceError("source.failed", message, "See the upstream's message.")


def _session(address: Address, number: int, text: str, error: Exception) -> HeadwaterError | None:
    """A session that could not be opened, or that is gone."""
    if number in WRONG_USER:
        return _no_access(
            address, text, "Correct username and password of the connection, or create the user upstream."
        )
    if number in PASSWORD_EXPIRED:
        return _no_access(address, text, "Give the user a new password upstream: ALTER USER … IDENTIFIED BY …;")
    if number in LOCKED_ACCOUNT:
        return _no_access(address, text, "Unlock the user upstream: ALTER USER … ACCOUNT UNLOCK;")
    if isinstance(error, RuntimeError) or number in NO_PLUGIN:
        return _no_plugin(address, text)
    if number == 1049:
        return SourceError(
            "source.database_missing",
            f"{address} has no database {address.database}",
            "Correct the connection's database.name.",
        )
    if number == 1044:  # also for a database that does not exist, unless the user has all privileges
        return PrivilegeError(
            "source.privilege",
            f"user {address.user} may not use the database {address.database} of {address}, or there is none",
            f"Correct database.name, or run upstream: GRANT SELECT ON `{address.database}`.* TO …;",
        )
    if number in CANNOT_REACH:
        return _unreachable(address, text, error)
    return _ended(address, text) if number in ENDED else None


def _statement(address: Address, number: int, text: str) -> HeadwaterError | None:
    """A statement that failed."""
    if number in NOT_ALLOWED:
        return PrivilegeError("source.privilege", f"{address}: {text}", "Grant the privilege to the connection's user.")
    if number in LOCKED:
        return locked(address)
    if number in AGAIN:
        return passing(address, text)
    if number in CHANGED:
        return DataError("data.schema_changed", f"{address}: {text}", "Restore the table, or RESYNC TABLE.")
    return None


def _no_access(address: Address, text: str, hint: str) -> SourceError:
    return SourceError("source.authentication", f"{address} refused user {address.user}: {text}", hint)


def _no_plugin(address: Address, text: str) -> SourceError:
    lower = text.lower()
    if NO_NACL in lower or "ed25519" in lower:
        way = "Install PyNaCl next to Headwater, or give the user another plugin upstream: ALTER USER … IDENTIFIED VIA "
        return _no_access(
            address, "its ed25519 plugin needs PyNaCl", f"{way}mysql_native_password USING PASSWORD('…');"
        )
    if NO_CRYPTOGRAPHY in lower:
        way = "Install cryptography next to Headwater, or set ssl.mode = 'require'."
        return _no_access(address, "its plugin needs the package cryptography", way)
    return _no_access(
        address, text, "Give the user the plugin caching_sha2_password (MySQL) or mysql_native_password (MariaDB)."
    )


def _unreachable(address: Address, text: str, error: Exception) -> SourceError:
    cause = getattr(error, "original_exception", None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return SourceError(
            "source.unreachable",
            f"the certificate of {address} is not trusted: {cause.verify_message}",
            "Correct ssl.root.cert (or hostname, for verify-full), or choose another ssl.mode.",
        )
    if isinstance(cause, ssl.SSLError) or "TLS" in text:
        return SourceError(
            "source.unreachable",
            f"no TLS with {address}: {cause.reason if isinstance(cause, ssl.SSLError) else text}",
            "Choose another ssl.mode, or let the server offer TLS 1.2 or later.",
        )
    return SourceError(
        "source.unreachable",
        f"cannot reach {address}: {cause or text}",
        "Check hostname and port, and that the server is running; a running Headwater retries.",
        Retry.AUTO,
    )


def _ended(address: Address, text: str) -> SourceError:
    return SourceError(
        "source.disconnected", f"{address} ended the connection: {text}", "Wait; Headwater retries.", Retry.AUTO
    )


def _without_values(text: str) -> str:
    """The message without its quoted parts, including nested quotes: an unexpected one may quote a key."""
    return re.sub(r"'.*'", "'…'", text, flags=re.S)
