"""An archive of the classes that Spark loads at start: the JVM maps it instead of loading and verifying jars.

Made once by set-up, for this Java and these jars; the JVM ignores it if any of them has changed.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headwater.engine.spark import machine
from headwater.engine.spark import session as spark
from headwater.errors import MachineError

ENDS_S = 300.0  # a JVM writes its archive when it exits


def make() -> Path:
    """Starts Spark, lets it do what every server does, and archives the loaded classes. Run it in its own process."""
    archive = machine.class_archive()
    home = Path(tempfile.mkdtemp(prefix="headwater-archive-"))
    made = home / archive.name
    try:
        session = spark.start(home, java_options=f"-XX:ArchiveClassesAtExit={made}")
        _use(session, str(home / "table"))
        session.stop()
        _end_jvm()
        if not made.exists():
            raise MachineError("spark.failed", "the JVM wrote no class archive", "Spark starts without it, but slower.")
        shutil.move(made, archive)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return archive


def _use(session: SparkSession, path: str) -> None:
    """Writes a small table, merges into it, and reads it through Arrow."""
    session.range(10).selectExpr("id", "CAST(id AS STRING) AS v").write.format("delta").save(path)
    session.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT 1L AS id, 'x' AS v) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ).collect()
    read = session.read.format("delta").load(path)
    read.mapInArrow(lambda batches: batches, read.schema).groupBy("v").count().orderBy("v").toArrow()


def _end_jvm() -> None:
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    jvm = gateway.proc
    jvm.stdin.close()
    jvm.wait(ENDS_S)


if __name__ == "__main__":
    try:
        make()
    except MachineError as e:
        sys.exit(f"✗ {e.message}\n  → {e.hint}")
