"""Named crash points: places at which a fault test kills the process like `kill -9`.

`HEADWATER_CRASH=name` kills the first time the point is reached, `name:N` the Nth time. With `name:N:PATH` only one of
several processes dies: the one that creates the directory.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

from headwater import config

POINTS: dict[str, str] = {
    "capture.cut_back": "a half-captured transaction is deleted from meta; its files still exist",
    "capture.connected": "the slot is ours and the flow has begun; nothing was received",
    "transaction.half": "a piece of an open transaction is published",
    "segment.torn": "a segment file is half written",
    "segment.written": "a segment is durable but not published",
    "segment.published": "a segment is published but not acknowledged to the upstream",
    "position.published": "idle progress is in meta but not acknowledged to the upstream",
    "slot.created": "slot and publication exist upstream; meta does not know",
    "publication.altered": "a table is published; nothing of it is planned",
    "plan.half": "some of a table's spans are planned",
    "scan.half": "a scan has read part of its span",
    "scan.written": "a scan's files are written; meta does not know",
    "scan.recorded": "a scan is in meta; its files are not in the base",
    "cover.decided": "the intent to add a scan's files to the base is in meta",
    "cover.added": "a scan's files are in the base; meta does not know",
    "cover.recorded": "a span is covered",
    "fold.decided": "the intent to fold is in meta; nothing is merged",
    "fold.given_up": "a fold is given up in the base's log; meta does not know",
    "fold.merged": "a fold is in the base; meta does not know",
    "run.written": "a run is written; meta does not know",
    "segments.merged": "a merged segment is written; meta does not know",
    "base.upkept": "a base has been rewritten; meta does not know",
    "view.slice_written": "a slice of a view's fill is written; meta does not know",
    "view.slice_recorded": "a slice is in meta; its files are not in the view's base",
    "view.run_written": "the run of a view's refresh is written; meta does not know",
    "view.published": "a view has a new version",
    "view.swapped": "a view that was filled again is about to take the place of the old one",
    "epoch.half": "an epoch is written but its transaction has not ended",
    "epoch.published": "an epoch is published",
}

_reached: Counter[str] = Counter()


def here(name: str) -> None:
    """Dies here if a fault test asked for it; otherwise costs nothing measurable."""
    assert name in POINTS, f"unknown crash point {name}"
    wanted = config.crash_point()
    if wanted is None:
        return
    point, _, rest = wanted.partition(":")
    if point == name:
        nth, _, once = rest.partition(":")
        _reached[name] += 1
        if _reached[name] >= int(nth or 1) and (not once or _first(once)):
            os.kill(os.getpid(), signal.SIGKILL)


def _first(once: str) -> bool:
    """Whether this process is the first to create the directory."""
    try:
        os.mkdir(once)  # noqa: PTH102  `Path` is for files of the lake
    except FileExistsError:
        return False
    return True


def scan_hook(name: str) -> None:
    """The hook of a scan in a Spark task: kills the worker in the middle of a span."""
    if name == "scan.batch":
        here("scan.half")
