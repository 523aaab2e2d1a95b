"""The caller for whom a thread works: this program, or a command connected to the server's socket."""

from __future__ import annotations

import os
import pwd
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of the other end, from the kernel


@dataclass(slots=True)
class Caller:
    """A process that waits for a result. `when_gone` registers a callback for when it no longer does."""

    user: str
    pid: int
    _gone: bool = False
    _calls: list[Callable[[], None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __str__(self) -> str:
        return f"{self.user} (process {self.pid})"

    def when_gone(self, call: Callable[[], None]) -> None:
        """Calls back once the caller has disconnected; immediately if it already has."""
        with self._lock:
            if not self._gone:
                self._calls.append(call)
                return
        call()

    def hang_up(self) -> None:
        with self._lock:
            self._gone, calls, self._calls = True, self._calls, []
        for call in calls:
            call()


def this_program() -> Caller:
    """The program itself, which cannot disconnect."""
    return Caller(_user(os.getuid()), os.getpid())


def at_socket(peer: socket.socket) -> Caller:
    """The process at the other end of a unix socket."""
    pid, uid, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return Caller(_user(uid), pid)


_current: ContextVar[Caller | None] = ContextVar("caller", default=None)


def current() -> Caller:
    """The caller for whom this thread works."""
    return _current.get() or this_program()


@contextmanager
def served(peer: socket.socket) -> Iterator[Caller]:
    """Runs the block for the caller at the socket; its `when_gone` callbacks run as soon as it disconnects.

    The caller has sent its whole request by now, so the next event on its socket is the disconnect.
    """
    caller = at_socket(peer)
    ours, watchers = socket.socketpair()
    thread = threading.Thread(target=_watch, args=(peer, watchers, caller), name="headwater-caller", daemon=True)
    token = _current.set(caller)
    thread.start()
    try:
        yield caller
    finally:
        _current.reset(token)
        ours.close()
        thread.join()
        watchers.close()


def _watch(peer: socket.socket, done: socket.socket, caller: Caller) -> None:
    poll = select.poll()
    poll.register(peer, select.POLLIN | select.POLLRDHUP)
    poll.register(done, select.POLLIN | select.POLLRDHUP)
    ready = {fd for fd, _ in poll.poll()}
    if done.fileno() not in ready:
        caller.hang_up()


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container may run as a user without a name
        return str(uid)
