"""Spark's errors as our errors: what is wrong and where, without plans, settings or the JVM's stack."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headwater.engine.failures import MISSING_FILE
from headwater.errors import HeadwaterError, MachineError, SqlError, base_damaged, unknown_name
from headwater.sql.statements import Query
from headwater.sql.tokens import hide_passwords

_CODED = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .*?(?=\n\s*at |\nCaused by|\n\tat |\Z)", re.DOTALL)
_CAUSE = re.compile(r"Caused by: [\w.$]+: ([^\n]+)")
_PLAN = re.compile(r"^(?:'|\+-|== SQL|Search path:).*", re.DOTALL | re.MULTILINE)
_NOISE = re.compile(
    r'^\[[A-Z0-9_.]+\] |;? ?SQLSTATE: \w+|[;(] ?line \d+,? pos \d+[;)]?|If necessary set "[^"]+" to "[^"]+"[^.]*\.'
)
# Spark counts `pos` from 0 and `position` from 1
_PLACE = re.compile(r"line (\d+),? (pos|position) (\d+)")
# an error that this Spark has a name but no text for
_UNWORDED = re.compile(r"Cannot find main error class '([A-Z_]+)")
_HINTS = {
    "COLUMN_IS_NOT_VARIANT_TYPE": (
        "`column:path` reads a VARIANT; write parse_json(column):path, or get_json_object(column, '$.path')."
    )
}
_ENDED = "[NO_ACTIVE_OR_DEFAULT_SESSION]"  # a cluster has ended our application
MAX_MESSAGE = 1_000


def refusal(error: Exception, query: Query, prefix: str = "", names: Sequence[str] = ()) -> HeadwaterError:
    """The error for Spark's message about a query.

    `prefix` is the text before the query's own, `names` are the existing tables.
    """
    text = str(error).split("JVM stacktrace:")[0].strip()
    if any(mark in text for mark in MISSING_FILE):
        return base_damaged("a file of a base is missing: something else removed it")
    if _ENDED in text:
        return MachineError("spark.failed", "Spark ended during the query", "Run it again; a server restarts Spark.")
    coded = _CODED.search(text)
    if coded is None:
        causes = _CAUSE.findall(text)
        lines = text.splitlines() or [type(error).__name__]
        return MachineError(
            "spark.failed",
            f"Spark failed to run the query: {(causes[-1] if causes else lines[0])[:MAX_MESSAGE]}",
            "See logs/ in the home for the reason.",
        )
    said = coded.group()
    unworded = _UNWORDED.search(said)
    if unworded:
        name = unworded.group(1)
        hint = _HINTS.get(name, "Correct the query; Spark gives no details.")
        return SqlError("sql.query", name.replace("_", " ").lower(), hint)
    missing = re.match(r"\[TABLE_OR_VIEW_NOT_FOUND\].*?(`[^ ]+`)", said)
    if missing:
        return unknown_name("table", missing.group(1).replace("`", ""), names)
    return _refused(said, query, prefix)


def _refused(said: str, query: Query, prefix: str) -> SqlError:
    message = " ".join(_NOISE.sub("", _PLAN.sub("", said)).split()).strip(" ;")[:MAX_MESSAGE]
    hint = "Correct the query; SHOW TABLES and DESCRIBE show tables and columns."
    if "near '\"" in message:
        hint = 'Put names into `backticks`: in Spark\'s language "…" is a text.'
    found = _PLACE.search(said)
    if found is None or query.calls:  # views that replaced calls have shifted the text after them
        return SqlError("sql.query", message, hint)
    line = int(found.group(1))
    column = int(found.group(3)) + (1 if found.group(2) == "pos" else 0) - (len(prefix) if line == 1 else 0)
    lines = query.text.splitlines()
    shown = hide_passwords(lines[line - 1]) if line <= len(lines) else ""
    at = query.line + line - 1
    return SqlError(
        "sql.query",
        f"line {at}, column {column}: {message}",
        hint,
        line=at,
        column=max(column, 1),
        text=shown,
    )
