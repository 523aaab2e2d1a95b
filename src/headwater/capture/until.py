"""The place in an upstream's log at which `run --until` ends: a position, or a moment."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from headwater.errors import InputError
from headwater.source.base import EPOCH_S
from headwater.source.kinds import KINDS

EPOCH = datetime.datetime.fromtimestamp(EPOCH_S, datetime.UTC)


@dataclass(frozen=True, slots=True)
class Until:
    """Exactly one of the two: a position (transactions that committed before it are in), or microseconds since 2000."""

    position: str = ""
    time_us: int | None = None

    @classmethod
    def parse(cls, text: str) -> Until:
        """What a user writes: a position as SHOW CONNECTIONS shows it, or an ISO 8601 time (UTC if it has no zone)."""
        if any(kind.reads_position(text) for kind in KINDS.values()):
            return cls(position=text)
        try:
            moment = datetime.datetime.fromisoformat(text)
        except ValueError as e:
            raise InputError(
                "input.usage",
                f"`{text}` is neither a position nor a time",
                "Give a position as SHOW CONNECTIONS shows it, or a time like 2026-01-31T12:00:00+00:00.",
            ) from e
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
        return cls(time_us=int((moment - EPOCH) / datetime.timedelta(microseconds=1)))

    @property
    def text(self) -> str:
        """The text that `parse` accepts."""
        if self.time_us is None:
            return self.position
        return (EPOCH + datetime.timedelta(microseconds=self.time_us)).isoformat()
