"""The protocol between a command and the server of its home: one request and one reply on a Unix socket.

A message is a frame of JSON and then, for every size in its `bodies`, one Arrow IPC stream of that many bytes:

    4 bytes  length of the JSON, big-endian
    JSON     {"value": …, "bodies": [n, …]}  or  {"error": {…}}
    n bytes  an Arrow IPC stream, for each n

Only the home's owner can use the socket (mode 0600): the same user who can read the home.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.engine import caller
from headwater.engine.failures import described, is_defect
from headwater.errors import HeadwaterError, JobError, MachineError, Retry, restored

MAX_HEADER = 64 << 20  # an SQL text of this size is a mistake
CONNECT_TIMEOUT_S = 5.0
BACKLOG = 64
ACCEPT_PAUSE_S = 0.2  # after an error, which may recur immediately

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Message:
    """A JSON value and the Arrow tables that belong to it."""

    value: Any
    tables: tuple[pa.Table, ...] = field(default=())


Handler = Callable[[Message], Message]


class Listener:
    """A listening socket; `close()` stops it and removes the file. Open connections still get their reply."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self.path = path
        self._handler = handler
        self._closed = threading.Event()
        self._socket = _bind(path)
        self._thread = threading.Thread(target=self._accept, name="headwater-wire", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(timeout=5)
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                peer, _ = self._socket.accept()
            except OSError as e:
                if self._closed.is_set():
                    return
                # too many open files, or a client that disconnected early: later ones must still be served
                log.warning("could not accept a client: %s", e)
                self._closed.wait(ACCEPT_PAUSE_S)
                continue
            threading.Thread(target=self._reply, args=(peer,), name="headwater-reply", daemon=True).start()

    def _reply(self, peer: socket.socket) -> None:
        # An interrupted command disconnects at any time; that is not an error of the server.
        with peer, contextlib.suppress(ConnectionError, EOFError):
            request = _receive(peer)
            try:
                with caller.served(peer):
                    reply = self._handler(request)
            except Exception as e:  # a bug in a handler must not take the server down
                _send(peer, {"error": _as_reply(e).stored()}, ())
            else:
                _send(peer, {"value": reply.value}, reply.tables)


def serve(path: Path, handler: Handler) -> Listener:
    """Answers requests at `path`, each in its own thread, until the listener is closed."""
    return Listener(path, handler)


def call(path: Path, value: Any, tables: Sequence[pa.Table] = (), timeout_s: float | None = None) -> Message:
    """The server's reply to one request. Errors raised there are raised here with the same class.

    Raises `server.unreachable` if there is no answer at `path`. Without `timeout_s` it waits as long as it takes.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(CONNECT_TIMEOUT_S)
        try:
            _connect(s, path)
            s.settimeout(timeout_s)
            _send(s, {"value": value}, tables)
            reply = _receive(s)
        except (OSError, EOFError) as e:
            raise MachineError(
                "server.unreachable",
                f"the server of {path.parent} does not answer",
                "Its log is in logs/ there."
                if path.exists()
                else "It has stopped: start it with headwater run, or run this command again to read without one.",
                Retry.AUTO,
            ) from e
    return reply


def answers(path: Path) -> bool:
    """Whether a server listens at `path`. (A killed one may leave the file behind.)"""
    if not path.exists():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(CONNECT_TIMEOUT_S)
        try:
            _connect(s, path)
        except OSError:
            return False
    return True


def _as_reply(error: Exception) -> HeadwaterError:
    """A handler's error for the client: failures of Spark or the disk have their own codes, the rest are bugs."""
    if is_defect(error):
        return JobError("job.failed", f"unexpected: {type(error).__name__}: {error}", "See logs/ in the home.")
    return described(error)


def _bind(path: Path) -> socket.socket:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path.unlink(missing_ok=True)  # the caller holds the home's lock, so the server that left it is dead
    with _short(path) as name:
        s.bind(name)
    path.chmod(0o600)
    s.listen(BACKLOG)
    return s


def _connect(s: socket.socket, path: Path) -> None:
    with _short(path) as name:
        s.connect(name)


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """A path to the socket that is short enough for the kernel: it allows 107 bytes, and a home's may be longer."""
    if len(str(path).encode()) < 100:
        yield str(path)
        return
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)


def _send(s: socket.socket, header: dict[str, Any], tables: Sequence[pa.Table]) -> None:
    bodies = [_ipc(t) for t in tables]
    text = json.dumps({**header, "bodies": [len(b) for b in bodies]}).encode()
    s.sendall(struct.pack(">I", len(text)) + text)
    for body in bodies:
        s.sendall(body)


def _receive(s: socket.socket) -> Message:
    (size,) = struct.unpack(">I", _exactly(s, 4))
    if size > MAX_HEADER:
        raise EOFError(f"a header of {size} bytes")
    header = json.loads(_exactly(s, size))
    tables = tuple(pa.ipc.open_stream(pa.py_buffer(_exactly(s, n))).read_all() for n in header["bodies"])
    if "error" in header:
        raise restored(header["error"])
    return Message(header["value"], tables)


def _exactly(s: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        n = s.recv_into(view[got:])
        if n == 0:
            raise EOFError("the other side hung up")
        got += n
    return data


def _ipc(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())
