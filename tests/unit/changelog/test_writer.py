"""A retry sends what the first try sent: the same rows under the same indexes, and nothing that came since."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from headwater.changelog import writer as writer_module
from headwater.errors import HeadwaterError, MachineError, Retry
from headwater.meta import segments
from headwater.ownership.lease import acquire
from support.log import Log
from support.messages import begin, commit, inbox, keepalive, relation, row

SHORT_S = 0.5  # a lease that expires while a test waits
BATCHES = (
    (begin(101), relation(1, "a"), row("I", 1), row("U", 1), commit(200)),
    (begin(102), relation(1, "a", "b"), row("I", 1), relation(2, "x"), row("D", 2), commit(300), keepalive(310)),
    (begin(103), row("I", 1), row("I", 2)),  # a piece of an open transaction
    (row("I", 1), commit(400)),
)


def published(log: Log) -> list[tuple[int, int, bytes]]:
    """First and last index and the bytes of every segment."""
    with log.home.meta.read() as c:
        found = segments.in_range(c, log.id, 0, log.info().last_index)
    return [(s.first_index, s.last_index, (log.home.path / s.path).read_bytes()) for s in found]


@pytest.mark.parametrize("after_commit", [False, True], ids=["refused", "answer lost"])
def test_a_batch_that_is_written_again_is_the_same_batch_to_the_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_commit: bool
) -> None:
    plain, retried = Log(tmp_path / "plain"), Log(tmp_path / "retried")
    for batch in BATCHES:
        plain.write(*batch)
    publish = segments.publish
    fail = [True]

    def failing(c: sa.Connection, *arguments: object, **named: object) -> None:
        if fail[0] and not after_commit:
            raise sa.exc.OperationalError("INSERT", {}, Exception("meta is away"))
        publish(c, *arguments, **named)  # type: ignore[arg-type]
        if fail[0]:
            c.commit()
            raise sa.exc.OperationalError("COMMIT", {}, Exception("meta is away"))

    monkeypatch.setattr(writer_module.segments, "publish", failing)
    for batch in BATCHES:
        for fail[0] in (True, False):
            data = inbox(list(batch)).arrays()
            if fail[0]:
                with pytest.raises(MachineError):
                    retried.writer.write(*data)
            else:
                retried.writer.write(*data)
    assert published(retried) == published(plain)
    assert retried.names(1) == plain.names(1)
    assert retried.info().position == plain.info().position
    assert retried.writer.position == plain.writer.position == retried.info().resume_position
    for log in (plain, retried):
        log.home.meta.close()


def test_a_writer_whose_lease_expires_while_meta_is_away_gives_up_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it tries again; after that another capture may be waiting for the upstream's log."""
    log = Log(tmp_path)
    with log.home.meta.write() as c:
        lease = acquire(c, log.lease.name, log.lease.owner, lasts_s=SHORT_S)
    assert lease is not None
    log.lease = lease
    log.writer = log.flow()

    def away(_: object) -> None:
        raise MachineError("meta.unreachable", "meta is away", "Start it.", Retry.AUTO)

    told: list[HeadwaterError | None] = []
    thread = writer_module.WriterThread(log.writer, lambda: None, told.append)
    filled = inbox(list(BATCHES[0]))
    with monkeypatch.context() as patch:
        patch.setattr(log.home.meta, "owned", away)
        thread.hand_over(filled, filled.count, filled.size)
        assert thread.wait_idle(30)
        with pytest.raises(MachineError, match="expired") as e:
            thread.check()
        assert (e.value.code, e.value.retry) == ("meta.unreachable", "auto")
    assert told and all(t is not None and t.message == "meta is away" for t in told), "it tried while it could"
    thread.stop()
    assert log.info().last_index == 0
    log.home.meta.close()
