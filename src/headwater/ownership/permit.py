"""Permits: the owner's fence is part of the name of every file written for it.

A task can outlive its server, on any machine, and Spark can repeat a task while the first attempt still runs. Nothing
waits for them: a file counts only once its owner has recorded it, and a later owner deletes the others by their fence.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from headwater.ownership.names import Name

_NAME = re.compile(r"(?P<label>.+)-f(?P<fence>\d+)-[0-9a-f]{32}\.\w+")
# Names that earlier versions used. Only segments of captures had a fence.
_EARLIER = (
    re.compile(r"(?P<label>\d{20})-(?P<fence>\d+)(?:-[0-9a-f]+)?\.arrow"),
    re.compile(r"(?P<label>scan-\d+|fold)-[0-9a-f]{32}\.parquet"),
    re.compile(r"(?P<label>merged-\d{20}-\d{20}|\d{20}-\d{20})-[0-9a-f]{8}\.(?:arrow|parquet)"),
)


@dataclass(frozen=True, slots=True)
class Permit:
    """The right to write files for an owner. It travels with the task."""

    name: Name  # of what the owner owns
    fence: int

    def new_file(self, label: str, suffix: str) -> str:
        """A file name that no other attempt uses; the label says what the file belongs to."""
        return f"{label}-f{self.fence}-{uuid.uuid4().hex}.{suffix}"


@dataclass(frozen=True, slots=True)
class Written:
    """The label and fence in the name of a file written under a permit."""

    label: str
    fence: int


def written(path: str) -> Written | None:
    """Label and fence of a file that was written under a permit; None for any other file."""
    name = path.rpartition("/")[2]
    for pattern in (_NAME, *_EARLIER):
        if match := pattern.fullmatch(name):
            return Written(match["label"], int(match.groupdict().get("fence") or 0))
    return None
