"""The tests' own turns: one of each pair of twins runs, either has its turn, and nothing without a twin is left out."""

from __future__ import annotations

from support.turns import choose, left_out, pair_of

BOTH = {"mariadb", "mysql"}


def test_twins_differ_in_the_server_alone() -> None:
    assert pair_of("a.py::test[mysql-x]") == ("mysql", "a.py::test[*-x]")
    assert pair_of("a.py::test[x-mariadb]") == ("mariadb", "a.py::test[x-*]")
    assert pair_of("a.py::test_mysql") == ("", "a.py::test_mysql")
    assert pair_of("a.py::test[postgres-x]") == ("", "a.py::test[postgres-x]")
    assert pair_of("a.py::test[mariadb-mysql]") == ("", "a.py::test[mariadb-mysql]"), "both at once"


def test_each_server_has_its_turn_and_a_seed_repeats_it() -> None:
    pairs = [f"a.py::test[*-{n}]" for n in range(50)]
    turns = [choose(pair, ["mariadb", "mysql"], BOTH, 7) for pair in pairs]
    assert set(turns) == BOTH
    assert turns == [choose(pair, ["mysql", "mariadb"], BOTH, 7) for pair in pairs]
    assert turns != [choose(pair, ["mariadb", "mysql"], BOTH, 8) for pair in pairs]


def test_what_has_no_twin_here_always_runs() -> None:
    for seed in range(50):
        assert choose("p", ["mysql"], BOTH, seed) == "mysql"
        assert choose("p", ["mysql"], {"mariadb"}, seed) == "mysql", "it says itself that it cannot run"
        assert choose("p", ["mariadb", "mysql"], {"mariadb"}, seed) == "mariadb"
        assert choose("p", [""], BOTH, seed) == ""


def test_so_many_parameters_run_and_each_has_its_turn() -> None:
    waiting = [set(left_out("a.py::test", 5, 3, seed)) for seed in range(50)]
    assert {len(numbers) for numbers in waiting} == {2}
    assert set.union(*waiting) == set(range(5)) and not set.intersection(*waiting)
    assert left_out("a.py::test", 5, 3, 7) == left_out("a.py::test", 5, 3, 7)
    assert left_out("a.py::test", 2, 3, 7) == []
