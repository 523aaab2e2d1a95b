"""The screen of a run: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headwater.cli.render import count, visible
from headwater.engine.results import TableStatus

LINE_INTERVAL_S = 5.0  # between two lines about one table whose state stays the same
SHOWN_TABLES = 30
BAR_WIDTH = 24
STYLES = {"live": "green", "filling": "cyan", "waiting": "yellow", "failed": "bold red", "defined": "dim"}


class Screen:
    """Shows where the tables of a run stand; give `update` to the engine as its progress callback."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = (
            Live(Text("starting …", style="dim"), console=console, refresh_per_second=4, vertical_overflow="ellipsis")
            if console.is_terminal
            else None
        )
        self._said: dict[str, tuple[str, float]] = {}
        self._shown: RenderableType = Text()

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def update(self, tables: Sequence[TableStatus]) -> None:
        if self._live:
            self._shown = overview(tables)
            self._live.update(self._shown)
            return
        for status in tables:
            self._say(status)

    def note(self, text: str) -> None:
        """A line below the tables; may be called from a signal handler."""
        if self._live:
            self._live.update(Group(self._shown, Text(text)), refresh=True)
        else:
            self._console.print(text)

    def _say(self, status: TableStatus) -> None:
        """A line when the state changes, and now and then while a table is being filled."""
        state, at = self._said.get(status.name, ("", 0.0))
        now = time.monotonic()
        if status.state == state and (status.state != "filling" or now - at < LINE_INTERVAL_S):
            return
        self._said[status.name] = (status.state, now)
        self._console.print(line(status))


def line(status: TableStatus) -> str:
    """One table as one line of plain text."""
    parts = [status.state]
    if status.state == "waiting" and status.waiting_for:
        parts.append(f"for {status.waiting_for}")
    if status.state == "filling":
        parts += [_percent(status), f"{status.spans_done} of {count(status.spans_total, 'span')}"]
    if status.rows:
        parts.append(count(status.rows, "row"))
    if status.state == "filling" and status.rate:
        parts.append(f"{status.rate:,.0f} rows/s")
    text = f"{status.name}: {', '.join(parts)}"
    if status.error:
        text += f": {status.error}" + (f"\n  → {status.hint}" if status.hint else "")
    return "\n".join(visible(part) for part in text.split("\n"))


def overview(tables: Sequence[TableStatus]) -> RenderableType:
    """All tables as a grid: name, state, bar, rows, rate, lag; below it why a table waits or has failed."""
    grid = Table.grid(padding=(0, 2))
    for justify in ("left", "left", "left", "right", "right", "right", "right"):
        grid.add_column(justify=justify, no_wrap=True)
    notes: list[RenderableType] = []
    for status in tables[:SHOWN_TABLES]:
        grid.add_row(
            Text(visible(status.name), style="bold"),
            Text(status.state, style=STYLES.get(status.state, "")),
            ProgressBar(total=max(status.spans_total, 1), completed=_bar(status), width=BAR_WIDTH),
            Text(_percent(status)),
            Text(count(status.rows, "row")),
            Text(f"{status.rate:,.0f}/s" if status.rate else "", style="dim"),
            Text(_lag(status.lag_s), style="dim"),
        )
        notes += _notes(status)
    if len(tables) > SHOWN_TABLES:
        notes.append(Text(f"… and {count(len(tables) - SHOWN_TABLES, 'table')} more", style="dim"))
    return Group(grid, *notes)


def _notes(status: TableStatus) -> list[RenderableType]:
    if status.error:
        found: list[RenderableType] = [
            Text.assemble(("✗ ", "bold red"), f"{visible(status.name)}: {visible(status.error)}")
        ]
        return [*found, Text.assemble(("  → ", "bold cyan"), visible(status.hint))] if status.hint else found
    if status.waiting_for:
        return [Text.assemble(("⚠ ", "bold yellow"), f"{visible(status.name)} waits for {visible(status.waiting_for)}")]
    return []


def _bar(status: TableStatus) -> float:
    """How far the bar goes: a live table is full even if it has no spans to count."""
    return max(status.spans_total, 1) if status.state == "live" else status.covered * max(status.spans_total, 1)


def _percent(status: TableStatus) -> str:
    """Covered so far, never rounded up to 100 before it is all."""
    return "100 %" if status.covered >= 1 or status.state == "live" else f"{min(int(status.covered * 100), 99)} %"


def _lag(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"lag {seconds:.1f} s" if seconds < 100 else f"lag {seconds / 60:,.0f} min"
