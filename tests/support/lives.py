"""The model database with crashes: commits that were not on disk yet are undone, and their numbers are reused.

That is how `synchronous_commit = off` works: a transaction is visible before its commit is durable. What the log holds
was durable before it was sent. A scan survives a crash only if the log had passed it; all others are discarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from support.history import Key, Model

WEIGHTS = {"begin": 6, "write": 14, "truncate": 1, "commit_record": 6, "end": 5, "scan": 4, "capture": 2, "crash": 1}


class MortalModel(Model):
    """A database that can crash. `wal` is its log of commits and aborts; the capture has read `captured` of them."""

    def __init__(self, keys: Sequence[Key], place: dict[Key, int], first_xid: int, rows: dict[Key, int]) -> None:
        super().__init__(keys, place, first_xid, rows)
        self.first_xid = first_xid
        self.wal: list[tuple[bool, int]] = []  # committed, xid
        self.captured = 0
        self.high: dict[int, int] = {}  # span → the length of `wal` when it was scanned
        self.undone = 0

    def commit_record(self, who: int) -> None:
        before = len(self.commits)
        super().commit_record(who)
        if len(self.commits) > before:
            self.wal.append((True, self.log[-1].txn))

    def end(self, who: int) -> None:
        if self.running and not (txn := self.running[who % len(self.running)]).logged:
            self.wal.append((False, txn.xid))
        super().end(who)

    def scan(self, span: int) -> None:
        before = len(self.scans)
        super().scan(span)
        if len(self.scans) > before:
            self.high[span] = len(self.wal)

    def capture(self) -> None:
        """The capture reads everything available: all of it is durable from now on."""
        self.captured = len(self.wal)

    def crash(self, lost: int, *, forget: bool = True) -> None:
        """Loses up to `lost` of the last records, but never one that was captured.

        `forget`: scans that the log has not passed go back to pending, as the rule for another life demands.
        """
        kept = max(self.captured, len(self.wal) - lost)
        self.undone += len(self.wal) - kept
        commits = sum(committed for committed, _ in self.wal[:kept])
        index = self.index_at(commits)
        self.wal = self.wal[:kept]
        self.log = [c for c in self.log if c.index <= index]
        self.commits, self.first_index, self._index = self.commits[:commits], self.first_index[:commits], index
        self.running = []
        self.visible = self.state_at(commits)
        self.next_xid = max((xid for _, xid in self.wal), default=self.first_xid - 1) + 1
        if forget:
            self.scans = {s: scan for s, scan in self.scans.items() if self.high[s] <= self.captured}


def play(model: MortalModel, seed: int, spans: int) -> None:
    """A long random history with crashes; then everything ends, and the rest is scanned."""
    random = Random(seed)
    for name in random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=random.randint(30, 200)):
        who, key = random.randrange(4), random.choice(model.keys)
        if name == "write":
            other = random.choice(model.keys) if random.random() < 0.3 else key
            model.write(who, key, other, None if random.random() < 0.3 else random.randrange(10))
        elif name == "scan":
            model.scan(random.randrange(spans))
        elif name == "crash":
            model.crash(random.randrange(6))
        elif name in ("begin", "capture"):
            getattr(model, name)()
        else:
            getattr(model, name)(who)
    while model.running:
        model.end(0)
    for span in range(spans):
        model.scan(span)
