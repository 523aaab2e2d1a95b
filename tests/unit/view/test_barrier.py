"""Where views stop: the rule itself, what is kept, and simulated homes whose views always meet soon."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.view.barrier import Barrier, Want, common, due, kept, least_rank, rank, target, usable_by
from support.barriers import SECOND, SimulatedHome, newest, random_views, without_targets
from support.upstreams import new_seed

MINUTE = 60 * SECOND
SEEDS = range(100, 112)
VIEWS = range(4)


def barriers(*numbers: int) -> list[Barrier]:
    return [Barrier(number, epoch=10 * number) for number in numbers]


def number_of(barrier: Barrier | None) -> int | None:
    return barrier.number if barrier else None


def everywhere(_number: int) -> bool:
    return True


def test_the_rank_is_the_number_of_trailing_zero_bits() -> None:
    assert [rank(n) for n in range(1, 17)] == [0, 1, 0, 2, 0, 1, 0, 3, 0, 1, 0, 2, 0, 1, 0, 4]
    with pytest.raises(ValueError, match="numbered from 1"):
        rank(0)


def test_barriers_of_the_least_rank_are_never_closer_than_the_interval() -> None:
    assert [least_rank(s) for s in (0, 0.5, 1, 1.5, 2, 3, 4, 5, 60, 3600)] == [0, 0, 0, 1, 1, 2, 2, 3, 6, 12]


def test_a_view_goes_to_the_newest_barrier_of_the_highest_rank() -> None:
    ahead = barriers(*range(1, 12))
    assert number_of(target(0, ahead, everywhere)) == 8
    assert number_of(target(8, ahead, everywhere)) == 10
    assert number_of(target(10, ahead, everywhere)) == 11
    assert target(11, ahead, everywhere) is None
    assert number_of(target(8, barriers(9, 11), everywhere)) == 11  # of equal rank, the newest


def test_a_view_goes_only_where_its_inputs_are_and_its_interval_allows() -> None:
    ahead = barriers(*range(1, 12))
    versions = {1: {2, 4, 8}, 2: {2, 4, 6, 7}}
    assert number_of(target(0, ahead, usable_by([1, 2], versions))) == 4
    assert number_of(target(4, ahead, usable_by([2], versions))) == 6
    assert target(4, ahead, usable_by([1, 2], versions)) is None
    assert target(0, ahead, usable_by([3], versions)) is None  # a view that is not filled yet
    assert target(8, ahead, everywhere, least_rank=2) is None


def test_a_view_whose_refresh_failed_continues_to_a_later_barrier() -> None:
    ahead = barriers(*range(1, 12))
    assert number_of(target(Want(last=3, inputs=frozenset()).after, ahead, everywhere)) == 8
    assert number_of(target(Want(last=3, inputs=frozenset(), begun=8).after, ahead, everywhere)) == 10


def test_common_is_the_newest_number_at_which_all_have_a_version() -> None:
    versions = {1: {2, 4, 8}, 2: {2, 4, 6}, 3: {8}}
    assert common(versions, [1, 2]) == 4
    assert common(versions, [1]) == common(versions, [1, 3]) == 8
    assert common(versions, [2, 3]) is common(versions, [1, 4]) is common(versions, []) is None


def test_barriers_continue_until_all_views_met_after_the_last_change() -> None:
    assert due(5, {1: {5}, 2: {4}}, [1, 2])
    assert due(5, {1: {5, 7}, 2: {4, 6}}, [1, 2])  # each has the change, but not at the same barrier
    assert not due(5, {1: {5, 8}, 2: {4, 8}}, [1, 2])
    assert not due(5, {1: {5}, 2: {4}}, [1])  # a paused view asks for nothing
    assert not due(5, {}, [])


versions_of_views = st.fixed_dictionaries({view: st.sets(st.integers(1, 40)) for view in VIEWS})
wants_of_views = st.fixed_dictionaries(
    {
        view: st.builds(
            Want,
            last=st.just(0),
            inputs=st.frozensets(st.sampled_from([v for v in VIEWS if v < view] or [None])).map(lambda s: s - {None}),
            least_rank=st.integers(0, 3),
            begun=st.integers(0, 45),
        )
        for view in VIEWS
    }
)


@given(versions_of_views, wants_of_views)
def test_what_is_given_up_changes_neither_what_readers_see_nor_where_views_go(
    versions: dict[int, set[int]], wants: dict[int, Want]
) -> None:
    wants = {v: Want(max(versions[v], default=0), w.inputs, w.least_rank, w.begun) for v, w in wants.items()}
    before = barriers(*range(1, 46))
    keeps = kept(before, versions, wants)
    after = [b for b in before if b.number in keeps]
    left = {view: numbers & keeps for view, numbers in versions.items()}
    assert 45 in keeps
    assert kept(after, left, wants) == keeps  # nothing more is given up without something new
    for size in VIEWS:
        for some in combinations(VIEWS, size + 1):
            assert common(left, some) == common(versions, some)
    for view, want in wants.items():
        where = target(want.after, before, usable_by(want.inputs, versions), want.least_rank)
        assert target(want.after, after, usable_by(want.inputs, left), want.least_rank) == where
        assert want.last == 0 or want.last in left[view]
        assert want.begun <= want.last or want.begun in keeps  # a refresh may be reading there


def test_a_view_that_stands_still_for_a_day_keeps_few_barriers() -> None:
    made = barriers(1, 2, 3, 4)
    versions = {1: {1, 2, 3, 4}, 2: {2, 4}, 3: {3}}
    still = Want(last=3, inputs=frozenset({1}))
    most = 0
    for number in range(5, 24 * 3600):
        made.append(Barrier(number, number))
        versions[1].add(number)
        if number % 4 == 0:
            versions[2].add(number)
        wants = {1: Want(number, frozenset()), 2: Want(number & -4, frozenset({1}), 2), 3: still}
        keeps = kept(made, versions, wants)
        made = [b for b in made if b.number in keeps]
        versions = {view: numbers & keeps for view, numbers in versions.items()}
        most = max(most, len(made))
    assert (
        most <= 5
    )  # its own version, where it goes next, the newest, the newest of both others, and one that changes hands
    assert number_of(target(3, made, usable_by([1], versions))) == 65536
    assert common(versions, [1, 3]) == 3


# simulated homes


def watched(home: SimulatedHome) -> list[tuple[int, ...]]:
    """Some sets of views, and all together."""
    sets = list(home.sets())
    return [*random.Random(home.seed).sample(sets, min(6, len(sets))), tuple(home.views)]


def ages(home: SimulatedHome, until_ms: int, *, settled: bool = True) -> Iterator[float]:
    """The age of the common version of each watched set just before each event, over the bound that is claimed for it.

    With `settled` false also of sets of which nothing is claimed, once they had ample time.
    """
    bounds = {views: home.claim.bound_ms(views) for views in watched(home)}
    while home.now_ms < until_ms:
        at_ms = home.next_event_ms()
        for views, bound_ms in bounds.items():
            since_ms = home.settled_ms(views) if settled else bound_ms
            if since_ms is not None and at_ms >= since_ms + bound_ms:
                yield home.age_ms(views, at_ms) / bound_ms
        home.step()


def check_home(seed: int, disturbed_until_ms: int) -> None:
    home = SimulatedHome(seed, random_views(seed), disturbed_until_ms)
    seen = list(ages(home, 2 * disturbed_until_ms + 40 * MINUTE))
    assert max(seen) < 1
    assert len(seen) > 1000  # the claim was looked at, not avoided
    assert all(view.settled_ms is not None for view in home.views.values())
    assert home.most_kept <= 3 * len(home.views) + 2
    for views in home.sets():
        assert home.claim.bound_ms(views) < home.claim.rough_bound_ms(views)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_views_share_a_version_whose_age_stays_below_the_bound(seed: int) -> None:
    check_home(seed, disturbed_until_ms=0)


@pytest.mark.parametrize("seed", SEEDS)
def test_views_that_failed_or_were_paused_come_back_to_the_bound(seed: int) -> None:
    check_home(seed, disturbed_until_ms=15 * MINUTE)


@pytest.mark.soak
def test_hundreds_of_homes_stay_below_the_bound() -> None:
    first = new_seed()
    for seed in range(first, first + 150):
        print("home", seed)
        check_home(seed, disturbed_until_ms=0)
        check_home(seed, disturbed_until_ms=15 * MINUTE)


@pytest.mark.parametrize("seed", [10, 12])
@pytest.mark.parametrize("wrong", [{"choose": newest}, {"keep": without_targets}], ids=["newest", "without_targets"])
def test_always_the_newest_barrier_and_giving_up_targets_break_the_bound(seed: int, wrong: dict[str, Any]) -> None:
    assert max(ages(SimulatedHome(seed, random_views(seed)), 40 * MINUTE, settled=False)) < 1
    assert max(ages(SimulatedHome(seed, random_views(seed), **wrong), 40 * MINUTE, settled=False)) > 1.5


@pytest.mark.parametrize("seed", SEEDS)
def test_when_nothing_is_written_all_views_meet_at_the_last_change_and_barriers_end(seed: int) -> None:
    home = SimulatedHome(seed, random_views(seed), written=lambda ms: ms < 5 * MINUTE)
    quiet_since_ms = 5 * MINUTE + 3 * home.claim.bound_ms(list(home.views))
    while home.now_ms < quiet_since_ms:
        home.step()
    made = len(home.made_ms)
    assert home.age_ms(list(home.views), home.now_ms) == 0
    while home.now_ms < quiet_since_ms + 5 * MINUTE:
        home.step()
    assert len(home.made_ms) == made
