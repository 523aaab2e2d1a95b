"""A capture is heard of while its main thread extends its deadline, and not when it hangs."""

from __future__ import annotations

import threading

from headwater.capture.liveness import OPEN_S, STEP_S, Liveness


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_it_speaks_for_as_long_as_the_main_thread_asked_for_and_no_longer() -> None:
    clock, said = Clock(), list[str]()
    it = Liveness(said.append, clock)
    clock.now += OPEN_S
    assert it.report_alive()
    it.extend_deadline()
    clock.now += STEP_S
    assert it.report_alive()
    clock.now += 1
    assert not it.report_alive(), "the main thread hangs"
    it.extend_deadline()
    assert it.report_alive()
    assert said == ["alive"] * 3


def test_a_capture_that_has_just_started_is_heard_at_once() -> None:
    heard = threading.Event()
    it = Liveness(lambda word: heard.set())
    it.start()
    assert heard.wait(30)
    it.stop()
