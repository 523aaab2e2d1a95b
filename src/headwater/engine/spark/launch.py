"""A start of Spark that can be cancelled: its JVM is known, and can be killed, before it answers for the first time."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark import java_gateway

from headwater.errors import MachineError


class Launch:
    """The starts of one owner's Spark: `cancel`, from any thread, ends the one in progress and forbids more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.cancelled = False

    def cancel(self) -> None:
        """Kills a JVM that is being started, so that its start fails; one that has started is left alone."""
        with self._lock:
            self.cancelled = True
            self._kill()

    @contextmanager
    def in_progress(self) -> Iterator[None]:
        """A start of Spark: raises instead of completing if it is cancelled."""
        try:
            self._check()
            yield
            with self._lock:
                self._check()
                self._process = None
        finally:
            with self._lock:
                self._process = None

    @contextmanager
    def noting_process(self) -> Iterator[None]:
        """Notes the process that PySpark starts inside the block: PySpark tells it only seconds later.

        The JVM is the leader of its own process session, with the helpers of its start script in it.
        """

        def popen(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
            with self._lock:
                self._check()
                self._process = subprocess.Popen(*arguments, **options)
                return self._process

        gateway: Any = java_gateway
        before, gateway.Popen = gateway.Popen, popen
        try:
            yield
        finally:
            gateway.Popen = before

    def _check(self) -> None:
        if self.cancelled:
            raise MachineError("spark.failed", "the start of Spark was cancelled", "Start again.")

    def _kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
