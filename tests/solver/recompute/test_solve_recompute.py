"""The recomputation game against brute force on small games, and on stand-ins for real graphs."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from naive_game import NaiveGame, RandomGame, TooBig, random_game
from naive_recompute import memory_of
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.referee.judgement import check
from pebbler.solver.problem import Impossible, Problem, Search
from pebbler.solver.recompute import solve_recompute
from pebbler.solver.recompute.annealing import AnnealingSettings, improve
from pebbler.solver.recompute.least_capacity import least_capacity
from pebbler.solver.recompute.milestone_relaxation import Relaxation
from pebbler.solver.recompute.recompute_problem import ENDLESS, RecomputeProblem
from pebbler.solver.recompute.start_sequences import fit, low_memory_order

seeds = st.integers(0, 2**32 - 1)


def small_game(seed: int, max_ops: int = 7) -> RandomGame:
    """A random game on one level, tight enough that program order often does not fit."""
    rng = random.Random(seed)
    game = random_game(rng, max_ops, max_levels=1, steady=rng.random() < 0.5)
    graph = Graph("random", "pebble", game.graph.tensors, [])
    for op in game.graph.ops:
        graph.op(op.name, op.reads, op.writes, rng.choice([0, 1, 2, 5, 2.5]), once=op.once and rng.random() < 0.5)
    measured = RecomputeProblem.of(Problem.of(graph, one_level(ENDLESS >> 10)))
    peak = int(measured.measure(measured.program).memory.max())
    operands = rng.choice(["fastest", "any"])
    capacity = max(1, rng.randint(int(0.5 * peak), peak))
    return RandomGame(graph, one_level(capacity, operands), game.steady)


def one_level(capacity: int, operands: str = "fastest", unit: str = "pebble") -> Machine:
    return Machine("one", unit, (Level("fast", 1, 2, capacity=capacity),), operands=operands)


def backward_net(sizes: list[int], costs: list[int]) -> Graph:
    """A chain of layers and its backward pass, as in the graphs of Checkmate: each gradient reads two activations."""
    graph = Graph("net", unit="byte")
    for i, (size, cost) in enumerate(zip(sizes, costs, strict=True)):
        graph.tensor(f"a{i}", size)
        graph.op(f"f{i}", [f"a{i - 1}"] if i else [], [f"a{i}"], cost)
    last = len(sizes) - 1
    for i in range(last, -1, -1):
        graph.tensor(f"g{i}", sizes[i])
        reads = [f"a{i}", f"a{i + 1}", f"g{i + 1}"] if i < last else [f"a{i}"]
        graph.op(f"b{i}", reads, [f"g{i}"], 2 * costs[i])
    return graph


def optimum(game: RandomGame) -> float | None:
    return NaiveGame(game.graph, game.machine, game.steady).solve()


@given(seeds)
def test_measure_agrees_with_its_naive_twin(seed: int) -> None:
    rng = random.Random(seed)
    small = small_game(seed)
    game = RecomputeProblem.of(Problem.of(small.graph, small.machine))
    sequence = list(range(game.ops))
    for _ in range(rng.randint(0, 4)):
        sequence.insert(rng.randint(0, len(sequence)), rng.randrange(game.ops))
    if rng.random() < 0.5 and len(sequence) > 1:
        i = rng.randrange(len(sequence) - 1)
        sequence[i], sequence[i + 1] = sequence[i + 1], sequence[i]
    measured, naive = game.measure(sequence), memory_of(small.graph, sequence)
    assert measured.legal == (naive is not None)
    if naive is not None:
        assert measured.memory.tolist() == naive
        assert measured.over == sum(max(0, units - game.capacity) for units in naive)


@given(seeds)
@settings(max_examples=60)
def test_what_fits_is_legal(seed: int) -> None:
    small = small_game(seed, max_ops=14)
    problem = Problem.of(small.graph, small.machine, steady=small.steady)
    game = RecomputeProblem.of(problem)
    for order in (game.program, low_memory_order(game)):
        assert game.measure(order).legal
        fitted = fit(game, order)
        better = improve(game, fitted, AnnealingSettings.of(seed % 5, seed))
        before, after = game.measure(fitted), game.measure(better)
        assert after.legal
        assert (after.over, after.cost) <= (before.over, before.cost)
        if after.fits and game.arrays.size[game.at_start].sum() <= game.capacity:
            judgement = check(problem.plan(game.moves(better)))
            assert judgement.legal, judgement.error
            assert judgement.energy == pytest.approx(after.cost)


@given(seeds)
@settings(max_examples=100)
def test_relaxations_never_exceed_the_optimum(seed: int) -> None:
    rng = random.Random(seed)
    small = small_game(seed)
    best = optimum(small)
    relaxation = Relaxation(RecomputeProblem.of(Problem.of(small.graph, small.machine, steady=small.steady)))
    milestones: list[int] = []
    for op in rng.sample(range(len(small.graph.ops)), len(small.graph.ops)):
        milestones = relaxation.chained(milestones, op) or milestones
        answer = relaxation.solve(milestones)
        if best is not None:
            assert not answer.impossible
            assert answer.bound <= best + 1e-9
            # No claim that nothing is cheaper than what costs more than the optimum.
            assert not relaxation.solve(milestones, cheaper_than=best + 0.5).none_cheaper


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
    search = Search(Problem.of(graph, one_level(20, unit="byte")), time_limit=2)
    solve_recompute(search)
    assert search.best is not None
    assert search.bound <= search.energy <= 37
    runs = [move[1] for move in search.best.moves if move[0] == "compute"]
    assert max(runs.count(name) for name in runs) > 2


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
    assert [move[1] for move in search.best.moves if move[0] == "compute"] == [op.name for op in graph.ops]


def test_an_op_that_is_too_large_is_named_with_what_would_do() -> None:
    graph = backward_net([1, 10, 10, 1], [1, 1, 1, 1])
    with pytest.raises(Impossible, match=r"b1 needs 40 units at once; fast holds 39; the least that works is 40"):
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


@given(seeds)
@settings(max_examples=40)
def test_least_capacity_against_brute_force(seed: int) -> None:
    small = small_game(seed, max_ops=5)
    problem = Problem.of(small.graph, small.machine, steady=small.steady)
    least = least_capacity(problem)
    assert least.lower == least.upper
    assert check(least.plan).legal
    assert least.plan.machine.level[0].capacity == max(least.upper, 1)
    if least.lower > 1:
        level = msgspec.structs.replace(small.machine.level[0], capacity=least.lower - 1)
        machine = msgspec.structs.replace(small.machine, level=(level,))
        assert optimum(RandomGame(small.graph, machine, small.steady)) is None


def test_least_capacity_of_a_larger_graph_brackets_it() -> None:
    rng = random.Random(1)
    graph = backward_net([rng.randint(20, 90) for _ in range(20)], [1] * 20)
    least = least_capacity(Problem.of(graph, one_level(10**6, unit="byte")), time_limit=2)
    assert 1 <= least.lower <= least.upper
    assert check(least.plan).legal
    assert check(least.plan).peak["fast"] <= least.upper


def test_a_thousand_ops_fit_within_seconds() -> None:
    rng = random.Random(7)
    graph = backward_net([rng.randint(20, 90) for _ in range(500)], [rng.randint(1, 9) for _ in range(500)])
    program = RecomputeProblem.of(Problem.of(graph, one_level(10**9, unit="byte")))
    capacity = int(0.8 * program.measure(program.program).memory.max())
    fitted = fit(game := RecomputeProblem.of(Problem.of(graph, one_level(capacity, unit="byte"))), game.program)
    measured = game.measure(fitted)
    assert measured.fits
    assert measured.cost < 1.2 * game.base_cost


def test_several_levels_are_refused() -> None:
    graph = backward_net([1, 1], [1, 1])
    two = Machine("two", "byte", (Level("fast", 0, 0, capacity=9), Level("slow", 1, 1)))
    with pytest.raises(Exception, match="one level of memory, machine has 2"):
        RecomputeProblem.of(Problem.of(graph, two))


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
