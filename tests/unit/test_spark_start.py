"""How Spark is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.engine import spark


def test_workers_get_the_python_that_runs_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str | None] = {}

    class Builder:
        """Notes the environment at the moment at which a session would start."""

        def __getattr__(self, name: str) -> Any:
            return lambda *_: self

        def getOrCreate(self) -> Any:  # noqa: N802  (Spark's name)
            seen.update({k: os.environ.get(k) for k in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")})
            raise RuntimeError("enough")

    class Session:
        builder = Builder()

    monkeypatch.setenv("PYSPARK_PYTHON", "another-python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "another-python")
    monkeypatch.setattr(spark, "SparkSession", Session)
    monkeypatch.setattr(spark, "check_java", lambda: None)
    monkeypatch.setattr(spark, "jars", lambda: ["delta.jar"])
    with pytest.raises(Exception, match="Spark did not start"):
        spark.start(tmp_path)
    assert seen == {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
