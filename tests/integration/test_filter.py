"""Spark's verdict on a filter is the naive model's, which is the upstream's."""

from __future__ import annotations

import random

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from headwater.relation.filter import expression
from support.filters import MAKERS, judge, random_condition, random_rows


def test_spark_judges_a_filter_as_the_naive_model_does(spark: SparkSession) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    r = random.Random(seed)
    table = random_rows(r, 200)
    schema = "k int, i int, n decimal(10,2), b boolean, s string, d date, z timestamp, `Odd Name` bigint"
    conditions = [random_condition(r, 3) for _ in range(60)]
    frame = spark.createDataFrame(table, schema)
    verdicts = frame.select("k", *(expression(c).alias(f"v{i}") for i, c in enumerate(conditions))).orderBy(fn.col("k"))
    for row, found in zip(table, verdicts.collect(), strict=True):
        named = dict(zip(MAKERS, row[1:], strict=True))
        assert list(found)[1:] == [judge(c, named) for c in conditions], (seed, row)
