"""A meta that commits and whose answer is lost: nobody loses anything, nobody does anything twice."""

from __future__ import annotations

import contextlib
import random
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from headwater.changelog import merge
from headwater.errors import MachineError
from headwater.meta import merged
from support.based import Based
from support.messages import keepalive
from support.upstreams import new_seed

STEPS = 80


@pytest.fixture(params=["sqlite", "postgres"])
def based(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Based]:
    if request.param == "postgres":
        monkeypatch.setenv("HEADWATER_META", request.getfixturevalue("database").dsn)
    made = Based(tmp_path / "home", random.Random(new_seed()))
    yield made
    made.meta.close()


@contextlib.contextmanager
def answers_lost() -> Iterator[None]:
    """What a loop does with the error: it comes by again."""
    with contextlib.suppress(sa.exc.OperationalError, MachineError, RuntimeError):
        yield


def test_every_writer_survives_answers_that_are_lost(based: Based, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "LEAST", 2)
    based.meta.lost, based.meta.failed, based.fails_after_commit = 0.3, 0.1, 0.3
    for _ in range(STEPS):
        based.rng.choice((write, write, scan, cover, fold, upkeep, publish, merge_segments))(based)
        versions = based.relation.base_version, based.layout
        assert versions[1] is None or versions[1].base_version <= versions[0]
    based.meta.lost = based.meta.failed = based.fails_after_commit = 0.0
    while based.scan():
        continue
    based.publish()
    for _ in range(2):  # the first may only end one that was decided before
        based.cover()
    based.committer.fold(based.id)
    based.committer.upkeep(based.id, based.rewrite)
    assert based.layout is not None and based.layout.settled
    assert based.layout.indexes == {1: len(based.states) - 1}
    assert based.intents() == []
    based.assert_exact()
    based.assert_changelog()


def write(based: Based) -> None:
    """A batch is tried until it is published, sometimes by another capture."""
    messages, last = based.batch(), len(based.states) - 1
    while True:
        with answers_lost():
            based.write(messages)
            return
        if based.rng.random() < 0.3:
            while True:
                with answers_lost():
                    based.restart_capture()
                    break
            if based.log.info().last_index == last:
                return


def scan(based: Based) -> None:
    with answers_lost():
        based.scan()


def cover(based: Based) -> None:
    with answers_lost():
        based.cover()


def fold(based: Based) -> None:
    with answers_lost():
        based.committer.fold(based.id)


def upkeep(based: Based) -> None:
    with answers_lost():
        based.committer.upkeep(based.id, based.rewrite)


def publish(based: Based) -> None:
    with answers_lost():
        based.publish()


def merge_segments(based: Based) -> None:
    with answers_lost():
        merge.merge_once(
            based.meta, based.home.storage, based.log.id, based.leases.server, now=time.time() + 61, age_s=60
        )


def test_a_published_segment_is_not_touched_by_the_retry_not_even_on_a_full_disk(tmp_path: Path) -> None:
    based = Based(tmp_path / "home", random.Random(1))
    messages = based.batch()
    based.meta.lost = 1.0
    with pytest.raises(sa.exc.OperationalError):
        based.write(messages)
    based.meta.lost = 0.0
    with based.meta.read() as c:
        (path,) = merged.paths(c)
    before = (based.home.path / path).stat()
    with full_disk(), pytest.raises((sa.exc.OperationalError, MachineError)):
        based.write(messages)
    based.write(messages)
    after = (based.home.path / path).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert list(based.home.storage.list("changelog")) == [path]
    based.assert_changelog()
    based.write(based.batch())
    based.assert_changelog()
    based.meta.close()


def test_what_was_not_published_is_published_by_the_retry_and_leaves_no_file(tmp_path: Path) -> None:
    """An idle position, too: who takes it for published tells the upstream to forget what meta does not have."""
    based = Based(tmp_path / "home", random.Random(1))
    for messages in (based.batch(), [keepalive(9_000_000)]):
        based.meta.failed = 1.0
        with pytest.raises(MachineError):
            based.write(messages)
        before = based.log.writer.position
        based.meta.failed = 0.0
        assert before == based.log.info().position
        based.write(messages)
        assert based.log.writer.position == based.log.info().position != before
    with based.meta.read() as c:
        assert set(based.home.storage.list("changelog")) == merged.paths(c)
    based.assert_changelog()
    based.meta.close()


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process may grow."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
