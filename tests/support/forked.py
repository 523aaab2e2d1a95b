"""Captures as processes of their own that start at once: forked from one that has already imported what they need.

Importing takes longer than most tests of a capture. What runs is the same `main`, with its own environment, standard
streams and exit status; tests of whole servers start captures as the server does.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, TextIO

REQUEST_BYTES = 1 << 20
STREAMS = 4  # stdin, stdout, stderr, and where the exit status goes


class Forked:
    """A process that is not our child, with what tests use of `subprocess.Popen`."""

    def __init__(self, pid: int, stdin: TextIO, stdout: TextIO, status: IO[bytes]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """The exit status, or the negative number of the signal that ended it; None while it runs."""
        return self._ended(0)

    def wait(self, timeout_s: float) -> int:
        if self._ended(timeout_s) is None:
            raise subprocess.TimeoutExpired("headwater.capture.process", timeout_s)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _ended(self, timeout_s: float) -> int | None:
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._status, selectors.EVENT_READ)
                if not selector.select(timeout_s):
                    return None
            said = self._status.read()
            assert said, "the process that forks captures has ended"
            self.returncode = int(said)
            self._status.close()
        return self.returncode


def start(arguments: Sequence[str], environment: Mapping[str, str], stderr: IO[str]) -> Forked:
    """Starts a capture."""
    stdin, ours = os.pipe()
    theirs, stdout = os.pipe()
    status, tell = os.pipe()
    request = json.dumps([list(arguments), dict(environment)]).encode()
    given = [ours, theirs, status]
    try:
        server = _server()
        socket.send_fds(server, [len(request).to_bytes(4, "big")], [stdin, stdout, stderr.fileno(), tell])
        server.sendall(request)
        pid = int.from_bytes(_exactly(server, 4), "big")
    except BaseException:
        for fd in given:
            os.close(fd)
        raise
    finally:
        for fd in (stdin, stdout, tell):
            os.close(fd)
    return Forked(pid, os.fdopen(ours, "w"), os.fdopen(theirs), os.fdopen(status, "rb"))


@functools.cache
def _server() -> socket.socket:
    """The connection to the process that forks; it ends with this one."""
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait(30)

    atexit.register(end)
    return ours


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(min(size - len(data), REQUEST_BYTES))
        if not more:
            raise EOFError("the other process has ended")
        data += more
    return data


def main() -> int:
    """Forks a capture for each request, and tells how it ended."""
    from headwater.capture import process
    from headwater.decode import dialects

    dialects.load()
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    watched: dict[int, int] = {}  # process → where its exit status goes
    wakes, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: whoever started us ends us
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        selector.register(wakes, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if wakes in ready:
                os.read(wakes, 4096)
                _tell_ended(watched)
            if connection in ready:
                size, streams, _, _ = socket.recv_fds(connection, 4, STREAMS)
                if not size:
                    return 0
                arguments, environment = json.loads(_exactly(connection, int.from_bytes(size, "big")))
                pid = os.fork()
                if pid == 0:
                    selector.close()
                    for fd in (connection.detach(), wakes, wake, *watched.values(), streams[3]):
                        os.close(fd)
                    _become(arguments, environment, streams[:3])
                    return process.main()
                watched[pid] = streams[3]
                for fd in streams[:3]:
                    os.close(fd)
                connection.sendall(pid.to_bytes(4, "big"))


def _become(arguments: list[str], environment: dict[str, str], streams: list[int]) -> None:
    """Makes this process what a fresh one would be."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    for target, fd in enumerate(streams):
        os.dup2(fd, target)
        os.close(fd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments


def _tell_ended(watched: dict[int, int]) -> None:
    while watched:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        fd = watched.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
            os.write(fd, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main())
