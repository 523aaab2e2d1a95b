"""A home for tests: definitions for a database's tables, a server as a separate process, and waiting for it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from headwater.engine.results import Status, Verified
from headwater.engine.serve import remote
from support.wait import wait_for

HEADWATER = str(Path(sys.executable).parent / "headwater")
ROWS_PER_SPAN = 60  # several spans even for tables of a few hundred rows


def definitions(database: Any, tables: Sequence[str], *, connection: str = "pg", type: str = "postgres-cdc") -> str:
    """A connection to the database and the tables, as a user writes them."""
    server = database.server
    text = (
        f"CREATE CONNECTION {connection} WITH (type='{type}', hostname='{server.host}', port='{server.port}', "
        f"username='{server.user}', password='{server.password}', database.name='{database.name}');\n"
    )
    for table in tables:
        text += f"CREATE TABLE {table} FROM CONNECTION {connection} WITH (backfill.rows_per_span = {ROWS_PER_SPAN});\n"
    return text


class Lake:
    """A home whose server is a separate process, so that it can be killed."""

    def __init__(self, home: Path, text: str, *arguments: str) -> None:
        self.home = home
        self.arguments = arguments  # of `headwater run`, besides file and home
        self.file = home.parent / f"{home.name}.sql"
        self.file.write_text(text)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, crash: str | None = None, **settings: str) -> None:
        """Starts `headwater run`; with `crash` it dies at that point. `settings` are added to its environment."""
        environment = {k: v for k, v in os.environ.items() if k != "HEADWATER_CRASH"}
        environment["HEADWATER_TAIL_CHANGES"] = "100"  # so that runs are created and merged all the time
        environment["HEADWATER_SLICE_CHANGES"] = "10000"  # so that they are made of several slices
        environment["HEADWATER_REPLACED_BYTES"] = random.choice(["0", "4000000"])  # both ways to fold
        print(f"bases below {environment['HEADWATER_REPLACED_BYTES']} bytes are written anew", flush=True)
        environment.update(settings)
        if crash:
            environment["HEADWATER_CRASH"] = crash
        log = (self.home.parent / f"{self.home.name}.log").open("ab")
        self.process = subprocess.Popen(
            [HEADWATER, "run", str(self.file), "--home", str(self.home), *self.arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
        log.close()

    @property
    def log(self) -> str:
        return (self.home.parent / f"{self.home.name}.log").read_text()[-4000:]

    def remote(self) -> remote.Remote:
        """The running server, as soon as it answers."""

        def answers() -> remote.Remote | None:
            assert self.process is not None and self.process.poll() is None, f"the server ended:\n{self.log}"
            return remote.find(self.home)

        found: remote.Remote = wait_for(answers, "the server answers")
        return found

    def status(self) -> Status:
        return self.remote().status()

    def wait_live(self, timeout_s: float = 240.0) -> Status:
        """Waits until every table is live."""
        status: Status = wait_for(
            lambda: s if (s := self.status()).tables and all(t.state == "live" for t in s.tables) else None,
            f"all tables live; {self._states()}",
            timeout_s,
        )
        return status

    def verify(self, table: str | None = None) -> list[Verified]:
        return self.remote().verify(table)

    def children(self, module: str) -> list[psutil.Process]:
        """The live processes below the server that run a module."""
        assert self.process is not None
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if module in child.cmdline():  # as a whole word: the JVM's command line also names its workers
                    found.append(child)
            except (psutil.ZombieProcess, psutil.NoSuchProcess):
                continue  # ended meanwhile
        return found

    def kill(self) -> None:
        """kill -9 of the server alone; its captures and its JVM notice on their own."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def wait_dead(self, timeout_s: float = 120.0) -> None:
        """Waits until the process has died, as a crash point makes it."""
        assert self.process is not None
        self.process.wait(timeout_s)
        assert self.process.returncode == -signal.SIGKILL, f"ended with {self.process.returncode}:\n{self.log}"

    def stop(self) -> None:
        """Ctrl-C, and a clean end."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            assert self.process.wait(60) == 0, self.log
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def _states(self) -> str:
        try:
            return json.dumps([(t.name, t.state, t.error) for t in self.status().tables])
        except Exception as e:
            return str(e)


def assert_equal(found: Sequence[Verified], *, filling: bool = False) -> None:
    """Asserts that every table was compared and is equal; while tables are `filling`, some may be skipped, not all."""
    assert [v for v in found if not v.skipped], f"nothing was compared: {found}"
    for v in found:
        assert v.equal or (filling and v.skipped), v


def await_equal(verify: Callable[[], Sequence[Verified] | None], *, filling: bool = False) -> None:
    """`assert_equal`, once enough can be compared; a difference fails immediately. None: not possible yet."""

    def compared() -> bool:
        found = verify() or ()
        for v in found:
            assert v.equal or v.skipped, v
        left_out = [v for v in found if v.skipped]
        return bool(found) and (len(left_out) < len(found) if filling else not left_out)

    wait_for(compared, "a table is compared" if filling else "every table is compared")
