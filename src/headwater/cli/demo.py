"""`headwater demo`: shows the demo on the screen; `headwater.demo` has its contents."""

from __future__ import annotations

import sys
from pathlib import Path

from headwater.cli import render
from headwater.cli.screen import Screen
from headwater.engine.results import Result, TableStatus


class Stage:
    """What the demo can show on the screen."""

    def __init__(self) -> None:
        self._out = render.console(sys.stdout)
        self._screen: Screen | None = None

    def say(self, text: str) -> None:
        self.close()
        self._out.print(text)

    def done(self, text: str) -> None:
        self.close()
        self._out.print(render.done(text))

    def result(self, result: Result) -> None:
        self.close()
        self._out.print(render.table(result))

    def progress(self, tables: list[TableStatus]) -> None:
        if self._screen is None:
            self._screen = Screen(self._out).__enter__()
        self._screen.update(tables)

    def close(self) -> None:
        """Closes the progress screen, if one is open."""
        if self._screen is not None:
            self._screen.__exit__(None, None, None)
            self._screen = None


def demo(source: str, home: str | None, *, keep: bool) -> None:
    """Runs the demo; with `keep` it stays up until Ctrl-C."""
    from headwater.demo.story import tell

    stage = Stage()
    try:
        tell(stage, source=source, home=None if home is None else Path(home).absolute(), keep=keep)
    except KeyboardInterrupt:
        stage.say("stopped")
    finally:
        stage.close()
