"""The capture's process, as far as it needs no upstream."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.capture import process
from headwater.capture.process import Capture
from headwater.engine.home import Home
from headwater.meta.store import Meta
from headwater.ownership.lease import Lease, Owner
from support.defined import add_connection
from support.owned import acquired


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    it = Home.open(tmp_path / "home")
    with it.meta.write() as c:
        add_connection(c)
    yield it
    it.meta.close()


def test_a_capture_that_waits_for_its_upstream_keeps_its_lease(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "RENEW_S", 0.05)
    capture = Capture(home.meta, home.storage, 1, Owner("here", "a:1"))
    with home.meta.write() as c:
        capture._acquired = acquired(c)
    owned, renewals = Meta.owned, list[Lease]()

    @contextmanager
    def counted(self: Meta, lease: Lease) -> Iterator[Any]:
        renewals.append(lease)
        with owned(self, lease) as c:
            yield c

    monkeypatch.setattr(Meta, "owned", counted)
    capture._pause(0.5)
    assert len(renewals) >= 5


def test_words_of_the_server_are_understood_wherever_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    class Told:
        def pause(self, wait: bool) -> None:
            told.append(wait)

        def stop(self) -> None:
            told.append("stop")

    parts = [b"pa", b"use\nre", b"sume\nnonsense\npause\n", b""]
    monkeypatch.setattr(os, "read", lambda fd, size: parts.pop(0))
    process._watch_stdin(Told())  # type: ignore[arg-type]
    assert told == [True, False, True, "stop"]
