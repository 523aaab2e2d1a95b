"""Spark's configuration, from the settings: where it runs, its resources, and what tasks need there.

With a local master everything runs in this process and its JVM, which listens only on the loopback address. On a
cluster the driver is still here (client mode). Workers get Delta's jars from it; they must be able to import
`headwater`, and see the home under the same path.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from headwater import config
from headwater.config import Secret
from headwater.errors import MachineError
from headwater.relation.session import DICTIONARY_FILTER, NEEDED, TIME_ZONE
from headwater.settings.table import Settings, sensitive

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
AUTHENTICATE = "spark.authenticate"
ENCRYPT = "spark.network.crypto.enabled"
SECRET = "spark.authenticate.secret"
SHUFFLED = "spark.sql.shuffle.partitions"
LOOPBACK = "127.0.0.1"
LOCAL_IP = "SPARK_LOCAL_IP"
PYTHON_PATH = "PYTHONPATH"

ALWAYS = {
    "spark.app.name": "headwater",
    "spark.sql.extensions": EXTENSION,
    "spark.sql.catalog.spark_catalog": CATALOG,
    "spark.databricks.delta.snapshotPartitions": "2",  # 50 by default: most of a small read's time
    "spark.databricks.delta.properties.defaults.checkpointInterval": "20",
    # With stage numbers in class names every query would be compiled again; without them most are in the cache.
    "spark.sql.codegen.useIdInClassName": "false",
    "spark.sql.codegen.cache.maxEntries": "1000",
    # Each broadcast table takes a page, however few rows it has, until the JVM's collector finds that nobody needs it.
    "spark.buffer.pageSize": "1m",
    TIME_ZONE: NEEDED[TIME_ZONE],
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.ansi.enabled": "true",
    # Otherwise every column that is built tells the JVM which line of Python built it, in five calls or more.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    AUTHENTICATE: "true",  # any user of the machine can reach a loopback port; a local master makes its own secret
    "spark.scheduler.mode": "FAIR",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "headwater.engine.spark.workers",  # workers start with the scans' imports loaded
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    f"spark.hadoop.{DICTIONARY_FILTER}": NEEDED[DICTIONARY_FILTER],
}
LOCAL = {
    SHUFFLED: "4",
    "spark.broadcast.compress": "false",  # broadcasts never leave this process
}


def is_local(master: str) -> bool:
    """Whether tasks run in the driver's own process."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def master_of(settings: Settings) -> str:
    return settings.spark_master or f"local[{settings.spark_slots or local_slots()}]"


def local_slots() -> int:
    """How many tasks run at once locally: enough for two whole queries plus scans and a fold, and no more.

    A query is split into twice as many tasks as cores, so that a waiting task leaves no core idle. Spark never takes a
    slot away from a running task. If one query or fold could hold all slots, a short query would wait for it, however
    fair the pools are; with slots to spare, both run and share the cores. But concurrent tasks also share the driver's
    memory, so there are few to spare: slots held by scans become free within seconds, and go to the waiting query.
    """
    return 3 * 2 * (os.cpu_count() or 2)


def share_of(settings: Settings) -> int | None:
    """How many tasks a query is split into; None: only the cluster knows, and it may change."""
    slots = settings.spark_slots
    if not slots and is_local(master_of(settings)):
        named = re.fullmatch(r"local\[(\d+).*\]", master_of(settings))
        slots = int(named.group(1)) if named else local_slots()
    return max(1, slots // 3) if slots else None


def conf_of(home: Path, settings: Settings, jars: list[str]) -> dict[str, str]:
    """The configuration without secrets: it is on the JVM's command line, which every user of the machine can read."""
    master, share = master_of(settings), share_of(settings)
    made = {
        **ALWAYS,
        "spark.master": master,
        "spark.driver.memory": f"{settings.spark_driver_memory >> 20}m",
        "spark.driver.extraClassPath": ":".join(jars),  # not spark.jars: the archive has only class path classes
        "spark.sql.warehouse.dir": str(home / "tmp" / "spark-warehouse"),
        "spark.local.dir": str(home / "tmp" / "spark"),
        **(LOCAL if is_local(master) else _for_workers(settings, jars)),
        **_addresses(settings),
    }
    if share is not None:
        made |= {
            "spark.default.parallelism": str(share),
            "spark.sql.leafNodeDefaultParallelism": str(max(1, share // 2)),  # a cross product squares it
            "spark.sql.files.maxPartitionNum": str(share),
        }
    return made | {name: value for name, value in settings.spark_conf.items() if not sensitive(name)}


def secrets_of(settings: Settings) -> dict[str, str]:
    """The configuration that only the JVM itself may see."""
    found = {name: Secret(value).resolve() for name, value in settings.spark_conf.items() if sensitive(name)}
    if settings.spark_secret:
        found[SECRET] = Secret(settings.spark_secret).resolve()
    authenticated = settings.spark_conf.get(AUTHENTICATE, ALWAYS[AUTHENTICATE]) == "true"
    if authenticated and SECRET not in found and master_of(settings).startswith("spark://"):
        raise MachineError(
            "spark.failed",
            f"{master_of(settings)} needs the secret that its master and its workers share",
            f"Set spark.secret to their {SECRET} (file:PATH, env:NAME), or {AUTHENTICATE} = false under [spark.conf].",
        )
    return found


def environment_of(settings: Settings) -> dict[str, str]:
    """The environment variables that Spark needs in this process to start."""
    found = {
        "PYSPARK_PYTHON": settings.spark_python or sys.executable,  # otherwise tasks get whatever python3 is on PATH
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    return {**found, LOCAL_IP: LOOPBACK} if is_local(master_of(settings)) else found


def _addresses(settings: Settings) -> dict[str, str]:
    local = is_local(master_of(settings))
    host = settings.spark_driver_host or (LOOPBACK if local else "")
    bind = settings.spark_driver_bind or host
    named = {"spark.driver.host": host, "spark.driver.bindAddress": bind}
    return {name: address for name, address in named.items() if address}


def _for_workers(settings: Settings, jars: list[str]) -> dict[str, str]:
    found = {"spark.jars": ",".join(jars), ENCRYPT: "true"}  # tasks carry the passwords of upstreams
    path = settings.spark_python_path or config.variables().get(PYTHON_PATH, "")
    return {**found, f"spark.executorEnv.{PYTHON_PATH}": path} if path else found
