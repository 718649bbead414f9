"""The recomputation game against brute force on small games, and on stand-ins for real graphs."""

from __future__ import annotations

import random
from contextlib import suppress

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from naive_game import RandomGame, TooBig
from one_level_games import backward_net, one_level, optimum, small_game
from pebbler.errors import RefutedBound
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.solver.problem import Impossible, Problem, Search
from pebbler.solver.recompute import solve_recompute
from pebbler.solver.recompute.milestone_relaxation import Relaxation, RelaxationResult
from pebbler.solver.recompute.recompute_problem import RecomputeProblem

seeds = st.integers(0, 2**32 - 1)


@given(seeds)
@settings(max_examples=60)
@example(0)
def test_small_games_against_brute_force(seed: int) -> None:
    compare_with_brute_force(small_game(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1500))
def test_many_small_games_against_brute_force(seed: int) -> None:
    compare_with_brute_force(small_game(10_000 + seed, max_ops=8))


def compare_with_brute_force(small: RandomGame) -> None:
    try:
        best = optimum(small)
    except TooBig:
        return
    search = Search(Problem.of(small.graph, small.machine, steady=small.steady), time_limit=0.4)
    try:
        solve_recompute(search)
    except Impossible:
        assert best is None
        return
    if best is None:
        assert search.best is None
    else:
        assert search.bound <= best * (1 + 1e-9)
        assert search.energy >= best * (1 - 1e-9)
        if search.done:
            assert search.energy == pytest.approx(best)


def test_an_op_runs_more_than_twice_where_memory_is_short() -> None:
    graph = backward_net([4] * 9, [1] * 9)
    problem = Problem.of(graph, one_level(20, unit="byte"))
    with suppress(Impossible):
        solve_recompute(Search(problem, time_limit=0.6))  # loads the kernels
    search = Search(problem, time_limit=0.6)
    solve_recompute(search)
    assert search.best is not None
    assert search.bound <= search.energy <= 37
    assert np.bincount(search.best.moves.order).max() > 2


def test_order_alone_can_save_the_recomputation() -> None:
    graph = Graph("two", unit="pebble")
    for name, size in (("a", 9), ("b", 9), ("a2", 1), ("b2", 1)):
        graph.tensor(name, size)
    graph.op("fa", [], ["a"], 5)
    graph.op("fb", [], ["b"], 5)
    graph.op("ga", ["a"], ["a2"], 1)
    graph.op("gb", ["b"], ["b2"], 1)
    search = Search(Problem.of(graph, one_level(10)), time_limit=20)
    solve_recompute(search)
    assert (search.energy, search.done) == (12, True)


@pytest.mark.slow
def test_the_answer_does_not_depend_on_the_threads() -> None:
    rng = random.Random(3)
    graph = backward_net([rng.randint(20, 90) for _ in range(12)], [rng.randint(1, 50) for _ in range(12)])
    program = RecomputeProblem.of(Problem.of(graph, one_level(10**9, unit="byte")))
    capacity = int(0.75 * program.measure(program.program).memory.max())
    answers = []
    for threads in (1, 3):
        search = Search(Problem.of(graph, one_level(capacity, unit="byte"), threads=threads, seed=5))
        solve_recompute(search)
        assert search.best is not None
        assert search.done
        answers.append((search.energy, search.bound, list(search.best.moves)))
    assert answers[0] == answers[1]


def test_no_time_still_gives_program_order_when_that_fits() -> None:
    graph = backward_net([4, 4, 4], [1, 1, 1])
    search = Search(Problem.of(graph, one_level(100, unit="byte")), time_limit=0)
    solve_recompute(search)
    assert search.done
    assert search.best.moves.order.tolist() == list(range(len(graph.ops)))


def test_an_op_that_is_too_large_is_named_with_what_would_do() -> None:
    graph = backward_net([1, 10, 10, 1], [1, 1, 1, 1])
    with pytest.raises(Impossible, match=r"b1 needs 40 bytes at once; fast holds 39; the least that works is 40"):
        solve_recompute(Search(Problem.of(graph, one_level(39, unit="byte"))))


def test_what_cannot_be_made_again_counts_as_needed() -> None:
    graph = Graph("noise", unit="pebble")
    graph.tensor("seed", 3, "input")
    for name in ("x", "y", "z"):
        graph.tensor(name, 4)
    graph.op("draw", ["seed"], ["x"], once=True)
    graph.op("mid", ["seed", "x"], ["y"])
    graph.op("end", ["x", "y"], ["z"])
    with pytest.raises(Impossible, match=r"needs 12 units at once; fast holds 11"):
        solve_recompute(Search(Problem.of(graph, one_level(11))))


def test_costs_that_are_not_whole_are_proven_too() -> None:
    graph = backward_net([4, 3, 5, 2, 6], [1, 2, 3, 1, 2])
    scaled = Graph("scaled", "byte", graph.tensors, [msgspec.structs.replace(op, cost=op.cost / 3) for op in graph.ops])
    energies = []
    for one in (graph, scaled):
        search = Search(Problem.of(one, one_level(20, unit="byte")), time_limit=30)
        solve_recompute(search)
        assert search.done
        energies.append(search.energy)
    assert energies[0] > RecomputeProblem.of(Problem.of(graph, one_level(20, unit="byte"))).base_cost
    assert np.isclose(energies[0], 3 * energies[1])


@pytest.mark.parametrize(("kind", "capacity"), [("input", 3), ("param", 3), ("param", None)])
def test_a_graph_without_ops_is_done_at_once(kind: str, capacity: int | None) -> None:
    graph = Graph("still", unit="pebble")
    graph.tensor("x", 3, kind)
    search = Search(Problem.of(graph, Machine("one", "pebble", (Level("fast", 0, 0, capacity=capacity),))))
    solve_recompute(search)
    assert (search.energy, search.done) == (0, True)


def test_no_time_and_no_room_for_program_order_gives_nothing() -> None:
    graph = backward_net([4] * 9, [1] * 9)
    search = Search(Problem.of(graph, one_level(20, unit="byte")), time_limit=0)
    solve_recompute(search)
    assert search.best is None
    assert search.cut_off


def test_a_relaxation_that_calls_a_solved_game_impossible_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = backward_net([4] * 9, [1] * 9)
    problem = Problem.of(graph, one_level(20, unit="byte"))

    def nothing_fits(*_: object, **__: object) -> RelaxationResult:
        return RelaxationResult(float("inf"), None, True, impossible=True)

    monkeypatch.setattr(Relaxation, "solve", nothing_fits)
    search = Search(problem, time_limit=0.6)
    with pytest.warns(RefutedBound, match="no plan is legal"):
        solve_recompute(search)
    assert search.best is not None
    assert (search.bound, search.done) == (0, False)


def test_a_shortage_that_a_known_plan_refutes_does_not_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem.of(backward_net([4] * 9, [1] * 9), one_level(20, unit="byte"))
    known = Search(problem, time_limit=0.6)
    solve_recompute(known)

    def too_small(*_: object) -> None:
        raise Impossible("too small")

    monkeypatch.setattr("pebbler.solver.recompute.recompute_solver.require_room", too_small)
    search = Search(problem, time_limit=0.4)
    search.offer_plan(known.best)
    with pytest.warns(RefutedBound, match="too small"):
        solve_recompute(search)
    assert search.energy <= known.energy
