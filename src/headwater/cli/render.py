"""Results and errors as text: a table for people, JSON and CSV for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TextIO

import pyarrow as pa
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from headwater.cli.values import distinct_names, plain
from headwater.engine.results import Result
from headwater.errors import HeadwaterError, SqlError

SHOWN_ROWS = 1_000  # nobody reads more on a screen; CSV and JSON have all rows
LINE_WINDOW = 100  # how much of a long line an error shows
NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def table(result: Result) -> RenderableType:
    """The rows as a table: numbers right-aligned, NULL dim, control characters visible."""
    assert result.rows is not None
    if result.rows.shape == (1, 1) and "\n" in shown(plain(result.rows.column(0))[0]):
        return _cell(plain(result.rows.column(0))[0])  # a plan or a statement: text to read or copy
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for name, kind in zip(result.columns, result.types, strict=True):
        justify: Any = "right" if kind.upper().startswith(NUMBERS) else "left"
        grid.add_column(Text(visible(name)), justify=justify, overflow="fold")
    part = result.rows.slice(0, SHOWN_ROWS)
    for row in zip(*(plain(c) for c in part.columns), strict=True):
        grid.add_row(*(_cell(v) for v in row))
    return Group(_Fitting(grid, result.columns, part), Text(_footer(result.rows.num_rows), style="dim"))


@dataclass(frozen=True, slots=True)
class _Fitting:
    """A grid or, if it is too wide for the screen, its rows one below the other."""

    grid: Table
    columns: tuple[str, ...]
    rows: pa.Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.grid.__rich_measure__(console, options.update(max_width=1 << 15)).minimum <= options.max_width:
            yield self.grid
            return
        for number, row in enumerate(zip(*(plain(c) for c in self.rows.columns), strict=True), 1):
            yield Text(f"── row {number} ──", style="dim")
            record = Table.grid(padding=(0, 2))
            for name, value in zip(self.columns, row, strict=True):
                record.add_row(Text(visible(name), style="bold"), _cell(value))
            yield record


def write_json(result: Result, out: TextIO) -> None:
    """One array of row objects, one row per line."""
    assert result.rows is not None
    names = distinct_names(result.columns)
    out.write("[")
    for i, row in enumerate(_rows(result)):
        text = json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, allow_nan=False)
        out.write(("\n " if i == 0 else ",\n ") + text)
    out.write("\n]\n" if result.rows.num_rows else "]\n")


def write_csv(result: Result, out: TextIO) -> None:
    """RFC 4180 with a header, but lines end with a line feed only; NULL is empty and an empty string is two quotes."""
    out.write(",".join(_field(name) for name in result.columns) + "\n")
    for row in _rows(result):
        out.write(",".join("" if v is None else _field(shown(v)) for v in row) + "\n")


def error(problem: HeadwaterError) -> RenderableType:
    """What went wrong, where, the hint and the code."""
    first, *rest = problem.message.splitlines() or [""]
    parts: list[RenderableType] = [Text.assemble(("✗ ", "bold red"), visible(first))]
    parts += [Text("  " + visible(line)) for line in rest]
    if isinstance(problem, SqlError) and problem.text:
        parts.append(_place(problem.text, problem.column))
    if problem.hint:
        parts.append(Text.assemble(("  → ", "bold cyan"), visible(problem.hint)))
    parts.append(Text(f"    {problem.code}", style="dim"))
    return Group(*parts)


def warning(text: str) -> RenderableType:
    return Text.assemble(("⚠ ", "bold yellow"), visible(text))


def done(text: str) -> RenderableType:
    return Text.assemble(("✓ ", "bold green"), visible(text))


def console(file: TextIO) -> Console:
    """A console that wraps only on a terminal: in a file or a pipe a row stays one line."""
    terminal = file.isatty()
    return Console(file=file, width=None if terminal else 1 << 15, highlight=False, markup=False, emoji=False)


def visible(text: str) -> str:
    """The text with control characters as escapes: a value cannot control the terminal."""
    return _CONTROL.sub(lambda m: _NAMED.get(m.group(), f"\\x{ord(m.group()):02x}"), text)


def shown(value: Any) -> str:
    """A plain value as text; nested values are JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def count(n: float, word: str) -> str:
    """`1 row`, `1,234 rows`."""
    return f"{n:,.0f} {word}{'' if n == 1 else 's'}"


def _rows(result: Result) -> Iterable[tuple[Any, ...]]:
    """The rows as tuples, batch by batch: a large result needs no second copy."""
    assert result.rows is not None
    for batch in result.rows.to_batches(max_chunksize=10_000):
        yield from zip(*(plain(c) for c in batch.columns), strict=True)


def _cell(value: Any) -> Text:
    if value is None:
        return Text("NULL", style="dim")
    return Text("\n".join(visible(line) for line in shown(value).split("\n")))


def _footer(rows: int) -> str:
    if rows <= SHOWN_ROWS:
        return count(rows, "row")
    return f"{count(rows, 'row')}, the first {SHOWN_ROWS:,} shown (--format csv or json prints all)"


def _field(text: str) -> str:
    if text == "" or any(c in text for c in ',"\r\n') or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text


def _place(line: str, column: int) -> RenderableType:
    """The line with a caret under the column; a long line is truncated around it."""
    begin = max(0, column - 1 - LINE_WINDOW * 3 // 4)
    part = line[begin : begin + LINE_WINDOW].expandtabs(1)
    lead = "…" if begin else ""
    tail = "…" if begin + LINE_WINDOW < len(line) else ""
    before = cell_len(lead + visible(part[: column - 1 - begin]))
    return Group(Text(f"    {lead}{visible(part)}{tail}"), Text(" " * (4 + before) + "^", style="bold red"))
