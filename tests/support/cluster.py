"""A Spark standalone cluster from PySpark's own jars, on the loopback address: a master and workers as processes."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

from support.wait import wait_for

SPARK_HOME = Path(pyspark.__file__).parent
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
WORKER_MEMORY = "640m"
EXECUTOR_MEMORY = "512m"


class Cluster:
    """Started by `with`; its secret is in a file that only its user can read, as its processes require."""

    def __init__(self, root: Path, workers: int = 2, cores: int = 1) -> None:
        self.root = root
        self.secret = secrets.token_hex(16)
        self._cores = cores
        self._count = workers
        self._master: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self.url = ""

    @property
    def secret_file(self) -> Path:
        return self.root / "secret"

    def __enter__(self) -> Self:
        self.root.mkdir(parents=True)
        for path, text in (
            (self.secret_file, self.secret),
            (self._properties, f"spark.authenticate true\nspark.authenticate.secret {self.secret}\n"),
        ):
            path.touch(mode=0o600)
            path.write_text(text)
        try:
            self._master = self._start("master", MASTER, "--port", "0")
            self.url = self._said("master", r"Starting Spark master at (spark://\S+)")
            for _ in range(self._count):
                self._add_worker()
            for number in range(self._count):
                self._said(f"worker-{number}", "Successfully registered with master")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def _add_worker(self) -> None:
        name = f"worker-{len(self.workers)}"
        own = ("--port", "0", "--cores", str(self._cores), "--memory", WORKER_MEMORY)
        self.workers.append(self._start(name, WORKER, *own, "--work-dir", str(self.root / name), self.url))

    def kill_worker(self, pid: int) -> None:
        """kill -9 of a worker and its children, like the loss of its machine."""
        (worker,) = (w for w in self.workers if w.pid == pid)
        below = psutil.Process(worker.pid).children(recursive=True)
        worker.kill()
        worker.wait(30)
        for process in below:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def end_applications(self) -> None:
        """Ends every application, as an operator does on the master's web page."""
        page = self._said("master", r"Bound MasterWebUI to .* started at (http://\S+)")
        text = urllib.request.urlopen(f"{page}/json/", timeout=30).read()
        for running in json.loads(text)["activeapps"]:
            form = urllib.parse.urlencode({"id": running["id"], "terminate": "true"}).encode()
            urllib.request.urlopen(f"{page}/app/kill/", form, timeout=30).close()

    def executors(self) -> list[psutil.Process]:
        """The live executors of all applications."""
        below = [p for w in self.workers if w.poll() is None for p in psutil.Process(w.pid).children()]
        found = []
        for process in below:
            with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
                if EXECUTOR in process.cmdline():
                    found.append(process)
        return found

    def stop(self) -> None:
        for process in (*self.workers, self._master):
            if process is not None and process.poll() is None:
                below = psutil.Process(process.pid).children(recursive=True)
                for each in (process, *below):
                    with suppress(psutil.NoSuchProcess):
                        each.kill()
                process.wait(30)

    @property
    def _properties(self) -> Path:
        return self.root / "spark.properties"

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        common = ("--host", "127.0.0.1", "--webui-port", "0", "--properties-file", str(self._properties))
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "PYTHONPATH", "SPARK"))},
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with self._log(name).open("wb") as log:
            return subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), main, *common, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.root,
                start_new_session=True,
            )

    def _log(self, name: str) -> Path:
        return self.root / f"{name}.log"

    def _said(self, name: str, pattern: str) -> str:
        """Waits for text in a process's log; returns the first group, if there is one."""

        def said() -> re.Match[str] | None:
            return re.search(pattern, self._log(name).read_text(errors="replace"))

        found: re.Match[str] = wait_for(said, f"{name} says {pattern!r}; {self._log(name)}", 60)
        return found.group(found.lastindex or 0)
