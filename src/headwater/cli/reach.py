"""How a command reaches its home: the server that runs there, or an engine of its own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, cast

import headwater
from headwater.cli import render
from headwater.engine.results import TableStatus
from headwater.engine.serve.remote import Answering, find
from headwater.errors import HeadwaterError
from headwater.settings.load import NOTHING, Given


class Facade(Answering, Protocol):
    """What `headwater.open` gives, as far as commands use it."""

    on_notice: Callable[[str], None]

    def run(
        self,
        text: str,
        *,
        once: bool,
        fold: bool,
        progress: Callable[[list[TableStatus]], None] | None = None,
        metrics_port: int = 0,
        until: str = "",
    ) -> object:
        """Applies definitions, then keeps tables fresh until KeyboardInterrupt (or, with `once`, caught up)."""
        ...

    def require(self, text: str) -> None:
        """An error unless a home is there or the definitions make one."""
        ...

    def refused(self) -> HeadwaterError | None:
        """What of the definitions was not carried out."""
        ...

    def close(self) -> None: ...


def open_home(home: Path, given: Given = NOTHING) -> Facade:
    """An engine of this process for the home; what it has to say goes to stderr."""
    hw = cast(Callable[..., Facade], headwater.open)(home, config=given.file, settings=given.values)
    hw.on_notice = lambda text: render.console(sys.stderr).print(render.warning(text))
    return hw


@contextlib.contextmanager
def reach(home: Path, given: Given = NOTHING) -> Iterator[Answering]:
    """Something that answers about the home; closed afterwards."""
    server = find(home)
    if server is not None:
        yield server
        return
    hw = open_home(home, given)
    try:
        yield hw
    finally:
        hw.close()


@contextlib.contextmanager
def busy(text: str) -> Iterator[None]:
    """A spinner on stderr while something takes its time; nothing without a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with render.console(sys.stderr).status(text, spinner="dots"):
        yield
