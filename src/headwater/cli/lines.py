"""What a run prints without a terminal: few lines, each of them news."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from headwater.cli.render import count, visible
from headwater.cli.words import covered, way_out, who
from headwater.engine.results import TableStatus
from headwater.engine.status.progress import about, percent

INTERVAL_S = 5.0  # seconds between two lines about tables in progress
FEW = 3  # up to this many tables have a line each; more are summarized
ENDS = ("live", "failed")


class Lines:
    """Prints what has changed: errors immediately, everything else every few seconds and when all tables are done."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._known: dict[str, tuple[str, str, str]] = {}
        self._news: dict[str, TableStatus] = {}
        self._said_at = float("-inf")

    def update(self, tables: Sequence[TableStatus]) -> None:
        # an error that many tables of a connection share is printed once
        failing: dict[tuple[str, str, str], list[TableStatus]] = {}
        for table in tables:
            now = (table.state, table.code or table.error, table.hint)  # a retry may fail at another file
            if self._known.get(table.name) == now:
                continue
            self._known[table.name] = now
            if table.error:
                failing.setdefault((table.connection, table.error, way_out(table)), []).append(table)
            else:
                self._news[table.name] = table
        for (_, error, hint), found in failing.items():
            self._say(line(found[0]) if len(found) == 1 else shared([t.name for t in found], error, hint))
        moving = [t for t in tables if t.state not in ENDS]
        due = time.monotonic() - self._said_at >= INTERVAL_S
        if (due and any(t.state == "filling" and not t.error for t in moving)) or (self._news and (due or not moving)):
            self._sum_up(tables)

    def _sum_up(self, tables: Sequence[TableStatus]) -> None:
        if len(tables) > FEW:
            self._say(summary(tables))
        else:
            for table in tables:
                if table.name in self._news or (table.state == "filling" and not table.error):
                    self._say(line(table))
        self._news.clear()
        self._said_at = time.monotonic()


def line(status: TableStatus) -> str:
    """One table as one line of plain text."""
    parts = [status.state]
    if status.waiting_for and not (status.error and status.error in status.waiting_for):
        parts.append(f"for {status.waiting_for}" if status.state == "waiting" else f"waits for {status.waiting_for}")
    if status.state in ("filling", "paused") and status.spans_total:
        parts += [covered(status), f"{status.spans_done} of {count(status.spans_total, 'span')}"]
    if status.scanned_rows:
        parts.append(f"{count(status.scanned_rows, 'row')} scanned")
    if status.state == "filling" and status.rate:
        parts.append(f"{status.rate:,.0f} rows/s")
    if status.left_s is not None:
        parts.append(f"{about(status.left_s)} left")
    text = f"{status.name}: {', '.join(parts)}"
    if status.error:
        text += f": {status.error}" + (f"\n  → {way_out(status)}" if status.hint else "")
    return "\n".join(visible(part) for part in text.split("\n"))


def shared(names: Sequence[str], error: str, hint: str) -> str:
    """An error that several tables share, as plain text."""
    text = f"{who(names)}: {error}" + (f"\n  → {hint}" if hint else "")
    return "\n".join(visible(part) for part in text.split("\n"))


def summary(tables: Sequence[TableStatus]) -> str:
    """Many tables as one line of plain text: the number in each state, and what the first of them waits for."""
    states = Counter(t.state for t in tables)
    parts = [f"{n:,} {state}" for state, n in states.most_common()]
    if any(t.state not in ENDS for t in tables):
        parts.append(f"{percent(sum(1.0 if t.state == 'live' else t.covered for t in tables) / len(tables))} covered")
    scanned, rate = sum(t.scanned_rows for t in tables), sum(t.rate for t in tables)
    if scanned:
        parts.append(f"{count(scanned, 'row')} scanned")
    if rate:
        parts.append(f"{rate:,.0f} rows/s")
    waiting = next((t for t in tables if t.waiting_for and t.state not in ENDS), None)
    views = sum(t.kind != "table" for t in tables)
    counted = [count(len(tables) - views, "table"), *([count(views, "view")] if views else [])]
    text = f"{' and '.join(counted)}: {', '.join(parts)}"
    return visible(text if waiting is None else f"{text}; {waiting.name} waits for {waiting.waiting_for}")
