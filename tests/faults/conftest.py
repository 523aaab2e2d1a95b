"""Servers of each kind that the tests of captures may crash, and fresh databases on them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from support import upstreams
from support.upstreams import Upstream

Make = Callable[[type[Upstream]], Upstream]
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def mortal() -> Iterator[tuple[dict[str, Upstream], ExitStack]]:
    """The servers, made when they are asked for."""
    with ExitStack() as stack:
        yield {}, stack


@pytest.fixture
def make(mortal: tuple[dict[str, Upstream], ExitStack], request: pytest.FixtureRequest) -> Iterator[Make]:
    """A fresh database of a kind, on a server that may be crashed."""
    made, stack = mortal
    used: list[Upstream] = []

    def make(kind: type[Upstream]) -> Upstream:
        upstreams.expect(request, kind)
        if kind.name not in made:
            made[kind.name] = stack.enter_context(kind.serve(kind.soon))
        used.append(made[kind.name].another(f"faults_{next(_numbers)}"))
        return used[-1]

    yield make
    for upstream in used:
        upstream.drop()
