"""The Spark session: how it is started and ended, and what it must have."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headwater.engine.spark import conf
from headwater.engine.spark.machine import check_java, class_archive, jars
from headwater.errors import HeadwaterError, MachineError, Retry
from headwater.settings.table import DEFAULTS, Settings

log = logging.getLogger(__name__)


JAVA_OPTIONS = "spark.driver.extraJavaOptions"
END_S = 30.0  # a JVM that does not answer any more has ended by then


def prepare_environment(settings: Settings = DEFAULTS) -> None:
    """Gives every name that a start of Spark sets its place in the environment: call it while there is one thread.

    A new name moves the environment in memory, under whoever reads it in another thread: a process that is just being
    started (it then fails with `Bad address`), or a database driver.
    """
    for name, value in conf.environment_of(settings).items():
        if name != conf.LOCAL_IP or name not in os.environ:  # that one the user may have chosen
            os.environ[name] = value
    os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", "15")  # PySpark writes its own values over these two
    os.environ.setdefault("SPARK_BUFFER_SIZE", "65536")


def start(home: Path, settings: Settings = DEFAULTS, java_options: str = "") -> SparkSession:
    """A session with Delta, where the settings say; Spark's own logs go to `home/logs`, never to the terminal."""
    check_java()
    if not java_options and class_archive().exists():
        java_options = f"-XX:SharedArchiveFile={class_archive()}"
    logs = home / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    prepare_environment(settings)
    told = conf.conf_of(home, settings, jars())
    own = (_java_options(home, logs), java_options, told.get(JAVA_OPTIONS, ""))
    told[JAVA_OPTIONS] = " ".join(options for options in own if options)
    secrets = conf.secrets_of(settings)
    try:
        _launch(told, secrets, logs / "spark.log")
        builder: Any = SparkSession.builder
        session: SparkSession = builder.config(map=told).getOrCreate()
    except Exception as e:
        where = "" if conf.is_local(told["spark.master"]) else f" on {told['spark.master']}"
        raise MachineError(
            "spark.failed", f"Spark did not start{where}", f"See {logs / 'spark.log'} for the reason."
        ) from e
    session.sparkContext.setLogLevel("WARN")
    _log_to(logs / "pyspark.log")
    _hang_up_quietly(session)
    return session


def _launch(told: dict[str, str], secrets: dict[str, str], log: Path) -> None:
    """Starts the JVM with a file for what it prints: VACUUM, for one, tells stdout what it did, which is the user's.

    It is told secrets when it runs, through a socket that asks for a token: its command line can be read by everybody.
    """
    gateway = None
    if SparkContext._gateway is None:  # else a JVM of this process has outlived its sessions
        with log.open("ab") as f:
            # in a session of its own: a signal to our group (Ctrl-C, `timeout`, a closed terminal) is ours to answer
            kwargs = {"stdout": f, "stderr": f, "start_new_session": True}
            public = SparkConf().setAll(list(told.items()))
            gateway = launch_gateway(public, popen_kwargs=kwargs)  # type: ignore[no-untyped-call]
    if SparkContext._active_spark_context is None:
        SparkContext(conf=SparkConf().setAll(list((told | secrets).items())), gateway=gateway)


def alive() -> bool:
    """Whether the JVM that this process started still works; True if it started none."""
    process = getattr(SparkContext._gateway, "proc", None)
    return process is None or (process.poll() is None and not _dismissed())


def _dismissed() -> bool:
    """A cluster has ended our application, or has been away for too long: its JVM runs, but never works again."""
    context: Any = SparkContext._active_spark_context
    if context is None or conf.is_local(context.master):
        return False
    try:
        return bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):  # the JVM is just ending: its process will say so
        return False


def restart(home: Path, settings: Settings) -> SparkSession:
    """A session on a new JVM, after the old one has ended. Sessions of the old one are of no use any more."""
    _forget()
    return start(home, settings)


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
    if conf.EXTENSION not in (session.conf.get("spark.sql.extensions", "") or ""):
        lacks.append(f"spark.sql.extensions={conf.EXTENSION}")
    if session.conf.get("spark.sql.catalog.spark_catalog", "") != conf.CATALOG:
        lacks.append(f"spark.sql.catalog.spark_catalog={conf.CATALOG}")
    if lacks:
        raise MachineError(
            "spark.session", "the given Spark session lacks Delta", f"Start the session with {' and '.join(lacks)}."
        )
    if session.conf.get(conf.AUTHENTICATE, "false") != "true":
        log.warning("the given Spark session has no %s=true: others may use its ports to run code", conf.AUTHENTICATE)
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
