"""`headwater sql`: statements from the command line, a file, a pipe or a shell."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from headwater.cli import envelope, render
from headwater.cli.reach import busy, reach
from headwater.engine.results import Result
from headwater.engine.running import Wanted
from headwater.engine.serve.remote import Answering
from headwater.errors import HeadwaterError, InputError
from headwater.settings.load import NOTHING, Given
from headwater.settings.values import seconds
from headwater.sql.parse import parse
from headwater.sql.statements import Statement
from headwater.sql.steps import steps

MOST_S = 30 * 86400.0  # of a duration option


def wanted_of(require_complete: bool, timeout: str, max_age: str, fresh: bool) -> Wanted:
    """What the options require of every query's result."""
    return Wanted(require_complete, _duration("--timeout", timeout), _duration("--max-age", max_age), fresh)


def run_sql(
    command: str | None, file: str | None, home: Path, *, format: str, wanted: Wanted, given: Given = NOTHING
) -> None:
    """Runs the given statements; starts a shell if there are none and this is a terminal."""
    if command is not None and file is not None:
        raise InputError("input.usage", "both -c and -f are given", "Give one of them.")
    if command is None and file is None and sys.stdin.isatty():
        from headwater.cli.shell import shell

        with reach(home, given) as engine:
            shell(engine, home, Printer(format), wanted)
        return
    text = command if command is not None else envelope.read_text(file) if file is not None else _stdin()
    statements = parse(text)  # parse everything before executing anything: a typo at the end changes nothing
    printer = Printer(format)
    if statements:
        with reach(home, given) as engine:
            run_statements(engine, statements, printer, wanted)
    printer.end()


def run_statements(engine: Answering, statements: list[Statement], printer: Printer, wanted: Wanted) -> None:
    """Runs statements one after the other and prints each result as it arrives; the first error ends it."""
    found = steps(statements)
    for number, step in enumerate(found, 1):
        try:
            with busy("…"):
                results = engine.ask(step.text, wanted)
        except HeadwaterError:
            if len(found) > 1:
                left = len(found) - number
                after = f"; {render.count(left, 'later statement')} not executed" if left else ""
                render.console(sys.stderr).print(render.warning(f"{step.location} failed{after}"))
            raise
        for result in results:
            printer.show(result)


@dataclass(slots=True)
class Printer:
    """Rows to stdout in one format; everything else, which programs must not read there, to stderr."""

    format: str
    arrays: int = 0

    def show(self, result: Result) -> None:
        err = render.console(sys.stderr)
        for text in (*result.warnings, *(str(b) for b in result.behind)):
            err.print(render.warning(text))
        if result.rows is not None:
            self._rows(result)
        if result.message:
            (render.console(sys.stdout) if self.format == "table" else err).print(render.done(result.message))
        sys.stdout.flush()

    def end(self) -> None:
        """JSON is an array even when no statement had rows."""
        if self.format == "json" and self.arrays == 0:
            sys.stdout.write("[]\n")

    def _rows(self, result: Result) -> None:
        if self.format == "json":
            self.arrays += 1
            render.write_json(result, sys.stdout)
        elif self.format == "csv":
            render.write_csv(result, sys.stdout)
        else:
            render.console(sys.stdout).print(render.table(result))


def _duration(option: str, text: str) -> float | None:
    """The value of a duration option; None if it is not given."""
    if not text:
        return None
    try:
        return float(seconds(0.001, MOST_S)(text))
    except ValueError as e:
        raise InputError("input.usage", f"{option} {e}", f"Write, for example, {option} 30s.") from e


def _stdin() -> str:
    try:
        return sys.stdin.read().removeprefix("\ufeff")
    except UnicodeDecodeError as e:
        raise InputError("input.file", "the input is not UTF-8 text", "Send UTF-8.") from e
