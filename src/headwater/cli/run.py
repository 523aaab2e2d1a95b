"""`headwater run`: applies a file and keeps its tables fresh."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from headwater.cli import envelope, render
from headwater.cli.reach import open_home
from headwater.cli.screen import Screen
from headwater.engine.results import TableStatus
from headwater.settings.load import NOTHING, Given
from headwater.sql.parse import parse
from headwater.sql.steps import steps


def run(
    file: str | None,
    home: Path,
    *,
    once: bool,
    fold: bool,
    quiet: bool,
    metrics_port: int = 0,
    until: str = "",
    given: Given = NOTHING,
) -> dict[str, Any]:
    """Runs until Ctrl-C, with `once` until everything has caught up, with `until` up to that point in the log.

    Returns the envelope's result; raises at the end if statements of the file failed.
    """
    err = render.console(sys.stderr)
    text = "" if file is None else envelope.read_text(file)
    steps(parse(text))  # parse everything before executing anything, and before Spark starts: a typo shows immediately
    stop = Stop()
    hw = open_home(home, given)
    hw.on_notice = lambda text: err.print(render.warning(text))  # the console that a live screen uses
    try:
        work = partial(hw.run, text, once=once, fold=fold, metrics_port=metrics_port, until=until)
        hw.require(text)
        if not quiet:
            err.print(f"home {home}; Ctrl-C stops, the next start continues")
        at = f"metrics at http://127.0.0.1:{metrics_port}/metrics" if metrics_port else ""
        _run(work, stop, err, at, quiet=quiet)
    except KeyboardInterrupt:
        if not stop.asked:
            raise
    finally:
        hw.close()
    if not quiet:
        caught_up = once and not stop.asked
        ended = "every table and view has caught up" if caught_up else "stopped; the next start continues here"
        if until and not stop.asked:
            ended = f"reached {until}; the next start continues here"
        err.print(render.done(ended))
    if (refused := hw.refused()) is not None:
        raise refused
    return {"home": str(home), "stopped": stop.asked > 0, "once": once}


def _run(work: Callable[..., object], stop: Stop, err: Console, begun: str, *, quiet: bool) -> None:
    """Does the work with or without a progress screen; prints `begun` once the server runs."""
    if quiet:
        work(progress=lambda tables: stop.install())
        return
    with Screen(err) as screen:
        stop.note = screen.note
        unsaid = [begun] if begun else []

        def progress(tables: list[TableStatus]) -> None:
            stop.install()
            while unsaid:
                err.print(unsaid.pop())
            screen.update(tables)

        work(progress=progress)


class Stop:
    """Ctrl-C, SIGTERM, a closed terminal: the first one stops cleanly, the third one immediately.

    After an immediate stop the next start is slower. Signals may reach the whole process group: captures and Spark have
    their own sessions, and we end them.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.note: Callable[[str], None] = lambda text: print(text, file=sys.stderr)
        self.install()

    def install(self) -> None:
        """Installs the signal handlers, repeatedly if needed: Spark takes Ctrl-C for itself when it starts."""
        if signal.getsignal(signal.SIGINT) != self._heard:
            signal.signal(signal.SIGINT, self._heard)
            signal.signal(signal.SIGTERM, self._heard)
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
                signal.signal(signal.SIGHUP, self._heard)

    def _heard(self, number: int, where: FrameType | None) -> None:
        self.asked += 1
        if self.asked == 1:
            self.note("stopping …")
            raise KeyboardInterrupt
        if self.asked == 2:
            self.note("still stopping; once more stops immediately")
        else:
            os._exit(envelope.INTERRUPTED)
