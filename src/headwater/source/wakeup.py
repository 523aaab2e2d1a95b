"""A wake-up next to a log's socket: any thread can end the wait of the thread that polls the log."""

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
        """Makes a poll also wait for it."""
        poll.register(self._receiver, select.POLLIN)

    def wake(self) -> None:
        """Wakes the poller, now or at its next poll."""
        with contextlib.suppress(OSError):  # already sent often enough, or closed
            self._sender.send(b"!")

    def received(self, ready: list[tuple[int, int]]) -> bool:
        """Whether a poll found it ready; consumes it."""
        if not any(fd == self._receiver.fileno() for fd, _ in ready):
            return False
        self._receiver.recv(4096)
        return True

    def close(self) -> None:
        """Closes it; waking then does nothing."""
        self._receiver.close()
        self._sender.close()
