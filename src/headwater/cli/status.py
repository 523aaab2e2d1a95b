"""`headwater status`: where connections and tables stand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headwater.cli import render
from headwater.cli.reach import reach
from headwater.cli.screen import STYLES, overview
from headwater.engine.results import ConnectionStatus, Status


def status(home: Path, *, quiet: bool) -> dict[str, Any]:
    """Prints the status; gives what the envelope says."""
    with reach(home) as engine:
        found = engine.status()
    if not quiet:
        render.console(sys.stdout).print(report(found))
    return found.as_dict()


def report(found: Status) -> RenderableType:
    """The whole status as text."""
    server = f"server {found.server_pid}" if found.server_pid else "no server runs"
    age = "" if found.epoch_age_s is None else f", {found.epoch_age_s:.1f} s old"
    head = Text(f"{found.home}: {server}, epoch {found.epoch}{age}")
    if not found.connections:
        return Group(head, Text("no connection is defined", style="dim"))
    return Group(head, Text(), _connections(found.connections), Text(), overview(found.tables))


def _connections(connections: tuple[ConnectionStatus, ...]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    notes: list[RenderableType] = []
    for c in connections:
        kept = "" if c.slot_bytes is None else f"slot keeps {c.slot_bytes / 1e6:,.1f} MB"
        grid.add_row(
            Text(render.visible(c.name), style="bold"),
            Text(c.state, style=STYLES.get(c.state, "")),
            Text(f"index {c.index:,}"),
            Text(f"position {c.position}", style="dim"),
            Text("" if c.lag_s is None else f"lag {c.lag_s:.1f} s", style="dim"),
            Text(kept, style="dim"),
        )
        if c.error:
            notes.append(Text.assemble(("✗ ", "bold red"), f"{render.visible(c.name)}: {render.visible(c.error)}"))
            if c.hint:
                notes.append(Text.assemble(("  → ", "bold cyan"), render.visible(c.hint)))
    return Group(grid, *notes)
