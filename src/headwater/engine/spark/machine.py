"""What Spark needs on this machine: Java, and Delta's jars, which set-up fetches once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headwater import config
from headwater.errors import MachineError

DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
MIN_JAVA = 17


def jars_directory() -> Path:
    """Where set-up puts Delta's jars: in the Python environment that runs us."""
    return Path(sys.prefix) / "share" / "headwater" / "jars"


def jars() -> list[str]:
    """The paths of Delta's jars; raises with the command to run if set-up has not been done."""
    found = sorted(str(p) for p in jars_directory().glob("*.jar"))
    if not any("delta-spark" in name for name in found):
        raise MachineError(
            "spark.no_jars", f"Delta's jars are not in {jars_directory()}", "Run `make setup` (or `headwater setup`)."
        )
    return found


def class_archive() -> Path:
    """Where set-up puts the archive of Spark's classes (engine/spark/archive.py); without it, starting is slower."""
    return jars_directory().parent / "spark.jsa"


def check_java() -> None:
    """Raises unless there is a Java that Spark 4 accepts."""
    command = config.java_command()
    if command is None:
        raise MachineError(
            "spark.no_java", "no `java` found", f"Install Java {MIN_JAVA} and put it on PATH, or set JAVA_HOME."
        )
    answer = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    if version is None or int(version.group(1)) < MIN_JAVA:
        found = version.group(1) if version else "unknown"
        raise MachineError(
            "spark.no_java",
            f"{command} is Java {found}, Spark needs {MIN_JAVA} or later",
            f"Install Java {MIN_JAVA} and set JAVA_HOME to it.",
        )


def fetch_jars() -> list[str]:
    """Fetches Delta's jars if they are missing, with the Ivy that PySpark includes; for set-up."""
    if any("delta-spark" in p.name for p in jars_directory().glob("*.jar")):
        return jars()
    check_java()
    with tempfile.TemporaryDirectory(prefix="headwater-ivy-") as scratch:
        log = Path(scratch) / "log"
        try:
            with _quiet(log):
                _resolve(scratch)
        except Exception as e:
            tail = log.read_text(errors="replace")[-1000:]
            raise MachineError(
                "spark.no_jars", f"Delta's jars could not be fetched:\n{tail}", "Check that Maven Central is reachable."
            ) from e
        jars_directory().mkdir(parents=True, exist_ok=True)
        for jar in (Path(scratch) / "jars").glob("*.jar"):
            if jar.name.startswith(("io.delta_", "org.locationtech.", "io.unitycatalog_")):
                shutil.copy(jar, jars_directory() / jar.name)
    return jars()


def _resolve(scratch: str) -> None:
    """Starts a small Spark, which fetches the packages, and stops it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    session = (
        builder.master("local[1]")
        .config("spark.jars.packages", DELTA_PACKAGE)
        .config("spark.jars.ivy", scratch)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.warehouse.dir", scratch)
        .getOrCreate()
    )
    session.stop()


@contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """Redirects stderr to a file while the JVM is launched, because it inherits ours."""
    saved = os.dup(2)
    with log.open("ab") as f:
        sys.stderr.flush()
        os.dup2(f.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
