"""The kinds of databases that the suites run over: what each can do, and how it is made to do it.

    with MariaDB.serve() as upstream:            # its own server, which may be crashed
        upstream.create_schema(rows=300, seed=7)
        with upstream.writer(seed=7, rate=40):
            lake = Lake(path, upstream.definitions(upstream.tables))

A suite checks what a kind declares (`can`), never its name.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from support.upstreams.base import Can, Upstream
from support.upstreams.mysql import MariaDB, Mysql
from support.upstreams.postgres import Postgres, Postgres16

__all__ = ["EVERY", "FAMILY", "ONE_OF", "Can", "MariaDB", "Mysql", "Postgres", "Postgres16", "Upstream"]

EVERY: tuple[type[Upstream], ...] = (Postgres, MariaDB, Mysql)
FAMILY: tuple[type[Mysql], ...] = (MariaDB, Mysql)
ONE_OF = pytest.mark.parametrize("kinds", [(Postgres,), FAMILY], ids=["postgres", "mysql or mariadb"])


def over(*kinds: type[Upstream], where: Callable[[Can], bool] = lambda _: True) -> pytest.MarkDecorator:
    """Runs a test of the fixture `upstream` over some kinds (all, if none is named) that can do what it takes."""
    chosen = [k for k in kinds or EVERY if where(k.can)]
    return pytest.mark.parametrize("upstream", chosen, indirect=True, ids=[k.name for k in chosen])


def each(of: Callable[[type[Upstream]], Iterable[Any]], name: str) -> pytest.MarkDecorator:
    """Runs a test of the fixture `upstream` over all kinds, and over what each has of something."""
    cases = [pytest.param(k, case, id=f"{k.name}-{_id(case, n)}") for k in EVERY for n, case in enumerate(of(k))]
    return pytest.mark.parametrize(("upstream", name), cases, indirect=["upstream"])


def _id(case: object, number: int) -> object:
    """A case's name, if it is one: twins on other kinds of databases have the same."""
    return case if isinstance(case, str) and case.isidentifier() else number


def fresh(request: pytest.FixtureRequest, kind: type[Upstream]) -> Upstream:
    """A fresh database on the shared server of a kind; skips, and reports it at the end, if that cannot run."""
    return kind(request.getfixturevalue(kind.fixture))


def choose(kinds: tuple[type[Upstream], ...]) -> tuple[type[Upstream], int]:
    """One of several kinds, by a new seed: for tests where running all of them every time would take too long.

    Only kinds whose server is on this machine are chosen.
    """
    seed = new_seed()
    kind = random.Random(seed).choice([k for k in kinds if len(kinds) == 1 or k.is_here()])
    print(kind.name)
    return kind, seed


def expect(request: pytest.FixtureRequest, kind: type[Upstream]) -> None:
    """Skips, and reports it at the end, if servers of a kind cannot run."""
    request.getfixturevalue(kind.shared)


def new_seed() -> int:
    """A seed for a test's choices, printed; HEADWATER_SOAK_SEED repeats a run's."""
    seed = int(os.environ.get("HEADWATER_SOAK_SEED") or random.randrange(1 << 30))
    print(f"seed {seed}")
    return seed
