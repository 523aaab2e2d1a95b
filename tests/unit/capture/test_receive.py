"""The capture's loop: where it cuts, what it acknowledges, where it ends. The upstream is a script of messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.capture.receive import Heartbeat, Receiver
from headwater.capture.until import Until
from headwater.changelog.writer import WriterThread
from headwater.errors import FencedError, SourceError
from headwater.meta import segments
from headwater.settings.table import DEFAULTS, Settings
from headwater.source.base import Inbox
from headwater.source.postgres.client.session import int_to_lsn, lsn_to_int
from headwater.source.postgres.frame import PostgresFraming
from support.log import Log
from support.messages import begin, commit, keepalive, relation, row
from support.owned import taken_over
from support.wait import wait_for

FIRST = (begin(101), relation(1, "a"), row("I", 1), commit(200))


class Script:
    """A `source.base.Log` that gives one batch of messages per `receive`, and ends the loop after the last."""

    framing = PostgresFraming()

    def __init__(self, log: Log, batches: list[tuple[bytes, ...]]) -> None:
        self._log = log
        self._batches = batches
        self.thread: WriterThread | None = None
        self.stopping = threading.Event()
        self.acknowledged: list[str] = []
        self.beaten = threading.Event()
        self.refuses: SourceError | None = None

    def receive(self, into: Inbox, until: float, limit: int) -> None:
        assert self.thread is not None
        assert self.thread.wait_idle(30)  # what was handed over is published: each batch is cut by itself
        if self._batches:
            into.extend(self._batches.pop(0))
        else:
            self.stopping.set()

    def acknowledge(self, position: str, *, ask: bool = False) -> None:
        durable = lsn_to_int(self._log.info().position)
        assert lsn_to_int(position) <= durable, "the upstream may forget only what meta has"
        self.acknowledged.append(position)

    def beat(self) -> None:
        self.beaten.set()
        if self.refuses is not None:
            raise self.refuses

    def now(self) -> tuple[str, int]:
        return int_to_lsn(10**6), 10**15

    def wake(self) -> None:
        return


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    it = Log(tmp_path)
    yield it
    it.home.meta.close()


def run(
    log: Log, batches: list[tuple[bytes, ...]], until: Until | None = None, flush_bytes: int = DEFAULTS.flush_bytes
) -> tuple[Script, Receiver]:
    settings = Settings(flush_interval_s=0.0, flush_bytes=flush_bytes)  # every look is due
    script = Script(log, batches)
    script.thread = WriterThread(log.writer, lambda: None, lambda _: None)
    receiver = Receiver(script, script.thread, Heartbeat(script, 0), script.stopping, until, settings=settings)
    try:
        receiver.run()
        assert script.thread.wait_idle(30)
        script.thread.check()
    finally:
        script.thread.stop()
    return script, receiver


def held(log: Log) -> list[tuple[int, int]]:
    with log.home.meta.read() as c:
        return [(s.first_index, s.last_index) for s in segments.in_range(c, log.id, 0, 10**9)]


def test_whole_transactions_are_published_and_then_acknowledged(log: Log) -> None:
    script, _ = run(log, [FIRST, (begin(102), *(row("U", 1),) * 3), (row("D", 1), commit(300)), ()])
    assert held(log) == [(1, 1), (2, 5)], "a small transaction is not cut"
    assert script.acknowledged[-1] == int_to_lsn(300) == log.info().resume_position


def test_a_transaction_that_fills_the_inbox_is_published_in_pieces(log: Log) -> None:
    batches = [(begin(101), relation(1, "a"), *(row("I", 1),) * 8), (row("I", 1),) * 8, (row("I", 1), commit(200)), ()]
    script, _ = run(log, batches, flush_bytes=200)
    assert len(held(log)) > 1 and held(log)[-1][1] == 17
    assert log.info().committed_index == 17
    assert set(script.acknowledged) <= {"0/64", int_to_lsn(200)}, "nothing inside a transaction is acknowledged"


def test_a_keepalive_between_the_pieces_of_a_transaction_moves_nothing(log: Log) -> None:
    pieces = (begin(101), relation(1, "a"), *(row("I", 1),) * 8)
    script, _ = run(log, [pieces, (keepalive(900),), (keepalive(900), *(row("I", 1),) * 2), ()], flush_bytes=200)
    assert held(log), "a piece is published"
    assert log.info().committed_index == 0
    assert set(script.acknowledged) == {"0/64"} and log.info().position == "0/64"


def test_keepalives_move_the_position_once_and_only_outside_a_transaction(log: Log) -> None:
    script, _ = run(log, [FIRST, (keepalive(250),), (keepalive(250),), (begin(102), row("I", 1), keepalive(900)), ()])
    assert log.info().position == int_to_lsn(250) and held(log) == [(1, 1)]
    assert script.acknowledged[-1] == int_to_lsn(250)
    assert log.info().resume_position == int_to_lsn(250)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("end", "last"), [(200, 1), (201, 1), (300, 2), (301, 2)])
def test_what_lies_beyond_the_end_that_was_asked_for_is_not_taken_in(
    log: Log, end: int, last: int, together: bool
) -> None:
    def ends(xid: int, lsn: int) -> bytes:
        """A begin that says where its transaction commits, as the server does."""
        made = bytearray(begin(xid))
        made[26:34] = (lsn - 1).to_bytes(8, "big")
        return bytes(made)

    first = (ends(101, 200), *FIRST[1:])
    second = (ends(102, 300), row("I", 1), commit(300))
    third = (ends(103, 400), row("I", 1), commit(400), keepalive(410))
    batches = [(*first, *second, *third), ()] if together else [first, second, third, ()]
    _, receiver = run(log, batches, Until(int_to_lsn(end), None))
    assert receiver.reached and log.info().committed_index == last


def test_a_capture_that_lost_its_lease_ends_and_acknowledges_nothing_more(log: Log) -> None:
    with log.home.meta.write() as c:
        taken_over(c, log.lease.name)
    script = Script(log, [FIRST, ()])
    script.thread = WriterThread(log.writer, lambda: None, lambda _: None)
    receiver = Receiver(script, script.thread, Heartbeat(script, 0), script.stopping)
    with pytest.raises(FencedError):
        receiver.run()
    script.thread.stop()
    assert set(script.acknowledged) <= {"0/64"} and held(log) == []


def test_a_heartbeat_beats_and_what_the_log_lost_ends_the_capture(log: Log) -> None:
    script = Script(log, [])
    script.refuses = SourceError("source.publication_missing", "it was dropped", "RESYNC TABLE t;")
    heartbeat = Heartbeat(script, 0.001)
    assert script.beaten.wait(30)

    def told() -> bool:
        try:
            heartbeat.check()
        except SourceError:
            return True
        return False

    wait_for(told, "the refusal is told", 30)
    heartbeat.stop()


def test_a_capture_that_is_paused_publishes_no_new_transaction_but_ends_the_one_that_is_open(log: Log) -> None:
    paused = threading.Event()
    paused.set()
    script = Script(log, [FIRST])
    script.thread = WriterThread(log.writer, lambda: None, lambda _: None)
    settings = Settings(flush_interval_s=0.0)
    extended: list[None] = []
    receiver = Receiver(
        script,
        script.thread,
        Heartbeat(script, 0),
        script.stopping,
        extend_deadline=lambda: extended.append(None),
        settings=settings,
        paused=paused,
    )
    thread = threading.Thread(target=receiver.run)
    thread.start()
    try:
        wait_for(lambda: len(script.acknowledged) > 1, "the upstream hears from it while it waits")
        kept = len(extended)
        wait_for(lambda: len(extended) > kept, "so does the server", 30)
        assert log.info().last_index == 0
        paused.clear()
        wait_for(lambda: log.info().last_index == 1, "it goes on")
    finally:
        script.stopping.set()
        thread.join(30)
        script.thread.stop()


def test_a_capture_that_is_paused_notices_that_its_writer_has_died(log: Log) -> None:
    paused = threading.Event()
    paused.set()
    script = Script(log, [FIRST])
    script.thread = writer = WriterThread(log.writer, lambda: None, lambda _: None)

    def die_later() -> None:
        if script.acknowledged:  # so it is waiting
            writer._failure = FencedError("job.fenced", "another capture has taken over")

    receiver = Receiver(
        *(script, writer, Heartbeat(script, 0), script.stopping),
        extend_deadline=die_later,
        settings=Settings(flush_interval_s=0.0),
        paused=paused,
    )
    with pytest.raises(FencedError):
        receiver.run()
    writer.stop()


def test_a_capture_that_is_stopped_while_it_is_paused_publishes_nothing(log: Log) -> None:
    paused = threading.Event()
    paused.set()
    script = Script(log, [FIRST])
    script.thread = writer = WriterThread(log.writer, lambda: None, lambda _: None)

    def stop_later() -> None:
        if script.acknowledged:  # so it is waiting
            script.stopping.set()

    Receiver(
        *(script, writer, Heartbeat(script, 0), script.stopping),
        extend_deadline=stop_later,
        settings=Settings(flush_interval_s=0.0),
        paused=paused,
    ).run()
    assert writer.wait_idle(30)
    writer.stop()
    assert log.info().last_index == 0, "it comes again after the next start"


def test_a_capture_that_is_paused_notices_what_the_log_has_lost(log: Log) -> None:
    paused = threading.Event()
    paused.set()
    script = Script(log, [FIRST])
    script.thread = writer = WriterThread(log.writer, lambda: None, lambda _: None)
    heartbeat, waits = Heartbeat(script, 0), list[int]()

    def lose_later() -> None:
        if script.acknowledged:  # so it is waiting
            waits.append(1)
            if len(waits) > 2:
                script.stopping.set()  # it has not noticed
            heartbeat._failure = SourceError("source.publication_missing", "it was dropped", "RESYNC TABLE t;")

    receiver = Receiver(
        *(script, writer, heartbeat, script.stopping),
        extend_deadline=lose_later,
        settings=Settings(flush_interval_s=0.0),
        paused=paused,
    )
    with pytest.raises(SourceError):
        receiver.run()
    writer.stop()
    assert log.info().last_index == 0


def test_an_open_transaction_is_received_to_its_end_though_the_capture_is_paused(log: Log) -> None:
    """Nobody can fold a part of it, so waiting inside it would never end."""
    paused = threading.Event()
    rows = [row("I", 1) for _ in range(8)]
    pieces = [(begin(101), relation(1, "a"), *rows[:4]), (*rows[4:],), (commit(200),)]
    script = Script(log, pieces)
    script.thread = WriterThread(log.writer, lambda: paused.set(), lambda _: None)  # with the first piece it is paused
    settings = Settings(flush_interval_s=0.0, flush_bytes=1)
    Receiver(script, script.thread, Heartbeat(script, 0), script.stopping, settings=settings, paused=paused).run()
    script.thread.stop()
    assert paused.is_set() and log.info().committed_index == 8
