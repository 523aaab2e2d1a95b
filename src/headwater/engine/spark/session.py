"""The Spark session: how it is started and ended, and what it must have."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headwater.engine.spark.jobs import share, slots
from headwater.engine.spark.machine import check_java, class_archive, jars
from headwater.errors import HeadwaterError, MachineError, Retry

log = logging.getLogger(__name__)


END_S = 30.0  # a JVM that does not answer any more has ended by then
EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
AUTHENTICATE = "spark.authenticate"

SETTINGS = {
    "spark.sql.extensions": EXTENSION,
    "spark.sql.catalog.spark_catalog": CATALOG,
    "spark.databricks.delta.snapshotPartitions": "2",  # 50 by default: most of a small read's time
    "spark.databricks.delta.properties.defaults.checkpointInterval": "20",
    "spark.sql.shuffle.partitions": "4",
    # Every query would be compiled anew if the classes made for it bore their stages' numbers; kept, most are known.
    "spark.sql.codegen.useIdInClassName": "false",
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.ansi.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    AUTHENTICATE: "true",  # any user of the machine reaches a loopback port; a local master makes its own secret
    "spark.broadcast.compress": "false",  # none leaves this process
    "spark.scheduler.mode": "FAIR",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "headwater.engine.spark.workers",  # workers are born with what scans import
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def prepare_environment() -> None:
    """Gives every name that a start of Spark sets its place in the environment: call it while there is one thread.

    A new name moves the environment in memory, under whoever reads it in another thread: a process that is just being
    started (it then fails with `Bad address`), or a database driver.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable  # otherwise workers get whatever python3 is on PATH
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", "15")  # PySpark writes its own values over these two
    os.environ.setdefault("SPARK_BUFFER_SIZE", "65536")


def start(home: Path, java_options: str = "") -> SparkSession:
    """A session with Delta on this machine; Spark's own logs go to `home/logs`, never to the terminal."""
    check_java()
    if not java_options and class_archive().exists():
        java_options = f"-XX:SharedArchiveFile={class_archive()}"
    logs = home / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    prepare_environment()
    settings = {
        **SETTINGS,
        "spark.app.name": "headwater",
        "spark.master": f"local[{slots()}]",
        "spark.default.parallelism": str(share()),
        "spark.sql.leafNodeDefaultParallelism": str(max(1, share() // 2)),  # of two in a product, it is squared
        "spark.sql.files.maxPartitionNum": str(share()),
        "spark.driver.extraClassPath": ":".join(jars()),  # not spark.jars: the archive holds what is on the class path
        "spark.sql.warehouse.dir": str(home / "tmp" / "spark-warehouse"),
        "spark.local.dir": str(home / "tmp" / "spark"),
        "spark.driver.extraJavaOptions": f"{_java_options(home, logs)} {java_options}",
    }
    try:
        _launch(settings, logs / "spark.log")
        builder: Any = SparkSession.builder
        session: SparkSession = builder.config(map=settings).getOrCreate()
    except Exception as e:
        raise MachineError("spark.failed", "Spark did not start", f"See {logs / 'spark.log'} for the reason.") from e
    session.sparkContext.setLogLevel("WARN")
    _log_to(logs / "pyspark.log")
    _hang_up_quietly(session)
    return session


def _launch(settings: dict[str, str], log: Path) -> None:
    """Starts the JVM with a file for what it prints: VACUUM, for one, tells stdout what it did, which is the user's."""
    if SparkContext._gateway is not None:
        return  # a JVM of this process outlives its sessions
    conf = SparkConf().setAll(list(settings.items()))
    with log.open("ab") as f:
        # in a session of its own: a signal to our group (Ctrl-C, `timeout`, a closed terminal) is ours to answer
        kwargs = {"stdout": f, "stderr": f, "start_new_session": True}
        gateway = launch_gateway(conf, popen_kwargs=kwargs)  # type: ignore[no-untyped-call]
    SparkContext(conf=conf, gateway=gateway)


def alive() -> bool:
    """Whether the JVM that this process started still runs; True if it started none."""
    process = getattr(SparkContext._gateway, "proc", None)
    return process is None or process.poll() is None


def restart(home: Path) -> SparkSession:
    """A session on a new JVM, after the old one has ended. Sessions of the old one are of no use any more."""
    _forget()
    return start(home)


def stop(session: SparkSession) -> None:
    """Ends a session, also one whose JVM has ended before us: by a signal to all processes, or for lack of memory."""
    process = getattr(SparkContext._gateway, "proc", None)
    try:
        session.stop()
    except Exception:
        if process is None:
            raise
        process.wait(END_S)
        _forget()


def _forget() -> None:
    """PySpark takes the JVM of this process for immortal: what it remembers of one goes, and what is left of it."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None and process.poll() is None:
        process.kill()  # it runs, but the start of a session on it failed
        process.wait(END_S)
    with SparkContext._lock:
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
    SparkSession._instantiatedSession = None


def _log_to(log: Path) -> None:
    """PySpark writes every refused query to stderr as well; the user gets it from us, once."""
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.handlers = [logging.FileHandler(log, delay=True)]
    logger.propagate = False


def _hang_up_quietly(session: SparkSession) -> None:
    """PySpark prints a stack trace when the JVM has ended before us; whoever needs Spark meets it, and says so."""
    server: Any = session.sparkContext._accumulatorServer
    server.handle_error = lambda request, address: log.info("Spark hung up")


def check_session(session: SparkSession) -> SparkSession:
    """The session given by a user, if it has what Headwater needs; else an error that says what it lacks."""
    lacks = []
    if EXTENSION not in (session.conf.get("spark.sql.extensions", "") or ""):
        lacks.append(f"spark.sql.extensions={EXTENSION}")
    if session.conf.get("spark.sql.catalog.spark_catalog", "") != CATALOG:
        lacks.append(f"spark.sql.catalog.spark_catalog={CATALOG}")
    if lacks:
        raise MachineError(
            "spark.session", "the given Spark session lacks Delta", f"Start the session with {' and '.join(lacks)}."
        )
    if session.conf.get(AUTHENTICATE, "false") != "true":
        log.warning("the given Spark session has no %s=true: others may use its ports to run code", AUTHENTICATE)
    return session


def processes() -> list[int]:
    """The pids of the JVMs that this process started; they outlive a kill by about two seconds."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:  # ended while we looked
            continue
        if int(fields[1]) == os.getpid() and "java" in _command(stat.parent):
            found.append(int(stat.parent.name))
    return found


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes()[:200].decode(errors="replace")
    except OSError:
        return ""


def describe_failure(error: Exception, hint: str) -> HeadwaterError:
    """A Spark error as ours: the first line, without the JVM's stack."""
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return MachineError("spark.failed", first[:500], hint, Retry.AUTO)


def _java_options(home: Path, logs: Path) -> str:
    settings = logs / "log4j2.properties"
    settings.write_text(
        "rootLogger.level = warn\n"
        "rootLogger.appenderRef.file.ref = file\n"
        "appender.file.type = RollingFile\n"
        "appender.file.name = file\n"
        f"appender.file.fileName = {logs / 'spark.log'}\n"
        f"appender.file.filePattern = {logs / 'spark.%i.log'}\n"
        "appender.file.layout.type = PatternLayout\n"
        "appender.file.layout.pattern = %d{ISO8601} %p %c{1}: %m%n\n"
        "appender.file.policies.type = Policies\n"
        "appender.file.policies.size.type = SizeBasedTriggeringPolicy\n"
        "appender.file.policies.size.size = 20MB\n"
        "appender.file.strategy.type = DefaultRolloverStrategy\n"
        "appender.file.strategy.max = 3\n"
    )
    return f"-Dlog4j2.configurationFile={settings} -Dderby.system.home={home / 'tmp'}"
