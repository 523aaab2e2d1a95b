"""A bell beside a log's socket, by which any thread makes whoever waits for the log look up."""

from __future__ import annotations

import contextlib
import select
import socket


class Bell:
    """Rung by any thread, heard by the one that polls."""

    def __init__(self) -> None:
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)

    def hang(self, poll: select.poll) -> None:
        """Lets a poll wait for it, too."""
        poll.register(self._wake_receiver, select.POLLIN)

    def ring(self) -> None:
        """Wakes whoever polls, now or at the next poll."""
        with contextlib.suppress(OSError):  # rung often enough already, or closed
            self._wake_sender.send(b"!")

    def rang(self, ready: list[tuple[int, int]]) -> bool:
        """Whether it is among what a poll found ready; it is silent then."""
        if not any(fd == self._wake_receiver.fileno() for fd, _ in ready):
            return False
        self._wake_receiver.recv(4096)
        return True

    def close(self) -> None:
        """Ends it; ringing does nothing then."""
        self._wake_receiver.close()
        self._wake_sender.close()
