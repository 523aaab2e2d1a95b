"""The Spark session: how it is started and stopped, and what it must have."""

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
from headwater.engine.spark.launch import Launch
from headwater.engine.spark.machine import check_java, class_archive, jars
from headwater.errors import HeadwaterError, MachineError, Retry
from headwater.settings.table import DEFAULTS, Settings
from headwater.storage import Storage

log = logging.getLogger(__name__)


JAVA_OPTIONS = "spark.driver.extraJavaOptions"
END_S = 30.0  # by then an unresponsive JVM has exited


def prepare_environment(settings: Settings = DEFAULTS) -> None:
    """Defines every environment variable that starting Spark sets. Call it while there is only one thread.

    A new variable moves the environment in memory, while another thread may be reading it: one that starts a process
    (which then fails with `Bad address`), or a database driver.
    """
    for name, value in conf.environment_of(settings).items():
        if name != conf.LOCAL_IP or name not in os.environ:  # the user may have set that one
            os.environ[name] = value
    os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", "15")  # PySpark overwrites these two
    os.environ.setdefault("SPARK_BUFFER_SIZE", "65536")


def start(
    home: Path,
    settings: Settings = DEFAULTS,
    storage: Storage | None = None,
    *,
    java_options: str = "",
    launch: Launch | None = None,
) -> SparkSession:
    """Starts a session with Delta, as the settings say; Spark's own logs go to `home/logs`, never to the terminal.

    A start that is cancelled with its `launch` raises, and leaves no JVM behind.
    """
    check_java()
    if not java_options and class_archive().exists():
        java_options = f"-XX:SharedArchiveFile={class_archive()}"
    logs = home / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    prepare_environment(settings)
    public = conf.conf_of(home, settings, jars()) | (storage.spark_settings if storage is not None else {})
    own = (_java_options(home, logs), java_options, public.get(JAVA_OPTIONS, ""))
    public[JAVA_OPTIONS] = " ".join(options for options in own if options)
    secrets = conf.secrets_of(settings)
    launch = launch or Launch()
    try:
        with launch.in_progress():
            _launch(public, secrets, logs / "spark.log", launch)
            builder: Any = SparkSession.builder
            session: SparkSession = builder.config(map=public).getOrCreate()
            session.sparkContext.setLogLevel("WARN")
    except Exception as e:
        if launch.cancelled:
            _forget()
        where = "" if conf.is_local(public["spark.master"]) else f" on {public['spark.master']}"
        raise MachineError(
            "spark.failed", f"Spark did not start{where}", f"See {logs / 'spark.log'} for the reason."
        ) from e
    _log_to(logs / "pyspark.log")
    _silence_disconnects(session)
    return session


def _launch(public: dict[str, str], secrets: dict[str, str], log: Path, launch: Launch) -> None:
    """Starts the JVM with its output in a file: VACUUM, for one, prints to stdout, which belongs to the user.

    Secrets are sent to the running JVM, through a socket that requires a token: anyone can read its command line.
    """
    gateway = None
    if SparkContext._gateway is None:  # otherwise a JVM of this process has outlived its sessions
        with log.open("ab") as f, launch.noting_process():
            # in its own process session: a signal to our group (Ctrl-C, `timeout`, a closed terminal) is ours to handle
            kwargs = {"stdout": f, "stderr": f, "start_new_session": True}
            options = SparkConf().setAll(list(public.items()))
            gateway = launch_gateway(options, popen_kwargs=kwargs)  # type: ignore[no-untyped-call]
    if SparkContext._active_spark_context is None:
        SparkContext(conf=SparkConf().setAll(list((public | secrets).items())), gateway=gateway)


def alive() -> bool:
    """Whether the JVM that this process started still works; True if it started none."""
    process = getattr(SparkContext._gateway, "proc", None)
    return process is None or (process.poll() is None and not _stopped_by_cluster())


def _stopped_by_cluster() -> bool:
    """Whether a cluster has stopped our application, or was gone for too long: the JVM runs, but is useless."""
    context: Any = SparkContext._active_spark_context
    if context is None or conf.is_local(context.master):
        return False
    try:
        return bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):  # the JVM is exiting: its process will show that
        return False


def restart(home: Path, settings: Settings, storage: Storage, launch: Launch) -> SparkSession:
    """A session on a new JVM, after the old one has exited. Sessions of the old one are unusable."""
    _forget()
    return start(home, settings, storage, launch=launch)


def stop(session: SparkSession) -> None:
    """Stops a session, even if its JVM has already died, by a signal to all processes or for lack of memory."""
    process = getattr(SparkContext._gateway, "proc", None)
    try:
        session.stop()
    except Exception:
        if process is None:
            raise
        process.wait(END_S)
        _forget()


def _forget() -> None:
    """Clears PySpark's references to the old JVM, which it assumes to be immortal, and kills what is left of it."""
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
    """Sends PySpark's log of rejected queries to a file instead of stderr; the user gets the error from us."""
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.handlers = [logging.FileHandler(log, delay=True)]
    logger.propagate = False


def _silence_disconnects(session: SparkSession) -> None:
    """Keeps PySpark from printing a stack trace when the JVM has died; work that needs Spark reports that."""
    server: Any = session.sparkContext._accumulatorServer
    server.handle_error = lambda request, address: log.info("spark disconnected")


def check_session(session: SparkSession) -> SparkSession:
    """The user's session, if it has what Headwater needs; otherwise raises with what is missing."""
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
    """The pid of the JVM that this process started, if alive; it outlives a killed server by about two seconds."""
    process = getattr(SparkContext._gateway, "proc", None)
    return [process.pid] if process is not None and process.poll() is None else []


def describe_failure(error: Exception, hint: str) -> HeadwaterError:
    """A Spark error as a HeadwaterError: the first line, without the JVM's stack trace."""
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
