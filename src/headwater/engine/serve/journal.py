"""The server's own log: written to the home, never to the terminal."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path


class _Journal(RotatingFileHandler):
    """A log handler that ignores write errors (a full disk) instead of printing stack traces to the terminal."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass


BYTES = 10 << 20
OLD_FILES = 2


@contextmanager
def kept(home: Path) -> Iterator[None]:
    """Makes our loggers write to the home's `logs/server.log` until the block ends."""
    folder = home / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    handler = _Journal(folder / "server.log", maxBytes=BYTES, backupCount=OLD_FILES, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger, level = logging.getLogger("headwater"), logging.getLogger("headwater").level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()
