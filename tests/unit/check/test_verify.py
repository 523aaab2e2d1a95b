"""Verification, as far as it needs neither Spark nor an upstream: how often it cuts, and how far it waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from headwater.check import verify as checked
from headwater.check.verify import Target, Unverified, reach_in, verify
from headwater.errors import SourceError
from headwater.model import CoveredSpan, Layout, Span
from headwater.source.postgres.client.session import int_to_lsn, lsn_to_int
from support.log import Log
from support.messages import begin, commit, relation, row
from support.relation import columns_of, relation_of


class Spoiled:
    """An upstream whose table is truncated right after every cut."""

    position = "0/1"
    cuts = 0

    @contextmanager
    def cut(self, on_wait: object) -> Iterator[Any]:
        self.cuts += 1
        yield self

    def scan(self, table: object) -> nullcontext[None]:
        return nullcontext(None)


def test_a_table_that_is_truncated_after_every_cut_gets_as_many_as_promised_however_slow_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checked, "CUT_S", 0.0)
    upstream, table = Spoiled(), relation_of(columns_of(), ("k",))
    target = Target(table, Layout(1, 0, (CoveredSpan(Span(None, None), 0, 0),), True), lambda _: nullcontext())  # type: ignore[arg-type,return-value]
    (found,) = verify([target], upstream, lambda position: 7)  # type: ignore[arg-type]
    assert isinstance(found, Unverified) and upstream.cuts == checked.CUT_TRIES
    assert f"{checked.CUT_TRIES} cuts" in str(found.error)


def test_what_the_changelog_holds_is_not_waited_for_and_what_it_does_not_hold_is(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for n in range(2):
        log.write(begin(101 + n), relation(1, "a"), row("I", 1), commit(200 + 100 * n))
    nudges: list[int] = []
    reach = reach_in(
        log.home.meta,
        log.home.storage,
        log.id,
        0,
        timeout_s=0.1,
        number=lsn_to_int,
        nudge=lambda: nudges.append(1),
    )
    assert (reach(int_to_lsn(200)), reach(int_to_lsn(299)), reach(int_to_lsn(300))) == (1, 1, 2)
    with pytest.raises(SourceError, match="did not reach"):
        reach(int_to_lsn(301))
    assert len(nudges) == 4
    log.home.meta.close()
