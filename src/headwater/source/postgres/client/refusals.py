"""ADBC's errors as ours: by SQLSTATE, with the server's message but never with the statement's values."""

from __future__ import annotations

import adbc_driver_manager

from headwater.errors import DataError, DefinitionError, HeadwaterError, PrivilegeError, Retry, SourceError
from headwater.source.postgres.client.session import Endpoint
from headwater.source.refusals import locked, passing


def translate(endpoint: Endpoint, error: adbc_driver_manager.Error) -> HeadwaterError:
    """The driver's error during a scan, with a hint. ADBC appends the whole statement, which contains key values."""
    place = f"{endpoint.host}:{endpoint.port}"
    state = error.sqlstate or ""
    words = _words(str(error))
    if state == "55P03":
        return locked(place)
    if state == "42501" and "row-level security" in words:
        return DefinitionError("table.row_security", words, "Give the connection's user BYPASSRLS, or drop the policy.")
    if state == "42501":
        return PrivilegeError("source.privilege", words, "Grant the privilege to the connection's user.")
    if state in ("42P01", "42703", "42704", "42804", "42883"):
        return DataError("data.schema_changed", words, "Restore the table, or RESYNC TABLE.")
    if state[:2] == "28" or "password authentication failed" in words or "no pg_hba.conf entry" in words:
        return SourceError(
            "source.authentication",
            f"{place} refused user {endpoint.user}",
            "Correct username and password of the connection, or allow the user in pg_hba.conf.",
        )
    if state[:2] in ("08", "57") or not state:
        return _scan_ended(place, words)
    if state[:2] in ("40", "53", "72"):  # rolled back, out of resources, snapshot too old
        return passing(place, words)
    message = words if state[:2] != "22" else "a value could not be read"  # class 22 quotes the value
    return SourceError("source.failed", f"{place}: {message} (SQLSTATE {state})", "See the upstream's message.")


def broken_stream(endpoint: Endpoint, error: Exception) -> HeadwaterError:
    """An error in the middle of the rows. Arrow passes on only the text, so the words must identify the kind."""
    words = _words(str(error))
    place = f"{endpoint.host}:{endpoint.port}"
    if "ERROR:" in str(error) and not words.startswith(("canceling", "terminating")):
        return SourceError(
            "source.failed", f"{place} could not send a row", "See the upstream's own log for the reason."
        )
    return _scan_ended(place, words)


def _scan_ended(place: str, words: str) -> SourceError:
    return SourceError("source.disconnected", f"{place} ended a scan: {words}", "Wait; Headwater retries.", Retry.AUTO)


def _words(text: str) -> str:
    """The first line of the server's message."""
    for mark in ("ERROR:", "FATAL:"):
        if mark in text:
            return text.split(mark, 1)[1].strip().splitlines()[0]
    return text.split("Query was:", 1)[0].split(" failed: ")[-1].strip().splitlines()[0] if text else "no answer"
