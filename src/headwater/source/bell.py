"""A bell beside a log's socket, by which any thread makes whoever waits for the log look up."""

from __future__ import annotations

import contextlib
import select
import socket


class Bell:
    """Rung by any thread, heard by the one that polls."""

    def __init__(self) -> None:
        self._bell, self._button = socket.socketpair()
        self._bell.setblocking(False)
        self._button.setblocking(False)

    def hang(self, poll: select.poll) -> None:
        """Lets a poll wait for it, too."""
        poll.register(self._bell, select.POLLIN)

    def ring(self) -> None:
        """Wakes whoever polls, now or at the next poll."""
        with contextlib.suppress(OSError):  # rung often enough already, or closed
            self._button.send(b"!")

    def rang(self, ready: list[tuple[int, int]]) -> bool:
        """Whether it is among what a poll found ready; it is silent then."""
        if not any(fd == self._bell.fileno() for fd, _ in ready):
            return False
        self._bell.recv(4096)
        return True

    def close(self) -> None:
        """Ends it; ringing does nothing then."""
        self._bell.close()
        self._button.close()
