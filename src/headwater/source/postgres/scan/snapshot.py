"""What a PostgreSQL scan saw: a snapshot that can be tested against many transactions at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`pg_current_snapshot()`: below `xmin` all have ended, from `xmax` on none have, `xip` were running in between.

    All numbers are 64-bit top-level transaction ids, so 32-bit wraparound does not matter.
    """

    xmin: int
    xmax: int
    xip: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses the database's own form, `xmin:xmax:xip1,xip2`."""
        xmin, xmax, xip = text.split(":")
        return cls(int(xmin), int(xmax), tuple(sorted(int(x) for x in xip.split(",") if x)))

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.xip))}"

    @property
    def txn_min(self) -> int:
        """Every transaction below it was seen; a changelog needs to be searched only from here."""
        return self.xmin

    def sees(self, txn: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each committed transaction, whether the scan saw its effects."""
        running = np.isin(txn, np.asarray(self.xip, np.int64)) if self.xip else np.zeros(len(txn), np.bool_)
        seen: NDArray[np.bool_] = (txn < self.xmin) | ((txn < self.xmax) & ~running)
        return seen


def sees(saw: str, txn: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each transaction, whether the scan that recorded `saw` saw it: what the backfill rule needs to know."""
    return _parsed(saw).sees(txn)


@lru_cache(maxsize=4096)
def _parsed(saw: str) -> Snapshot:
    return Snapshot.parse(saw)
