"""`headwater settings`: every setting, its value, where it was set and its meaning."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.cli import render
from headwater.engine.home import is_home
from headwater.engine.results import Result
from headwater.engine.serve.remote import find
from headwater.settings.load import NOTHING, Given, load
from headwater.settings.table import Line, SetBy, lines, unset

COLUMNS = ("setting", "value", "from", "meaning")


def settings(home: Path, given: Given, *, quiet: bool) -> dict[str, Any]:
    """Prints the settings in force; returns the envelope's result.

    These are the running server's. If none runs, or the command has its own options, they are what a server started
    with them would use.
    """
    server = find(home) if given == NOTHING else None
    found = server.settings() if server is not None else list(lines(load(home, given)))
    if not quiet:
        if not is_home(home):
            missing = f"there is no home in {home}; these are the settings of a new one"
            render.console(sys.stderr).print(render.warning(missing))
        render.console(sys.stdout).print(render.table(_rows(found)))
    return {"home": str(home), "running": server is not None, "settings": [line.as_dict() for line in found]}


def _rows(found: list[Line]) -> Result:
    cells = [(line.name, line.value or unset(line.name), _set_by(line), line.meaning) for line in found]
    columns = zip(*cells, strict=True)
    rows = pa.table({name: pa.array(column) for name, column in zip(COLUMNS, columns, strict=True)})
    return Result(COLUMNS, ("STRING",) * len(COLUMNS), rows)


def _set_by(line: Line) -> str:
    return line.location if line.set_by in (SetBy.FILE, SetBy.ENVIRONMENT) else str(line.set_by)
