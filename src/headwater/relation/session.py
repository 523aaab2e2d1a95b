"""Spark sessions in which relations are read correctly, whatever the settings of the user's own session are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIME_ZONE = "spark.sql.session.timeZone"
DICTIONARY_FILTER = "parquet.filter.dictionary.enabled"
EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer."

NEEDED = {
    TIME_ZONE: "UTC",
    # Parquet looks a float up among a file's distinct values by its bits: `x = 0.0` would skip a file with only -0.0.
    DICTIONARY_FILTER: "false",
}
# A relation with an overlay is a union. Spark 4.2 fails to push a projection with a correlated EXISTS or IN through
# one ("key not found"), because it takes the sub-query's columns for those of the union.
BROKEN_RULES = ("PushProjectionThroughUnion",)


def reading(session: SparkSession, *, without: tuple[str, ...] = ()) -> SparkSession:
    """A new session for reading relations; `without` are further rules of the optimizer that it excludes."""
    own = session.newSession()
    for name, value in NEEDED.items():
        own.conf.set(name, value)
    excluded = [own.conf.get(EXCLUDED_RULES, "") or "", *(OPTIMIZER + rule for rule in (*BROKEN_RULES, *without))]
    own.conf.set(EXCLUDED_RULES, ",".join(filter(None, excluded)))
    return own
