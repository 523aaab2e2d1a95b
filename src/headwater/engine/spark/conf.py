"""What Spark is told at its start, by the settings: where it runs, what it may take, and what tasks need there.

A local master is this process and its JVM: nothing is sent, and only the loopback address is heard. On a cluster the
driver is still here (client mode). Its workers get Delta's jars from it; `headwater` they must be able to import, and
the home they must see under the same path.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from headwater import config
from headwater.config import Secret
from headwater.errors import MachineError
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
    # Every query would be compiled anew if the classes made for it bore their stages' numbers; kept, most are known.
    "spark.sql.codegen.useIdInClassName": "false",
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.ansi.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    AUTHENTICATE: "true",  # any user of the machine reaches a loopback port; a local master makes its own secret
    "spark.scheduler.mode": "FAIR",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "headwater.engine.spark.workers",  # workers are born with what scans import
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
LOCAL = {
    SHUFFLED: "4",
    "spark.broadcast.compress": "false",  # none leaves this process
}


def is_local(master: str) -> bool:
    """Whether tasks run in the driver's own process."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def master_of(settings: Settings) -> str:
    return settings.spark_master or f"local[{settings.spark_slots or local_slots()}]"


def local_slots() -> int:
    """How many tasks run at once here: those of two whole queries, of scans and a fold together, and no more.

    A query is cut into twice as many tasks as there are cores, so that one that waits leaves no core idle. Spark never
    takes a slot away from a running task. Where all slots can be held by one query, or by a fold, a short query waits
    for it however fair the pools are; where there are slots to spare, both run and the cores are shared. Tasks that run
    at once also share the driver's memory, so there are not many to spare: what scans hold is free again after some
    seconds, and goes to the query that waits.
    """
    return 3 * 2 * (os.cpu_count() or 2)


def share_of(settings: Settings) -> int | None:
    """How many tasks a query is cut into; None: only the cluster knows, and it may change."""
    slots = settings.spark_slots
    if not slots and is_local(master_of(settings)):
        named = re.fullmatch(r"local\[(\d+).*\]", master_of(settings))
        slots = int(named.group(1)) if named else local_slots()
    return max(1, slots // 3) if slots else None


def conf_of(home: Path, settings: Settings, jars: list[str]) -> dict[str, str]:
    """Everything but secrets: it stands on the JVM's command line, which every user of the machine can read."""
    master, share = master_of(settings), share_of(settings)
    made = {
        **ALWAYS,
        "spark.master": master,
        "spark.driver.memory": f"{settings.spark_driver_memory >> 20}m",
        "spark.driver.extraClassPath": ":".join(jars),  # not spark.jars: the archive holds what is on the class path
        "spark.sql.warehouse.dir": str(home / "tmp" / "spark-warehouse"),
        "spark.local.dir": str(home / "tmp" / "spark"),
        **(LOCAL if is_local(master) else _for_workers(settings, jars)),
        **_addresses(settings),
    }
    if share is not None:
        made |= {
            "spark.default.parallelism": str(share),
            "spark.sql.leafNodeDefaultParallelism": str(max(1, share // 2)),  # of two in a product, it is squared
            "spark.sql.files.maxPartitionNum": str(share),
        }
    return made | {name: value for name, value in settings.spark_conf.items() if not sensitive(name)}


def secrets_of(settings: Settings) -> dict[str, str]:
    """What only the JVM itself may be told."""
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
    """What a start of Spark needs in the environment of this process."""
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
