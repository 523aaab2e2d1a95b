"""How Spark is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.engine.spark import session as spark


class _Jvm:
    """A JVM that runs, and the one context in it."""

    def __init__(self, master: str, stopped: bool, ended: int | None = None) -> None:
        self.master = master
        self._stopped, self._ended = stopped, ended
        self.proc = self
        self._jsc = self

    def poll(self) -> int | None:
        return self._ended

    def sc(self) -> _Jvm:
        return self

    def isStopped(self) -> bool:  # noqa: N802  as Java has it
        return self._stopped


@pytest.mark.parametrize(
    ("jvm", "alive"),
    [
        (_Jvm("local[4]", stopped=False), True),
        (_Jvm("local[4]", stopped=False, ended=1), False),
        (_Jvm("spark://m:7077", stopped=False), True),
        (_Jvm("spark://m:7077", stopped=True), False),
        (_Jvm("spark://m:7077", stopped=False, ended=1), False),
    ],
)
def test_spark_is_started_again_when_its_process_has_ended_or_a_cluster_has_ended_the_application(
    monkeypatch: pytest.MonkeyPatch, jvm: _Jvm, alive: bool
) -> None:
    class Context:
        _gateway = jvm
        _active_spark_context = jvm

    monkeypatch.setattr(spark, "SparkContext", Context)
    assert spark.alive() is alive


def test_workers_get_the_python_that_runs_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str | None] = {}

    def launch(conf: Any, popen_kwargs: Any) -> Any:
        """Notes the environment at the moment at which the JVM would start, and where it would print to."""
        seen.update({k: os.environ.get(k) for k in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")})
        files = {popen_kwargs[name].name for name in ("stdout", "stderr")}
        assert files == {str(tmp_path / "logs" / "spark.log")}, "nothing of it reaches the user's terminal"
        raise RuntimeError("enough")

    class Context:
        _gateway = None

    monkeypatch.setenv("PYSPARK_PYTHON", "another-python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "another-python")
    monkeypatch.setattr(spark, "SparkContext", Context)
    monkeypatch.setattr(spark, "launch_gateway", launch)
    monkeypatch.setattr(spark, "check_java", lambda: None)
    monkeypatch.setattr(spark, "jars", lambda: ["delta.jar"])
    with pytest.raises(Exception, match="Spark did not start"):
        spark.start(tmp_path)
    assert seen == {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
