"""MariaDB and MySQL take turns where the code under test does not tell them apart: one of them by the run's seed.

    pytestmark = turns.TAKEN             # of a file, or as a decorator of a test

The other one of each pair runs in `make soak`; `--every-server` runs both.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest

from support.upstreams import FAMILY

TAKEN = pytest.mark.turns
NAMES = {kind.name for kind in FAMILY}


def take(items: Iterable[pytest.Item], seed: object) -> None:
    """Leaves to `make soak` all but one of the tests that differ in nothing but the server of the family."""
    pairs: defaultdict[str, list[tuple[str, pytest.Item]]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker(TAKEN.name) and not item.get_closest_marker("soak"):
            name, pair = pair_of(item.nodeid)
            pairs[pair].append((name, item))
    here = {kind.name for kind in FAMILY if kind.is_here()}
    for pair, twins in pairs.items():
        chosen = choose(pair, [name for name, _ in twins], here, seed)
        for name, item in twins:
            if name != chosen:
                item.add_marker("soak")


def pair_of(nodeid: str) -> tuple[str, str]:
    """The server of the family that a test's parameters name ('' if none), and what it shares with its twin."""
    test, _, parameters = nodeid.partition("[")
    words = parameters.removesuffix("]").split("-")
    named = [word for word in words if word in NAMES]
    if len(named) != 1:
        return "", nodeid
    return named[0], f"{test}[{'-'.join('*' if word in NAMES else word for word in words)}]"


def choose(pair: str, names: Sequence[str], here: set[str], seed: object) -> str:
    """Whose turn it is: of those that this machine has, another one for each pair and each seed."""
    return random.Random(f"{seed} {pair}").choice(sorted(here.intersection(names)) or sorted(names))
