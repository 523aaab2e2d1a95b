"""The talk between a command and a server: values, rows and errors arrive as what they were."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.engine import caller
from headwater.engine.results import Result, Status, Verified
from headwater.engine.running import AS_IT_IS, Wanted
from headwater.engine.serve import remote, wire
from headwater.errors import HeadwaterError, MachineError, SourceError, SqlError
from headwater.rundir import SOCKET
from support.wait import wait_for


class Engine:
    """Answers from memory."""

    def ask(self, text: str, wanted: Wanted = AS_IT_IS) -> list[Result]:
        if text == "bad":
            raise SqlError("sql.syntax", "line 1, column 2: no", "Do.", line=1, column=2, text="bad")
        if text == "down":
            raise SourceError("source.unreachable", "gone", "Start it.")
        if text == "defect":
            raise ZeroDivisionError("oops")
        rows = pa.table({"a": pa.array([1, None], pa.int64())})
        made = Result(message=f"made {wanted.require_complete} {wanted.fresh}", statement="s")
        return [made, Result(("a",), ("BIGINT",), rows, warnings=("⚠",)), made]

    def verify(self, table: str | None = None) -> list[Verified]:
        return [Verified(table or "all", True, different=("x",))]

    def status(self) -> Status:
        return Status("/h", 1, 2)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    engine = Engine()
    listener = wire.serve(tmp_path / SOCKET, lambda m: remote.answer(engine, m))
    yield tmp_path
    listener.close()


def found(home: Path) -> remote.Remote:
    server = remote.find(home)
    assert server is not None
    return server


def test_results_arrive_with_their_rows(home: Path) -> None:
    made, rows, again = found(home).ask("x", Wanted(require_complete=True, fresh=True))
    assert made == again == Result(message="made True True", statement="s")
    assert rows.rows is not None and rows.rows.column("a").to_pylist() == [1, None]
    assert (rows.columns, rows.types, rows.warnings) == (("a",), ("BIGINT",), ("⚠",))


def test_verify_and_status_arrive(home: Path) -> None:
    assert found(home).verify("t") == [Verified("t", True, different=("x",))]
    assert found(home).verify()[0].table == "all"
    assert found(home).status() == Status("/h", 1, 2)


def test_an_error_is_raised_as_what_it_was(home: Path) -> None:
    with pytest.raises(SqlError) as caught:
        found(home).ask("bad")
    e = caught.value
    assert (e.code, e.message, e.hint, e.line, e.column, e.text) == (
        "sql.syntax",
        "line 1, column 2: no",
        "Do.",
        1,
        2,
        "bad",
    )
    with pytest.raises(SourceError, match="gone"):
        found(home).ask("down")


def test_a_defect_reaches_the_command_and_leaves_the_server_up(home: Path) -> None:
    with pytest.raises(HeadwaterError, match="unexpected: ZeroDivisionError: oops") as caught:
        found(home).ask("defect")
    assert caught.value.code == "job.failed"
    assert found(home).status().epoch == 2


def test_a_request_of_another_version_is_refused_with_the_way_out(home: Path) -> None:
    with pytest.raises(MachineError, match="does not support"):
        wire.call(home / SOCKET, {"do": "dance"})


def test_only_the_owner_may_ask(home: Path) -> None:
    assert stat.S_IMODE((home / SOCKET).stat().st_mode) == 0o600


def test_many_may_ask_at_once(home: Path) -> None:
    problems: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(10):
                assert found(home).ask("x")[1].rows is not None
        except BaseException as e:
            problems.append(e)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems


def test_a_command_that_hangs_up_does_no_harm(home: Path) -> None:
    for sent in (b"", b"\x00\x00", b"\x00\x00\x00\x05{"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.connect(str(home / SOCKET))
            s.sendall(sent)
    assert found(home).status().epoch == 2


def test_a_listener_that_cannot_accept_for_a_while_answers_afterwards(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Too many open files, for one: a caller waits in the kernel's queue meanwhile."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as opened:
        # the first takes the descriptor that the waiting accept holds already, and keeps it
        first, second = (opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in range(2))
        next_free = os.dup(0)
        os.close(next_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_free, limits[1]))
        try:
            for s in (first, second):
                s.connect(str(home / SOCKET))
            wire._send(second, {"value": {"do": "status"}}, ())
            wait_for(lambda: caplog.text.count("could not accept a client") > 1, "it has tried more than once")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert wire._receive(second).value["epoch"] == 2
    assert found(home).status().epoch == 2


def test_a_caller_that_hangs_up_is_noticed_while_its_request_is_worked_on(tmp_path: Path) -> None:
    began, gone = threading.Event(), threading.Event()

    def handler(message: wire.Message) -> wire.Message:
        assert caller.current().pid == os.getpid()
        caller.current().when_gone(gone.set)
        began.set()
        assert gone.wait(60), "nobody said that the caller is gone"
        return message

    listener = wire.serve(tmp_path / SOCKET, handler)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.connect(str(tmp_path / SOCKET))
            wire._send(s, {"value": 1}, ())
            assert began.wait(60) and not gone.is_set()
        assert gone.wait(60)
    finally:
        listener.close()


def test_a_file_that_a_killed_server_left_is_nobody(tmp_path: Path) -> None:
    assert remote.find(tmp_path) is None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.bind(str(tmp_path / SOCKET))
    assert remote.find(tmp_path) is None
    with pytest.raises(MachineError) as caught:
        wire.call(tmp_path / SOCKET, {"do": "status"})
    assert caught.value.code == "server.unreachable" and caught.value.exit_status == 3
    wire.serve(tmp_path / SOCKET, lambda m: m).close()  # and a new server takes its place
    assert not (tmp_path / SOCKET).exists()


def test_a_home_may_lie_deeper_than_the_kernels_limit(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    listener = wire.serve(deep / SOCKET, lambda m: m)
    try:
        assert wire.call(deep / SOCKET, [1]).value == [1]
    finally:
        listener.close()
