"""Pebble games of two levels: what is proven, what is refused, and what is said when time or states run out.

`tests/solver/test_optimum_attacks.py` holds them against brute force.
"""

from __future__ import annotations

import pytest

from pebbler.extras.pebbles.pebble_search import PROOF, fits_pebbles, offer_beam, solve_pebbles
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.solver.problem import Problem, Search


def product(rows: int, capacity: int, *, cost: float = 2, size: int = 1) -> Problem:
    """A band matrix times a vector, then the sum of the result: every number a value, every copy as dear as a step."""
    graph = Graph("band", unit="pebble")
    for i in range(rows + 1):
        graph.tensor(f"x{i}", size, kind="input")
    for i in range(rows):
        graph.tensor(f"a{i}", size, kind="input")
        graph.tensor(f"y{i}", size, kind="output")
        graph.op(f"row{i}", [f"a{i}", f"x{i}", f"x{i + 1}"], [f"y{i}"], cost)
    for i in range(rows):
        graph.tensor(f"s{i}", size)
        graph.op(f"sum{i}", [f"s{i - 1}", f"y{i}"] if i else ["y0"], [f"s{i}"], cost)
    levels = (Level("fast", 0, 0, capacity=capacity), Level("slow", 1, 1))
    return Problem.of(graph, Machine("two", "pebble", levels), steady=False)


def search_of(problem: Problem, seconds: float | None = None) -> Search:
    search = Search(problem, seconds)
    search.as_it_is = True
    return search


def test_a_graph_of_forty_nodes_is_proven() -> None:
    problem = product(10, 5)
    search = search_of(problem)
    solve_pebbles(search)
    # 20 ops, 21 loads of inputs, and 9 stores: beside a row, its two numbers of x and the last sum no other result has room.
    assert (search.energy, search.bound) == (20 * 2 + 21 + 9, 70)
    assert search.proof.startswith(PROOF)


def test_sizes_scale() -> None:
    search = search_of(product(6, 15, size=3))
    solve_pebbles(search)
    single = search_of(product(6, 5))
    solve_pebbles(single)
    assert search.energy - 24 == 3 * (single.energy - 24)


@pytest.mark.parametrize("states", [64, 100])
def test_a_search_that_is_cut_off_still_bounds(states: int) -> None:
    problem = product(8, 5)
    whole, part = search_of(problem), search_of(problem)
    solve_pebbles(whole)
    solve_pebbles(part, states)
    assert part.cut_off
    assert 32 < part.bound <= whole.energy


def test_a_beam_finds_plans_that_the_referee_accepts() -> None:
    problem = product(8, 5)
    whole, beam = search_of(problem), search_of(problem)
    solve_pebbles(whole)
    offer_beam(beam, lambda: 1e9, width=20)
    assert whole.energy <= beam.energy <= 1.1 * whole.energy


def test_no_time_means_no_search() -> None:
    search = search_of(product(8, 5), 0.0)
    offer_beam(search, lambda: search.remaining)
    assert search.best is None


def test_other_games_are_left_alone() -> None:
    assert fits_pebbles(product(6, 5))
    uneven = product(6, 5).graph
    uneven.tensor("more", 2, kind="input")
    two = product(6, 5).machine
    assert not fits_pebbles(Problem.of(uneven, two, steady=False))
    assert not fits_pebbles(product(6, 3))  # a row does not fit
    assert not fits_pebbles(product(40, 5))  # too many ops
