"""Runs captures against a real server and reads their changelogs, for any kind of upstream."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from headwater.changelog import reader
from headwater.engine.home import Home
from headwater.meta import connections, relations, segments
from headwater.model import ConnectionInfo, ConnectionState
from support import forked
from support.forked import Forked
from support.wait import wait_for


@dataclass(frozen=True)
class Definition:
    """A connection's definition; `tables` are (schema, name, upstream id) of the followed ones."""

    type: str
    options: dict[str, str]
    secret: str
    position: str
    txn: int
    tables: tuple[tuple[str, str, int], ...] = ()


class WriterThreads:
    """Threads that write random transactions until stopped; each runs `_run` with a seed. Prints its seed."""

    def __init__(self, seed: int, threads: int) -> None:
        print(f"writers: seed {seed}")
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed * 100 + i,)) for i in range(threads)]
        self.failures: list[BaseException] = []
        self.commits = 0

    def __enter__(self) -> Self:
        for t in self._threads:
            t.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        for t in self._threads:
            t.join(60)
        assert not self.failures, self.failures[0]

    @abstractmethod
    def _run(self, seed: int) -> None: ...


class CaptureUpstream(Protocol):
    """What a captured database must provide."""

    def definition(self) -> Definition: ...

    def goal(self) -> int:
        """The number of the log's end, after a write that makes it advance."""

    def number(self, position: str) -> int: ...

    def short_txn(self, txn: int) -> int:
        """A transaction's number as the oracle knows it."""

    def oracle(self) -> list[tuple[int, list[bytes]]]:
        """(number, row messages) of every transaction since the start, in commit order, according to another reader."""


@dataclass
class Captured:
    """A home with one connection, and the capture process on it."""

    home: Home
    id: int
    upstream: Any  # CaptureUpstream, plus what its kind adds
    process: Forked | None = None
    lines: list[str] = field(default_factory=list)

    @classmethod
    def define(cls, path: Path, upstream: CaptureUpstream, **options: str) -> Self:
        home = Home.open(path)
        at = upstream.definition()
        position = options.pop("position", None) or at.position
        with home.meta.write() as c:
            id = connections.add(
                c,
                name="pg",
                type=at.type,
                options={**at.options, "heartbeat.interval": "1", **options},
                secret=at.secret,
                identity={},
                position=position,
                txn=at.txn,
                server_life="",
            )
            for schema, name, upstream_id in at.tables:
                relations.add(
                    c,
                    name=name,
                    connection_id=id,
                    upstream_schema=schema,
                    upstream_table=name,
                    upstream_id=upstream_id,
                    columns=(),
                    key=(),
                    options={},
                    statement="",
                )
        return cls(home, id, upstream)

    def start(self, crash: str | None = None, until: str = "") -> Forked:
        environment = {k: v for k, v in os.environ.items() if k != "HEADWATER_CRASH"}
        if crash:
            environment["HEADWATER_CRASH"] = crash
        arguments = ["--home", str(self.home.path), "--connection", str(self.id), "--alone"]
        with (self.home.path / "capture.log").open("a") as log:
            self.process = forked.start([*arguments, *(("--until", until) if until else ())], environment, log)
        threading.Thread(target=self._listen, args=(self.process,), daemon=True).start()
        return self.process

    def _listen(self, process: Forked) -> None:
        for line in process.stdout:
            self.lines.append(line.strip())

    def tell(self, word: str) -> None:
        """Says a word to the process, as the server would do it."""
        assert self.process is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def close(self) -> int:
        """A clean end, as the server would do it."""
        if self.process is None:
            return 0
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        return self.process.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.send_signal(signal.SIGCONT)
            self.process.wait(30)

    def log(self) -> str:
        return (self.home.path / "capture.log").read_text()

    def confirmed(self) -> str:
        """What the upstream believes to be durable here; only for kinds that retain their log for us."""
        return str(self.upstream.confirmed())

    def info(self) -> ConnectionInfo:
        with self.home.meta.read() as c:
            return connections.get(c, self.id)

    def wait_reading(self, times: int = 1, timeout_s: float = 30.0) -> None:
        """Waits until a flow has begun for the `times`th time."""
        wait_for(lambda: self.log().count("reading pg after") >= times, self.log()[-2000:], timeout_s)

    def wait_caught_up(self, timeout_s: float = 60.0) -> None:
        """Waits until everything now in the upstream's log is published."""
        goal = self.upstream.goal()

        def there() -> bool:
            assert self.process is None or self.process.poll() is None, self.log()[-3000:]
            return int(self.upstream.number(self.info().position)) >= goal

        wait_for(there, self.log()[-2000:], timeout_s)

    def wait_state(self, state: ConnectionState, code: str, timeout_s: float = 30.0) -> dict[str, str]:
        def there() -> dict[str, str] | None:
            info = self.info()
            return info.error if info.state is state and info.error and info.error["code"] == code else None

        error: dict[str, str] = wait_for(there, self.log()[-2000:], timeout_s)
        return error

    def transactions(self) -> list[tuple[int, list[bytes]]]:
        """(number, row messages) of every published transaction, in index order; checks the changelog's shape."""
        with self.home.meta.read() as c:
            info = connections.get(c, self.id)
            held = segments.in_range(c, self.id, 0, info.committed_index)
            known = {s.id: s for s in segments.schemas(c, self.id)}
        expected = 1
        rows: dict[int, tuple[int, bytes]] = {}
        for s in held:
            assert s.first_index == expected, "segments follow each other without a gap"
            expected = s.last_index + 1
            for p in s.parts:
                table = reader.read_table(self.home.storage, [(s.path, p)], 0, info.committed_index)
                assert table.num_rows == p.changes
                assert known[p.schema_id].upstream_id == p.upstream_id
                assert known[p.schema_id].from_index <= p.first_index
                columns = (table[n].to_pylist() for n in ("index", "txn", "payload"))
                rows.update({i: (t, m) for i, t, m in zip(*columns, strict=True)})
        assert sorted(rows) == list(range(1, info.committed_index + 1)), "each index once"
        done = reader.read_transactions(self.home.storage, [s.path for s in held]).to_pylist()
        found = []
        at = 1
        for t in done:
            assert t["first_index"] == at and t["last_index"] - at + 1 == t["changes"]
            inside = [rows[i] for i in range(at, t["last_index"] + 1)]
            assert {txn for txn, _ in inside} == {t["txn"]}
            found.append((self.upstream.short_txn(t["txn"]), [m for _, m in inside]))
            at = t["last_index"] + 1
        assert at == info.committed_index + 1
        return found


@contextlib.contextmanager
def captured(path: Path, upstream: CaptureUpstream, **options: str) -> Iterator[Captured]:
    """A defined connection whose process is certain to end with the block."""
    it = Captured.define(path, upstream, **options)
    try:
        yield it
    finally:
        it.kill()
        it.home.meta.close()
