"""Ops that pass a value on, joined with the op before. Brute force: `test_optimum_attacks.py`."""

from __future__ import annotations

import pytest

from pebbler.extras.pebbles.joined_ops import join_ops
from pebbler.extras.pebbles.pebble_search import solve_pebbles
from pebbler.extras.pebbles.pebble_sweep import solve_joined
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.referee.judgement import check
from pebbler.solver.problem import Problem, Search


def ranks(n: int, times: int, capacity: int, cost: float = 2) -> Problem:
    """A ring of pages: a rank is a sum of two shares, a share a part of a rank."""
    graph = Graph("ranks", unit="pebble")
    for i in range(n):
        graph.tensor(f"rank0_{i}", 1, kind="input")
    for k in range(1, times + 1):
        for i in range(n):
            graph.tensor(f"share{k}_{i}", 1)
            graph.op(f"share{k}_{i}", [f"rank{k - 1}_{i}"], [f"share{k}_{i}"], 1)
        for i in range(n):
            graph.tensor(f"rank{k}_{i}", 1, kind="output" if k == times else "temp")
            graph.op(f"rank{k}_{i}", [f"share{k}_{i}", f"share{k}_{(i + 1) % n}"], [f"rank{k}_{i}"], cost)
    levels = (Level("fast", 0, 0, capacity=capacity), Level("slow", 1, 1))
    return Problem.of(graph, Machine("two", "pebble", levels), steady=False)


@pytest.mark.parametrize("capacity", [3, 4])
def test_both_games_cost_the_same(capacity: int) -> None:
    problem = ranks(3, 2, capacity)
    joined, whole = Search(problem), Search(problem)
    joined.as_it_is = whole.as_it_is = True
    solve_joined(joined, 1.0)
    solve_pebbles(whole)
    assert whole.done
    assert joined.energy == joined.bound == whole.energy


def test_moves_name_the_ops_of_the_graph() -> None:
    problem = ranks(4, 3, 3)
    joined = join_ops(problem)
    assert joined is not None
    assert len(joined.problem.graph.ops) == 24 - 8  # the first shares are made from inputs, which stay
    search = Search(joined.problem)
    search.as_it_is = True
    solve_pebbles(search, 1 << 14)
    if search.best is not None:
        judgement = check(problem.plan(joined.moves(search.best.moves)))
        assert judgement.legal
        assert search.energy <= judgement.energy <= search.energy + 8


def test_what_is_cheaper_to_make_than_to_load_is_not_joined() -> None:
    assert join_ops(ranks(4, 2, 3, cost=0.5)) is None


def test_what_others_read_is_not_joined() -> None:
    problem = ranks(4, 2, 3)
    graph = problem.graph
    graph.tensor("sum", 1, kind="output").op("sum", [f"rank1_{i}" for i in range(2)], ["sum"], 2)
    joined = join_ops(Problem.of(graph, problem.machine, steady=False))
    assert joined is not None
    assert sorted(joined.ops) == ["rank1_2", "rank1_3"]
