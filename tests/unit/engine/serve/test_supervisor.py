"""Captures are started, heard, replaced when they hang, and started again ever more slowly when they end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.engine.home import Home
from headwater.engine.serve import supervisor as engine_supervisor
from headwater.engine.serve.supervisor import FIRST_WORD_S, RESTART, Supervisor, _Child
from headwater.errors import InputError
from headwater.settings.table import DEFAULTS
from support.wait import wait_for

# says whatever it is told, and keeps it on stderr
SAYS = "import sys\nfor line in sys.stdin: [print(line, end='', flush=True, file=f) for f in (sys.stderr, sys.stdout)]"


class Supervised(Supervisor):
    """Its captures are processes that say what they are told, until their pipe closes."""

    def _start(self, id: int) -> _Child:
        command = [sys.executable, "-c", SAYS]
        with self._words.open("ab") as words:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words, text=True)
        child = _Child(process, time.monotonic())
        child.thread = threading.Thread(target=self._listen, args=(id, child), daemon=True)
        child.thread.start()
        return child

    def tell(self, word: str) -> None:
        assert self.child.process.stdin is not None
        self.child.process.stdin.write(f"{word}\n")
        self.child.process.stdin.flush()

    @property
    def _words(self) -> Path:
        return self.home.path / "words"

    def told(self) -> list[str]:
        """All that captures were told."""
        return self._words.read_text().split()

    @property
    def child(self) -> _Child:
        found = self._supervised[1].child
        assert found is not None
        return found


@pytest.fixture
def published() -> list[float]:
    return []


@pytest.fixture
def supervised(tmp_path: Path, published: list[float]) -> Iterator[Supervised]:
    home = Home.open(tmp_path / "home")
    it = Supervised(home, lambda: published.append(time.monotonic()))
    it.want({1})
    yield it
    it.stop_all()
    home.meta.close()


def failures(it: Supervised) -> list[str]:
    return [error.message for _, error in it.home.live.failures.of(connection=1)]


def test_a_sign_of_life_is_heard_and_only_a_publication_wakes_others(
    supervised: Supervised, published: list[float]
) -> None:
    supervised.tell("alive")
    wait_for(lambda: supervised.child.heard_at is not None, "it is heard")
    assert published == [] and supervised.reached == set()
    supervised.tell("published")
    wait_for(lambda: len(published) == 1, "others are woken")
    supervised.tell("reached")
    wait_for(lambda: supervised.reached == {1}, "it has come to its end")


def test_a_capture_that_is_not_heard_of_any_more_is_replaced(supervised: Supervised) -> None:
    silent = supervised.child
    for silence_s in (DEFAULTS.capture_silence_s / 4, DEFAULTS.capture_silence_s + 1):
        assert silent.process.poll() is None, "not yet"
        supervised._looked_at = time.monotonic()  # and it has been listening
        silent.heard_at = time.monotonic() - silence_s
        supervised.want({1})
    assert silent.process.poll() is not None, "no other signal reaches one that is stopped"
    assert any("was silent for" in message for message in failures(supervised))
    wait_for(lambda: supervised.want({1}) or supervised._supervised[1].child, "another one is started")
    assert supervised.child is not silent
    supervised.tell("alive")
    wait_for(lambda: not failures(supervised), "what is over is not shown")


@pytest.mark.parametrize(("seconds", "replaced"), [(DEFAULTS.capture_silence_s + 1, False), (FIRST_WORD_S + 1, True)])
def test_a_capture_has_longer_until_its_first_word(supervised: Supervised, seconds: float, replaced: bool) -> None:
    slow = supervised.child
    slow.started_at = time.monotonic() - seconds
    supervised.want({1})
    assert (slow.process.poll() is not None) is replaced


def test_who_could_not_hear_for_a_while_does_not_take_others_for_silent(supervised: Supervised) -> None:
    """A machine that was suspended: nobody spoke, because nobody ran."""
    capture = supervised.child
    capture.heard_at = supervised._looked_at = time.monotonic() - 3600
    supervised.want({1})
    assert supervised.child is capture and capture.process.poll() is None and not failures(supervised)


def test_a_capture_that_ends_is_started_again_after_a_pause_that_doubles(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        now = time.monotonic()

        def monotonic(self) -> float:
            return self.now

    clock = Clock()
    monkeypatch.setattr(engine_supervisor, "time", clock)

    def starts_again_after(pause: float) -> None:
        supervised.child.process.kill()
        supervised.child.process.wait()
        supervised.want({1})
        clock.now += pause - 0.01
        supervised.want({1})
        assert supervised._supervised[1].child is None, "it rests"
        clock.now += 0.02
        supervised.want({1})
        supervised.child.started_at = clock.now

    pause = RESTART.first_s
    for _ in range(8):
        starts_again_after(pause)
        pause = min(pause * 2, RESTART.last_s)
    assert pause == RESTART.last_s
    assert supervised.home.live.counters.counted("headwater_capture_restarts_total") == {1: 8}
    clock.now += RESTART.last_s + 1  # it ran for a while
    supervised.want({1})
    starts_again_after(RESTART.first_s)


def test_a_capture_that_cannot_begin_says_why_until_another_can(supervised: Supervised, published: list[float]) -> None:
    error = InputError("settings.value", "headwater.toml line 3: flush.bytes must be a size", "Correct it.")
    supervised.tell(f"refused {json.dumps(error.as_dict())}")
    wait_for(lambda: failures(supervised) == [error.message], "the status says so")
    assert published == []
    supervised.tell("alive")
    wait_for(lambda: not failures(supervised), "what is over is not shown")


def test_a_capture_is_told_once_to_wait_and_once_to_continue(supervised: Supervised) -> None:
    for wanted in ({1}, {1, 2}, set(), {2}, {1}, set()):
        supervised.pause(wanted)
    wait_for(lambda: len(supervised.told()) >= 4, "it is told")
    supervised.tell("last")
    wait_for(lambda: supervised.told()[-1:] == ["last"], "it has been told everything")
    assert supervised.told() == ["pause", "resume", "pause", "resume", "last"]


def test_a_capture_that_is_started_again_is_told_again_to_wait(supervised: Supervised) -> None:
    supervised.pause({1})
    wait_for(lambda: supervised.told() == ["pause"], "it waits")
    first = supervised.child
    first.process.kill()
    first.process.wait()
    supervised.pause({1})
    wait_for(lambda: supervised.want({1}) or supervised._supervised[1].child, "another one is started")
    supervised.pause({1})
    wait_for(lambda: supervised.told() == ["pause", "pause"], "it waits, too")


def test_what_is_not_wanted_any_more_ends(supervised: Supervised) -> None:
    supervised.tell("alive")
    wait_for(lambda: supervised.child.heard_at is not None, "it is heard")
    capture = supervised.child
    supervised.want(set())
    assert capture.process.poll() == 0 and supervised.pids() == []


def test_a_capture_that_is_only_just_starting_is_not_waited_for(supervised: Supervised) -> None:
    """Until it has loaded everything, which takes seconds, it would not even notice that its pipe has closed."""
    capture = supervised.child
    supervised.stop_all()
    assert capture.process.poll() == -signal.SIGKILL


def test_nothing_is_started_any_more_once_all_have_been_stopped(supervised: Supervised) -> None:
    """The loop that wants captures may be on its way while the server stops: nobody would end what it starts."""
    slot = supervised._supervised[1]
    supervised.stop_all()
    supervised.want({1})
    slot.child = None
    supervised._maintain(1, slot)
    assert supervised.pids() == [] and slot.child is None
