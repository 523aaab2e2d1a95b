"""A wake-up beside a log's socket: any thread can end the wait of the one that polls the log."""

from __future__ import annotations

import contextlib
import select
import socket


class Wakeup:
    """Sent by any thread, received by the one that polls."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def register(self, poll: select.poll) -> None:
        """Makes a poll wait for it, too."""
        poll.register(self._receiver, select.POLLIN)

    def wake(self) -> None:
        """Wakes whoever polls, now or at the next poll."""
        with contextlib.suppress(OSError):  # sent often enough already, or closed
            self._sender.send(b"!")

    def received(self, ready: list[tuple[int, int]]) -> bool:
        """Whether it is among what a poll found ready; it is consumed then."""
        if not any(fd == self._receiver.fileno() for fd, _ in ready):
            return False
        self._receiver.recv(4096)
        return True

    def close(self) -> None:
        """Ends it; waking does nothing then."""
        self._receiver.close()
        self._sender.close()
