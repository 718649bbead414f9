"""Pebble games layer by layer: what is proven, what is refused, and what is said when time or space run out.

`tests/solver/test_optimum_attacks.py` holds them against brute force.
"""

from __future__ import annotations

import pytest

from pebbler.extras.pebbles.pebble_search import solve_pebbles
from pebbler.extras.pebbles.pebble_sweep import PROOF, fits_sweep, solve_sweep, sweep_pays
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.solver.paging.demand_paging import program_order_plan
from pebbler.solver.problem import Problem, Search


def powers(n: int, times: int, capacity: int, prices: tuple[float, float] = (1, 1), cost: float = 9) -> Problem:
    """A vector, times a matrix with two diagonals, again and again."""
    graph = Graph("powers", unit="pebble")
    for i in range(n):
        graph.tensor(f"a{i}", 1, kind="input").tensor(f"x0_{i}", 1, kind="input")
    for k in range(1, times + 1):
        for i in range(n):
            graph.tensor(f"x{k}_{i}", 1, kind="output" if k == times else "temp")
            graph.op(f"op{k}_{i}", [f"a{i}", f"x{k - 1}_{i}", f"x{k - 1}_{(i + 2) % n}"], [f"x{k}_{i}"], cost)
    levels = (Level("fast", 0, 0, capacity=capacity), Level("slow", prices[0], prices[1]))
    return Problem.of(graph, Machine("two", "pebble", levels), steady=False)


def search_of(problem: Problem, seconds: float | None = None) -> Search:
    search = Search(problem, seconds)
    search.as_it_is = True
    return search


@pytest.mark.parametrize("capacity", [4, 5, 7])
@pytest.mark.parametrize("prices", [(1, 1), (2, 1), (1, 3)])
def test_both_searches_prove_the_same(capacity: int, prices: tuple[float, float]) -> None:
    problem = powers(5, 2, capacity, prices)
    other, sweep, towards = search_of(problem), search_of(problem), search_of(problem)
    solve_pebbles(other)
    solve_sweep(sweep)
    towards.offer_plan(program_order_plan(problem))
    solve_sweep(towards)
    assert other.done
    assert sweep.proof.startswith(PROOF)
    assert towards.proof.startswith(PROOF)
    assert sweep.energy == sweep.bound == towards.energy == towards.bound == other.energy


def test_a_search_without_space_says_nothing_wrong() -> None:
    problem = powers(5, 2, 4)
    whole, part = search_of(problem), search_of(problem)
    solve_sweep(whole)
    part.offer_plan(program_order_plan(problem))
    solve_sweep(part, 50)
    assert part.cut_off
    assert not part.done
    assert part.bound <= whole.energy <= part.energy


def test_a_search_without_time_ends() -> None:
    search = search_of(powers(6, 4, 4), 0.0)
    solve_sweep(search)
    assert search.best is None
    assert search.cut_off


def test_a_plan_that_cannot_be_better_is_proven() -> None:
    problem = powers(5, 1, 4)
    first, again = search_of(problem), search_of(problem)
    solve_sweep(first)
    again.offer_plan(first.best)
    solve_sweep(again)
    assert again.done
    assert again.energy == first.energy


def test_other_games_are_left_alone() -> None:
    assert fits_sweep(powers(5, 2, 4))
    assert not fits_sweep(powers(5, 2, 4, cost=0.5))  # running again pays
    assert not fits_sweep(powers(5, 2, 3))  # a row does not fit
    assert not fits_sweep(powers(5, 2, 4, prices=(0, 1)))
    assert not fits_sweep(powers(5, 2, 4, prices=(1, 1e15)))  # beside a store a load vanishes
    assert not fits_sweep(powers(14, 4, 56))  # too many ways to make room


def test_ops_that_wait_for_nothing_can_have_run_in_too_many_sets() -> None:
    assert sweep_pays(powers(8, 3, 4))
    assert fits_sweep(powers(20, 1, 4))
    assert not sweep_pays(powers(20, 1, 4))


def test_many_ways_to_make_room_are_left_to_the_other_search() -> None:
    assert sweep_pays(powers(5, 2, 8))
    assert fits_sweep(powers(5, 2, 11))
    assert not sweep_pays(powers(5, 2, 11))
