"""`headwater settings`: every setting, its value, where it was set and its meaning."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.cli import render
from headwater.engine.home import is_home
from headwater.engine.results import Result
from headwater.engine.serve.remote import find
from headwater.errors import HeadwaterError
from headwater.settings.load import NOTHING, Given, load
from headwater.settings.table import Line, SetBy, lines, unset

COLUMNS = ("setting", "value", "from", "meaning")


def settings(home: Path, given: Given, *, quiet: bool) -> dict[str, Any]:
    """Prints the settings in force; returns the envelope's result.

    These are the running server's, and what a restart would change, because the file or the environment is different by
    now. If none runs, or the command has its own options, they are what a server started with them would use.
    """
    server = find(home) if given == NOTHING else None
    found = server.settings() if server is not None else list(lines(load(home, given)))
    changed, refusal = ([], None) if server is None else _changed(found, home, server.given())
    if not quiet:
        if not is_home(home):
            missing = f"there is no home in {home}; these are the settings of a new one"
            render.console(sys.stderr).print(render.warning(missing))
        render.console(sys.stdout).print(render.table(_rows(found)))
        _tell(changed, refusal)
    return {
        "home": str(home),
        "running": server is not None,
        "settings": [line.as_dict() for line in found],
        "changed": [after.as_dict() for _, after in changed],
        "refusal": None if refusal is None else refusal.as_dict(),
    }


def _changed(used: list[Line], home: Path, given: Given) -> tuple[list[tuple[Line, Line]], HeadwaterError | None]:
    """Each setting that a server started from here with the same command line would use differently, before and after.

    Or why such a server would not start.
    """
    try:
        after = {line.name: line for line in lines(load(home, given))}
    except HeadwaterError as e:
        return [], e
    before = {line.name: line for line in used}
    names = [*before, *(name for name in after if name not in before)]
    pairs = [(before.get(name) or _unset(after[name]), after.get(name) or _unset(before[name])) for name in names]
    return [(old, new) for old, new in pairs if old.value != new.value], None


def _unset(line: Line) -> Line:
    """The same setting without a value: one of Spark's own, which is listed only where it is set."""
    return replace(line, value="", set_by=SetBy.DEFAULT, location="")


def _tell(changed: list[tuple[Line, Line]], refusal: HeadwaterError | None) -> None:
    err = render.console(sys.stderr)
    if refusal is not None:
        err.print(render.warning(f"the server could not be restarted from here: {refusal.message}"))
    for old, new in changed:
        after = f"a restart from here would use {_value(new)} ({_set_by(new)})"
        err.print(render.warning(f"{old.name}: the server uses {_value(old)} ({_set_by(old)}), {after}"))


def _rows(found: list[Line]) -> Result:
    cells = [(line.name, _value(line), _set_by(line), line.meaning) for line in found]
    columns = zip(*cells, strict=True)
    rows = pa.table({name: pa.array(column) for name, column in zip(COLUMNS, columns, strict=True)})
    return Result(COLUMNS, ("STRING",) * len(COLUMNS), rows)


def _value(line: Line) -> str:
    return line.value or unset(line.name)


def _set_by(line: Line) -> str:
    return line.location if line.set_by in (SetBy.FILE, SetBy.ENVIRONMENT) else str(line.set_by)
