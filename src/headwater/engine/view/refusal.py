"""What Spark says when a view's query fails, without values of rows."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from headwater.errors import HeadwaterError, JobError, Retry
from headwater.meta.relations import BESIDE
from headwater.model import RelationInfo

_CLASS = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\b\d[\d.,:-]*\b")
MOST_RESULT = "spark.driver.maxResultSize"  # the setting that Spark's message names
# errors of the rows or the query, which only other rows or another query fix
_OF_ROWS = (
    "DIVIDE_BY_ZERO",
    "CAST_",
    "ARITHMETIC_OVERFLOW",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "INVALID_",
    "SCALAR_SUBQUERY",
)


def is_too_large(error: Exception) -> bool:
    """Whether Spark refused to send rows because there are too many for one process."""
    return isinstance(error, PySparkException | Py4JError) and MOST_RESULT in str(error)


def refused(relation: RelationInfo, error: Exception) -> HeadwaterError:
    """A refresh or fill that Spark could not do: its reason without row values; any other error as it is."""
    if isinstance(error, HeadwaterError):
        return error
    if not isinstance(error, PySparkException | Py4JError):
        raise error
    text, shown = str(error), relation.name.removeprefix(BESIDE)
    name = next(iter(_CLASS.findall(text)), "")
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    reason = name if name.startswith(_OF_ROWS) else _QUOTED.sub("…", first)[:300]
    fix = "Correct the rows; Headwater retries." if name.startswith(_OF_ROWS) else "Headwater retries; see logs/."
    return JobError(
        "view.failed",
        f"{shown} could not be computed: {reason}",
        f"{fix} Or DROP the view and create it with another query: "
        f"SHOW CREATE MATERIALIZED VIEW {shown} shows the one that it has.",
        Retry.AUTO,
    )
