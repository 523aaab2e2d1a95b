"""How a command reaches its home: through the running server, or with its own engine."""

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
    """What `headwater.open` returns, as far as commands use it."""

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
        """Raises unless a home exists or the definitions create one."""
        ...

    def refused(self) -> HeadwaterError | None:
        """The definitions that failed."""
        ...

    def close(self) -> None: ...


def open_home(home: Path, given: Given = NOTHING) -> Facade:
    """An engine of this process for the home; its messages go to stderr."""
    hw = cast(Callable[..., Facade], headwater.open)(home, config=given.file, settings=given.values)
    hw.on_notice = lambda text: render.console(sys.stderr).print(render.warning(text))
    return hw


@contextlib.contextmanager
def reach(home: Path, given: Given = NOTHING) -> Iterator[Answering]:
    """An engine or a server that answers for the home; closed afterwards."""
    server = find(home)
    if server is not None:
        if given.file is not None or given.values:
            text = "a server runs on this home: it answers with its own settings, not with those given here"
            render.console(sys.stderr).print(render.warning(text))
        yield server
        return
    hw = open_home(home, given)
    try:
        yield hw
    finally:
        hw.close()


@contextlib.contextmanager
def busy(text: str) -> Iterator[None]:
    """A spinner on stderr during slow work; nothing without a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with render.console(sys.stderr).status(text, spinner="dots"):
        yield
