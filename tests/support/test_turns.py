"""The tests' own turns: one of each pair of twins runs, either has its turn, and nothing without a twin is left out."""

from __future__ import annotations

from support.turns import choose, pair_of

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
