"""The model database as MySQL numbers it: a transaction's number is where it begins in the log.

What a scan saw is given by one place: everything that ends at or before it was visible. It may have seen more, which
is then applied again.
"""

from __future__ import annotations

from random import Random

from support.history import Model, Scan

FILE = 7  # of the log
EVENT_BYTES = 100  # of every transaction


class PlacedModel(Model):
    """A database whose log is a file of places. `late` is how many transactions a scan's place may lag behind."""

    late: Random | None = None

    def address_of(self, commits: int) -> int:
        """The number of the place after `commits` commits."""
        return FILE << 36 | (4 + commits * EVENT_BYTES)

    def commit_record(self, who: int) -> None:
        txn = self._open(who)
        if txn is not None and txn.writes:
            txn.xid = self.address_of(len(self.commits))
        super().commit_record(who)

    def scan(self, span: int) -> None:
        before = len(self.scans)
        super().scan(span)
        if len(self.scans) > before:
            scan = self.scans[span]
            saw = f"binlog.{FILE:06d}:{self.low() & ((1 << 36) - 1)}"
            self.scans[span] = Scan(scan.span, saw, scan.high, scan.rows)

    def low(self) -> int:
        """A place before which nothing is invisible."""
        proven = min((t.xid for t in self.running if t.logged), default=self.address_of(len(self.commits)))
        if self.late is None:
            return proven
        return max(self.address_of(0), proven - self.late.randrange(3) * EVENT_BYTES)
