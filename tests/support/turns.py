"""Tests that take turns, by the run's seed, where all of them in every run would prove little more than some.

    pytestmark = turns.TAKEN             # MariaDB or MySQL, where the code under test does not tell them apart
    @turns.some(2)                       # so many of a test's parameters

The others run in `make soak`; with `--every-turn` all of them run.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest

from support.upstreams import FAMILY

TAKEN = pytest.mark.turns
NAMES = {kind.name for kind in FAMILY}


def some(number: int) -> pytest.MarkDecorator:
    """So many of a test's parameters have their turn."""
    return TAKEN(number)


def take(items: Iterable[pytest.Item], seed: object) -> None:
    """Leaves to `make soak` those whose turn it is not."""
    pairs: defaultdict[str, list[tuple[str, pytest.Item]]] = defaultdict(list)
    samples: defaultdict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker(TAKEN.name)
        if marker is None or item.get_closest_marker("soak"):
            continue
        if marker.args:
            samples[item.nodeid.partition("[")[0], marker.args[0]].append(item)
        else:
            name, pair = pair_of(item.nodeid)
            pairs[pair].append((name, item))
    here = {kind.name for kind in FAMILY if kind.is_here()}
    left = []
    for pair, twins in pairs.items():
        chosen = choose(pair, [name for name, _ in twins], here, seed)
        left += [item for name, item in twins if name != chosen]
    for (test, number), all in samples.items():
        left += [all[i] for i in left_out(test, len(all), number, seed)]
    for item in left:
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


def left_out(test: str, size: int, number: int, seed: object) -> list[int]:
    """Which of `size` parameters of a test must wait so that `number` of them run: others for each seed."""
    return random.Random(f"{seed} {test}").sample(range(size), max(0, size - number))
