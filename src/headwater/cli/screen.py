"""The screen of a run: a live table on a terminal, plain lines otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headwater.cli.lines import Lines
from headwater.cli.render import count, visible
from headwater.cli.words import covered, way_out, who
from headwater.engine.results import ConnectionStatus, JobStatus, TableStatus
from headwater.engine.status.progress import about

SHOWN_TABLES = 30
WIDE, FULL = 100, 130  # screen widths that fit most columns, and all of them
NAME_WIDTH = 30  # longer names are truncated first
STYLES = {
    "live": "green",
    "running": "green",
    "filling": "cyan",
    "waiting": "yellow",
    "paused": "yellow",
    "retrying": "yellow",
    "failed": "bold red",
    "defined": "dim",
}
HEADS = ("table", "state", "covered", "", "spans", "scanned", "rate", "left", "lag")
ORDER = ("failed", "waiting", "filling", "paused", "defined", "live")  # the order on a short screen


class Screen:
    """Shows the state of a run's tables; pass `update` to the engine as its progress callback."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = (
            Live(Text("starting …", style="dim"), console=console, refresh_per_second=4, vertical_overflow="ellipsis")
            if console.is_terminal
            else None
        )
        self._lines = Lines(console.print)
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
            room = max(3, min(SHOWN_TABLES, self._console.height - 6))
            self._shown = overview(tables, self._console.width, room)
            self._live.update(self._shown)
            return
        self._lines.update(tables)

    def note(self, text: str) -> None:
        """Sets a line below the tables; safe to call from a signal handler."""
        if self._live:
            self._live.update(Group(self._shown, Text(text)), refresh=True)
        else:
            self._console.print(text)


def overview(tables: Sequence[TableStatus], width: int = 120, room: int | None = None) -> RenderableType:
    """All tables as a grid of this width: state, bar, rows, rate, time left, lag; below it the reason for each wait.

    With `room`, at most this many tables are shown, starting with those that need attention.
    """
    shown = list(tables)
    if room is not None and len(shown) > room:
        shown = sorted(shown, key=lambda t: ORDER.index(t.state) if t.state in ORDER else 0)[:room]
    wide, full = width >= WIDE, width >= FULL
    grid = Table.grid(padding=(0, 2 if wide else 1))
    grid.add_column(no_wrap=True, min_width=min(NAME_WIDTH, max((cell_len(t.name) for t in shown), default=0)))
    grid.add_column(no_wrap=True, min_width=max(len(word) for word in ORDER))
    grid.add_column(no_wrap=True)
    for _ in range(6 if wide else 5):
        grid.add_column(justify="right", no_wrap=True)
    heads = [Text(word, style="dim") for word in HEADS]
    if shown:
        grid.add_row(*(heads if wide else [*heads[:4], *heads[5:]]))
    for status in shown:
        spans = f"{status.spans_done:,}/{status.spans_total:,}" if status.state != "live" else ""
        cells: list[RenderableType] = [
            Text(visible(status.name), style="bold"),
            Text(status.state, style=STYLES.get(status.state, "")),
            ProgressBar(total=1.0, completed=_bar(status), width=24 if full else 12 if wide else 10),
            Text(covered(status)),
            Text(spans if status.spans_total else "", style="dim"),
            Text(_rows(status, full) if wide else short(status.scanned_rows)),
            Text(_rate(status, full), style="dim"),
            Text("" if status.left_s is None else about(status.left_s)),
            Text(behind(status.lag_s, status.lag_bytes if full else None), style="dim"),
        ]
        grid.add_row(*(cells if wide else [*cells[:4], *cells[5:]]))
    below = notes(shown)
    if len(tables) > len(shown):
        below.append(Text(f"… and {count(len(tables) - len(shown), 'table')} more", style="dim"))
    return Group(grid, *below)


def notes(found: Sequence[TableStatus] | Sequence[ConnectionStatus] | Sequence[JobStatus]) -> list[RenderableType]:
    """Why something is stopped or waiting, with the hint; each reason once for all it affects."""
    names: dict[tuple[str, ...], list[str]] = {}
    for x in found:
        if x.error:
            names.setdefault(("error", x.error, way_out(x)), []).append(x.name)
        elif x.waiting_for:
            names.setdefault(("waits", x.waiting_for), []).append(x.name)
        if not isinstance(x, JobStatus) and x.note:
            names.setdefault(("note", x.note), []).append(x.name)
    lines: list[RenderableType] = []
    for (kind, what, *more), meant in names.items():
        if kind == "error":
            lines.append(Text.assemble(("✗ ", "bold red"), f"{visible(who(meant))}: {visible(what)}"))
            lines += [Text.assemble(("  → ", "bold cyan"), visible(hint)) for hint in more if hint]
        elif kind == "waits":
            verb = "waits for" if len(meant) == 1 else "wait for"
            lines.append(Text.assemble(("⚠ ", "bold yellow"), f"{visible(who(meant))} {verb} {visible(what)}"))
        else:
            lines.append(Text(f"  {visible(who(meant))}: {visible(what)}", style="dim"))
    return lines


def behind(seconds: float | None, bytes: int | None) -> str:
    """How far something is behind, if known: `0.3 s, 12 MB`."""
    if seconds is None:
        return ""
    text = f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:,.0f} min"
    return text + (f", {size(bytes)}" if bytes else "")


def size(bytes: float) -> str:
    """`512 B`, `2.5 MB`, `1.0 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if bytes < 1000:
            return f"{bytes:.0f} B" if unit == "B" else f"{bytes:.1f} {unit}"
        bytes /= 1000
    return f"{bytes:,.1f} TB"


def short(n: float) -> str:
    """A number in a few characters: `950`, `12.3 k`, `1.2 M`."""
    for unit in ("", " k", " M", " G"):
        if n < 999.5:
            return f"{n:.0f}{unit}" if unit == "" or n >= 99.95 else f"{n:.1f}{unit}"
        n /= 1000
    return f"{n:,.1f} T"


def _rows(status: TableStatus, full: bool) -> str:
    """The rows read so far, and the estimated total."""
    rows = f"{status.scanned_rows:,}" if full else short(status.scanned_rows)
    if status.state in ("filling", "paused") and status.rows_estimate:
        return f"{rows} of ≈ {short(status.rows_estimate)}"
    return rows


def _rate(status: TableStatus, full: bool) -> str:
    if not status.rate:
        return ""
    return f"{status.rate:,.0f}/s" if full else f"{short(status.rate)}/s"


def _bar(status: TableStatus) -> float:
    """The length of the bar: a live table is full even if it has no spans to count."""
    return 1.0 if status.state == "live" else status.covered
