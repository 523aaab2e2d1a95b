"""`headwater status`: the state of connections and tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headwater.cli import render
from headwater.cli.reach import open_home, reach
from headwater.cli.screen import STYLES, behind, notes, overview, size
from headwater.engine.results import ConnectionStatus, Status
from headwater.errors import MachineError
from headwater.settings.load import NOTHING, Given

REFRESH_S = 1.0


def status(home: Path, *, once: bool, quiet: bool, given: Given = NOTHING) -> dict[str, Any]:
    """Prints the status once, or shows it on a terminal until Ctrl-C; returns the envelope's result."""
    out = render.console(sys.stdout)
    if quiet or once or not out.is_terminal:
        with reach(home, given) as engine:
            found = engine.status()
        if not quiet:
            out.print(report(found, out.width))
        return found.as_dict()
    hw = open_home(home, given)
    try:
        return watch(out, hw.status, lambda: time.sleep(REFRESH_S)).as_dict()
    finally:
        hw.close()


def watch(out: Console, ask: Callable[[], Status], pause: Callable[[], None]) -> Status:
    """Refreshes the status until Ctrl-C; returns the last one."""
    found = ask()
    with Live(console=out, auto_refresh=False, vertical_overflow="ellipsis") as live:
        try:
            while True:
                live.update(report(found, out.width, out.height), refresh=True)
                pause()
                found = _again(ask, found)
        except KeyboardInterrupt:
            return found


def _again(ask: Callable[[], Status], before: Status) -> Status:
    """The current status or, while a server is shutting down, the previous one."""
    try:
        return ask()
    except MachineError as e:
        if e.code != "server.unreachable":
            raise
        return before


def report(found: Status, width: int = 120, height: int | None = None) -> RenderableType:
    """The whole status as text, for a screen of this size; without a height, all tables."""
    server = f"server {found.server_pid}" if found.server_pid else "no server runs"
    age = "" if found.epoch_age_s is None else f", {found.epoch_age_s:.1f} s old"
    head = Text(f"{found.home}: {server}, epoch {found.epoch}{age}")
    if not found.connections:
        return Group(head, Text("no connection is defined", style="dim"))
    said = {(c.name, c.error) for c in found.connections}  # a connection's error is not repeated for its tables
    tables = [replace(t, error="", hint="") if (t.connection, t.error) in said else t for t in found.tables]
    room = None if height is None else max(3, height - len(found.connections) - 7)
    failing = [*notes(found.jobs), Text()] if found.jobs else []
    return Group(head, Text(), _connections(found.connections), Text(), *failing, overview(tables, width, room))


def _connections(connections: tuple[ConnectionStatus, ...]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    for c in connections:
        grid.add_row(
            Text(render.visible(c.name), style="bold"),
            Text(c.state, style=STYLES.get(c.state, "")),
            Text(f"index {c.index:,}"),
            Text(f"position {c.position}" if c.position else "", style="dim"),
            Text("" if c.lag_s is None else f"lag {behind(c.lag_s, c.lag_bytes)}", style="dim"),
            Text(_kept(c), style="dim"),
        )
    return Group(grid, *notes(connections))


def _kept(c: ConnectionStatus) -> str:
    """How much log the upstream's slot retains for us, and the upstream's limit."""
    if c.slot_bytes is None:
        return ""
    limit = "" if c.slot_limit_bytes is None else f" of {size(c.slot_limit_bytes)}"
    return f"slot keeps {size(c.slot_bytes)}{limit}"
