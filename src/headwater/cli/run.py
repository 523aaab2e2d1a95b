"""`headwater run`: applies a file and keeps its tables fresh."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from headwater.cli import frame, render
from headwater.cli.reach import open_home
from headwater.cli.screen import Screen
from headwater.sql.parse import parse
from headwater.sql.statements import Describe, Explain, Query, Show, ShowCreate


def run(file: str | None, home: Path, *, once: bool, fold: bool, quiet: bool) -> dict[str, Any]:
    """Runs until Ctrl-C, or with `once` until every table has caught up. Returns what the envelope says."""
    err = render.console(sys.stderr)
    text, warnings = definitions("" if file is None else frame.read_text(file))
    for warning in warnings:
        err.print(render.warning(warning))
    stopped = False
    signal.signal(signal.SIGTERM, _stop)
    hw = open_home(home)
    try:
        if quiet:
            hw.run(text, once=once, fold=fold)
        else:
            err.print(render.done(f"home {home}; Ctrl-C stops, the next start continues"))
            with Screen(err) as screen:
                hw.run(text, once=once, fold=fold, progress=screen.update)
    except KeyboardInterrupt:
        stopped = True
        err.print("stopping …")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would only make the next start slower
        hw.close()
    if not quiet:
        last = "stopped; the next start continues from here" if stopped or not once else "every table has caught up"
        err.print(render.done(last))
    return {"home": str(home), "stopped": stopped, "once": once}


def definitions(text: str) -> tuple[str, list[str]]:
    """The text without its questions, and a warning for each. Read before Spark starts: a typo shows at once."""
    statements = parse(text)
    questions = [s for s in statements if isinstance(s, Query | Explain | Show | ShowCreate | Describe)]
    if not questions:
        return text, []
    kept = ";\n".join(s.text for s in statements if s not in questions)
    return kept, [f"line {q.line}: run takes definitions; ask this with `headwater sql`" for q in questions]


def _stop(number: int, where: FrameType | None) -> None:
    raise KeyboardInterrupt
