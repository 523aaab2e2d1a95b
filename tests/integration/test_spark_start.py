"""A start of Spark beside other threads, and what makes it fast."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import psutil
from pyspark import SparkContext

from headwater.engine.spark import machine
from headwater.engine.spark import session as engine_spark


def test_a_start_adds_no_name_to_an_environment_that_was_prepared(started) -> None:  # type: ignore[no-untyped-def]
    """A new name would move the environment in memory, under a process that another thread is just starting."""
    assert started.added == set()


def test_the_class_archive_of_the_set_up_is_used(started) -> None:  # type: ignore[no-untyped-def]
    archive = machine.class_archive()
    assert archive.exists(), "make setup makes it"
    (jvm,) = engine_spark.processes()
    assert str(archive) in Path(f"/proc/{jvm}/maps").read_text()


CANCELLED = """
import sys, threading, time
from pathlib import Path
from headwater.engine.spark import session as spark
from headwater.engine.spark.launch import Launch
from headwater.errors import MachineError

launch, failed = Launch(), []

def start():
    try:
        spark.start(Path(sys.argv[1]), launch=launch)
    except MachineError as e:
        failed.append(e)

thread = threading.Thread(target=start)
thread.start()
while launch._process is None and thread.is_alive():
    time.sleep(0.01)
process = launch._process
launch.cancel()
thread.join()
print(failed[0].code, process.poll(), spark.processes(), sep=";")
"""


def test_a_start_that_is_cancelled_ends_with_its_jvm(tmp_path: Path) -> None:
    """In a process of its own: this one's Spark must stay."""
    done = subprocess.run([sys.executable, "-c", CANCELLED, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"spark.failed;{-signal.SIGKILL};[]", done.stderr


RPC_REQUEST = 3  # the type of a message in Spark's own protocol


def answer(port: int, request: bytes) -> bytes:
    """What a stranger on this machine is told; nothing if the other side only hangs up or keeps silent."""
    with socket.create_connection(("127.0.0.1", port), 10) as s:
        s.settimeout(5)
        s.sendall(request)
        s.shutdown(socket.SHUT_WR)
        try:
            return s.recv(65536)
        except OSError:
            return b""


def test_no_port_of_spark_serves_a_stranger(started) -> None:  # type: ignore[no-untyped-def]
    (jvm,) = [psutil.Process(pid) for pid in engine_spark.processes()]
    gateway = SparkContext._gateway.gateway_parameters.port  # type: ignore[union-attr]
    listening = {c.laddr.port for c in jvm.net_connections() if c.status == psutil.CONN_LISTEN}
    assert gateway in listening and len(listening) > 1
    body = b"anything"
    request = struct.pack(">bqi", RPC_REQUEST, 7, len(body))
    for port in listening - {gateway}:
        said = answer(port, struct.pack(">q", 8 + len(request) + len(body)) + request + body)
        assert b"Expected SaslMessage" in said, f"port {port} took a message without authentication: {said[:200]!r}"
    assert not answer(gateway, b"r\nu\njava.lang.Runtime\ne\n").startswith(b"!y")


def test_the_secret_of_spark_is_nowhere_to_be_read(started) -> None:  # type: ignore[no-untyped-def]
    env = SparkContext._jvm.org.apache.spark.SparkEnv.get()  # type: ignore[union-attr]
    secret = env.securityManager().getSecretKey()
    assert len(secret) >= 32
    (jvm,) = engine_spark.processes()
    assert secret not in Path(f"/proc/{jvm}/cmdline").read_text()
    assert secret not in Path(f"/proc/{jvm}/environ").read_text()
    assert "secret" not in " ".join(key for key, _ in started.session.sparkContext.getConf().getAll())
