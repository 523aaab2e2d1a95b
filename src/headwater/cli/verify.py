"""`headwater verify`: compares lake and upstream at one cut."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from headwater.cli import render
from headwater.cli.reach import busy, reach
from headwater.cli.words import who
from headwater.engine.results import Verified
from headwater.settings.load import NOTHING, Given


def verify(table: str | None, home: Path, *, quiet: bool, given: Given = NOTHING) -> tuple[list[dict[str, Any]], bool]:
    """Compares and prints; returns the envelope's result and whether everything compared was equal."""
    with reach(home, given) as engine, busy("comparing …"):
        found = engine.verify(table)
    if not quiet:
        out = render.console(sys.stdout)
        for verified in _said_once(found):
            out.print(report(verified))
        if not found:
            out.print(render.warning("there is no table to compare"))
    return [v.as_dict() for v in found], all(v.equal or v.skipped for v in found)


def _said_once(found: Sequence[Verified]) -> list[Verified]:
    """The comparisons; an error that several tables share (an unreachable upstream) appears once for all of them."""
    groups: dict[tuple[str, ...], list[Verified]] = {}
    for v in found:
        groups.setdefault((v.code, v.error, v.hint) if v.error else (v.table,), []).append(v)
    return [replace(group[0], table=who([v.table for v in group])) for group in groups.values()]


def report(v: Verified) -> RenderableType:
    """One table's comparison in words; keys only if rows differ."""
    if v.skipped:
        return render.warning(f"{v.table}: not compared: {v.skipped}")
    if v.error:
        what = Text.assemble(("✗ ", "bold red"), render.visible(f"{v.table}: could not be compared: {v.error}"))
        way_out = Text.assemble(("  → ", "bold cyan"), render.visible(v.hint))
        return Group(what, *([way_out] if v.hint else []), Text(f"    {v.code}", style="dim"))
    where = v.position or f"epoch {v.epoch}"  # a view has no position in a log
    if v.equal:
        return render.done(f"{v.table}: {render.count(v.lake_rows, 'row')} equal at {where} ({v.seconds:.1f} s)")
    head = f"{v.table}: {render.count(v.differences, 'row')} of {v.upstream_rows:,} differ at {where}"
    if not v.differences:
        head = (
            f"{v.table}: {v.upstream_rows:,} rows upstream and {v.lake_rows:,} in the lake differ at {where}; "
            "the table was truncated or rewritten before their keys could be listed"
        )
    parts: list[RenderableType] = [Text.assemble(("✗ ", "bold red"), render.visible(head))]
    sides = ("the upstream", "the lake") if v.position else ("the query's result", "the view")
    for words, keys in (
        (f"only in {sides[0]}", v.missing),
        (f"only in {sides[1]}", v.extra),
        ("different", v.different),
    ):
        if keys:
            parts.append(Text(f"    {words}: " + ", ".join(render.visible(k) for k in keys)))
    return Group(*parts)
