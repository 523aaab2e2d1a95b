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

from headwater.cli import frame, render
from headwater.cli.reach import open_home
from headwater.cli.screen import Screen
from headwater.engine.results import TableStatus
from headwater.sql.parse import parse
from headwater.sql.statements import Describe, Explain, Query, Show, ShowCreate


def run(
    file: str | None, home: Path, *, once: bool, fold: bool, quiet: bool, metrics_port: int = 0, until: str = ""
) -> dict[str, Any]:
    """Runs until Ctrl-C, with `once` until every table has caught up, with `until` up to that place in the log.

    Returns what the envelope says.
    """
    err = render.console(sys.stderr)
    text, warnings = definitions("" if file is None else frame.read_text(file))
    for warning in warnings:
        err.print(render.warning(warning))
    stop = Stop()
    hw = open_home(home)
    try:
        work = partial(hw.run, text, once=once, fold=fold, metrics_port=metrics_port, until=until)
        if not quiet:
            err.print(f"home {home}; Ctrl-C stops, the next start continues")
        if metrics_port and not quiet:
            err.print(f"metrics at http://127.0.0.1:{metrics_port}/metrics")
        _run(work, stop, err, quiet=quiet)
    except KeyboardInterrupt:
        if not stop.asked:
            raise
    finally:
        hw.close()
    if not quiet:
        caught_up = once and not stop.asked
        ended = "every table has caught up" if caught_up else "stopped; the next start continues here"
        if until and not stop.asked:
            ended = f"reached {until}; the next start continues here"
        err.print(render.done(ended))
    return {"home": str(home), "stopped": stop.asked > 0, "once": once}


def _run(work: Callable[..., object], stop: Stop, err: Console, *, quiet: bool) -> None:
    """Does the work with a screen that shows its progress, or without one."""
    if quiet:
        work(progress=lambda tables: stop.hold())
        return
    with Screen(err) as screen:
        stop.note = screen.note

        def progress(tables: list[TableStatus]) -> None:
            stop.hold()
            screen.update(tables)

        work(progress=progress)


class Stop:
    """Ctrl-C, SIGTERM, a closed terminal: the first stops cleanly, the third at once (the next start is slower).

    They may reach the whole process group: captures and Spark are in sessions of their own, and we end them.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.note: Callable[[str], None] = lambda text: print(text, file=sys.stderr)
        self.hold()

    def hold(self) -> None:
        """Takes the signals, again if need be: Spark takes Ctrl-C for itself when it starts."""
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
            self.note("still stopping; once more ends it at once")
        else:
            os._exit(frame.INTERRUPTED)


def definitions(text: str) -> tuple[str, list[str]]:
    """The text without its questions, and a warning for each. Read before Spark starts: a typo shows at once."""
    statements = parse(text)
    questions = [s for s in statements if isinstance(s, Query | Explain | Show | ShowCreate | Describe)]
    if not questions:
        return text, []
    kept = ";\n".join(s.text for s in statements if s not in questions)
    return kept, [f"line {q.line}: run takes definitions; ask this with `headwater sql`" for q in questions]
