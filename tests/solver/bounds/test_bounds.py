"""Every bound against the optimum of random games, and a few bounds known by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import pytest

from naive_game import NaiveGame, RandomGame, TooBig, random_game
from pebbler import workloads
from pebbler.arrays import Ints
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine, machine
from pebbler.referee.programs import moments
from pebbler.referee.programs.compulsory_traffic import ValuePrices
from pebbler.referee.programs.eviction_cost import EvictionTerm
from pebbler.solver.bounds import bounds
from pebbler.solver.bounds.sampled_moments import large_bounds
from pebbler.solver.exact import solve_exact
from pebbler.solver.problem import Impossible, Problem, Search


def gap(seed: int, max_ops: int) -> float | None:
    """Check all the bounds of one random game; return best bound / optimum, None when there is no plan to compare with."""
    rng = random.Random(seed)
    game = random_game(rng, max_ops, monotone=rng.random() < 0.8)
    return gap_of(seed, game)


def gap_of(seed: int, game: RandomGame) -> float | None:
    """Check all the bounds of a game."""
    problem = Problem.of(game.graph, game.machine, steady=game.steady, start=game.start)
    search = Search(problem)
    try:
        solve_exact(search, max_states=100_000)
    except Impossible:
        return None
    if search.cut_off:
        return None
    found = bounds(problem)
    assert found == sorted(found, key=lambda bound: -bound.value)
    for bound in [*found, *large_bounds(problem, lambda: 1.0)]:
        assert bound.value <= search.energy * (1 + 1e-12) + 1e-12, f"seed {seed}: {bound} is above {search.energy}"
    return found[0].value / search.energy if search.energy else 1.0


def test_no_bound_is_above_the_optimum() -> None:
    gaps = [ratio for ratio in (gap(seed, 6) for seed in range(500)) if ratio is not None]
    assert len(gaps) >= 400
    # They are worth having: most random games are proven by the bounds alone.
    assert sum(ratio > 1 - 1e-9 for ratio in gaps) >= 0.75 * len(gaps)


def narrow_middle(seed: int, max_ops: int) -> RandomGame:
    """Return a game whose levels between the first and the last hold little, with inputs that may start in any of them."""
    rng = random.Random(seed)
    game = random_game(rng, max_ops, max_levels=2, monotone=rng.random() < 0.8)
    first, last = game.machine.level[0], game.machine.level[-1]
    price = partial(rng.choice, [0, 1, 1, 2, 5, 10])
    middle = [Level(f"M{i}", price(), price(), capacity=rng.randint(1, 4)) for i in range(rng.choice([1, 1, 2]))]
    first = Level("first", first.read, first.write, capacity=first.capacity or rng.randint(2, 9))
    levels = (first, *middle, Level("last", last.read + price(), last.write + price()))
    start: dict[str, str | list[str]] = {}
    for tensor in game.graph.tensors:
        if tensor.kind == "input" and rng.random() < 0.5:
            start[tensor.name] = [level.name for level in rng.sample(levels[1:], rng.choice([1, 1, 2]))]
    machine = Machine("narrow", "pebble", levels, operands=game.machine.operands)
    return RandomGame(game.graph, machine, game.steady, start)


def narrow_gaps(seeds: Iterable[int], max_ops: int = 5) -> list[float]:
    ratios = [gap_of(seed, narrow_middle(seed, max_ops)) for seed in seeds]
    return [ratio for ratio in ratios if ratio is not None]


def test_no_bound_is_above_the_optimum_where_middle_levels_hold_little() -> None:
    gaps = narrow_gaps(range(200))
    assert len(gaps) >= 80
    assert sum(ratio > 1 - 1e-9 for ratio in gaps) >= 0.5 * len(gaps)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 20_000, 1_000))
def test_no_bound_is_above_the_optimum_of_thousands_where_middle_levels_hold_little(first: int) -> None:
    assert len(narrow_gaps(range(first, first + 1_000), 7)) >= 400


def half_a_room(machine: Machine) -> Ints:
    return right_rooms(machine) // 2


def takes_nothing(needed: Ints, paid: Ints) -> Ints:
    return right_shares(needed, paid) * 0


def sums(beyond: Ints) -> Ints:
    return np.cumsum(np.vstack([np.zeros_like(beyond[:1]), beyond]), axis=0)


def too_late(problem: Problem, prices: ValuePrices, level: int, *, at_end: bool) -> list[EvictionTerm]:
    return right_terms(problem, prices, level, at_end=True)


right_rooms, right_terms, right_shares = moments.bounded_rooms, moments.eviction_terms, moments._shares
# What is replaced by what; seeds are tried from some way before the first that shows it.
FAULTS: dict[str, tuple[object, str, Callable[..., object], int]] = {
    "levels hold half of what they hold": (moments, "bounded_rooms", half_a_room, 0),
    "every boundary is paid for separately": (moments, "by_place", sums, 290),
    "every moment is paid for separately": (moments, "_shares", takes_nothing, 0),
    "nothing can be made again": (moments, "eviction_terms", too_late, 430),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_attack_finds_planted_faults(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, what, fault, first = FAULTS[name]
    monkeypatch.setattr(where, what, fault)
    with pytest.raises(AssertionError, match="is above"):
        narrow_gaps(range(first, first + 1_000))


@pytest.mark.slow
def test_no_bound_is_above_the_optimum_of_thousands() -> None:
    assert sum(gap(seed, 8) is not None for seed in range(50_000, 56_000)) >= 4_000


@pytest.mark.slow
def test_no_bound_is_above_what_brute_force_finds() -> None:
    compared = 0
    for seed in range(1_000):
        game = random_game(random.Random(seed), 5)
        try:
            optimum = NaiveGame(game.graph, game.machine, game.steady, game.start).solve(20_000)
        except TooBig:
            continue
        if optimum is not None:
            problem = Problem.of(game.graph, game.machine, steady=game.steady, start=game.start)
            assert bounds(problem)[0].value <= optimum * (1 + 1e-12) + 1e-12, f"seed {seed}"
            compared += 1
    assert compared >= 700


def red_blue(capacity: int, io: float = 100) -> Machine:
    return Machine("game", "pebble", (Level("fast", 0, 0, capacity=capacity), Level("slow", io, io)))


def fan(once: bool) -> Graph:
    """Three values are made from one input, all are needed by the last op, and an op in between needs all the room."""
    graph = Graph("fan", "pebble")
    graph.tensor("x", 1, "input")
    graph.tensor("big", 2)
    for i in range(3):
        graph.tensor(f"v{i}", 1)
        graph.op(f"make{i}", ["x"], [f"v{i}"], cost=7, once=once)
    graph.op("widen", ["v0", "v1", "v2"], ["big"], cost=1)
    graph.tensor("small", 1)
    graph.op("narrow", ["big"], ["small"], cost=1)
    graph.tensor("out", 0, "output")
    graph.op("last", ["small", "v0", "v1", "v2"], ["out"], cost=1)
    return graph


def test_what_cannot_stay_is_stored_and_loaded_or_made_again_whichever_is_cheaper() -> None:
    # Across `narrow` (3 units of its own) 3 units are alive; of 5, 1 must go: round 200, or 7 to make it again.
    free = Problem.of(fan(once=False), red_blue(5), start={"x": "fast"})
    assert bounds(free)[0].value == pytest.approx(24 + 7)
    assert "narrow" in bounds(free)[0].proof
    fixed = Problem.of(fan(once=True), red_blue(5), start={"x": "fast"})
    assert bounds(fixed)[0].value == pytest.approx(24 + 200)


def test_params_of_a_steady_step_that_cannot_stay_go_round() -> None:
    graph = Graph("sgd", "pebble")
    for i in range(3):
        graph.tensor(f"W{i}", 2, "param")
        graph.op(f"upd{i}", [f"W{i}"], [f"W{i}"], cost=1)
    # 4 units: at any moment one of three params is out, and stored and loaded in every step. (In truth two take turns: 83.)
    problem = Problem.of(graph, red_blue(4, io=10), steady=True)
    assert bounds(problem)[0].value == 3 + 2 * 20
    search = Search(problem)
    solve_exact(search)
    assert search.energy == 83


def test_the_min_cut_sees_what_the_order_alone_does_not_fix() -> None:
    # `mid` comes after `first` and before `end`; `side` may run before it or after it, and either its argument or its result
    # is alive then. Only the cut knows that, not the order.
    graph = Graph("cut", "pebble")
    graph.tensor("x", 1, "input")
    for name, size in (("a", 2), ("b", 2), ("c", 1), ("m", 2)):
        graph.tensor(name, size)
    graph.tensor("out", 1, "output")
    graph.op("first", ["x"], ["a", "c"], cost=5, once=True)
    graph.op("side", ["a"], ["b"], cost=5, once=True)
    graph.op("mid", ["c"], ["m"], cost=1, once=True)
    graph.op("end", ["b", "m"], ["out"], cost=1)
    problem = Problem.of(graph, red_blue(5), start={"x": "fast"})
    assert bounds(problem)[0].value == 12
    tighter = Problem.of(graph, red_blue(4), start={"x": "fast"})
    # 3 of 4 units are taken by `mid`, 2 are wanted: half of a trip of 400.
    assert bounds(tighter)[0].value == 12 + 200
    assert bounds(tighter, cuts=0)[0].value == 12


def test_the_notes_training_step_is_proven_by_its_bound() -> None:
    assert bounds(Problem.of(workloads.note_mlp(), machine("notes-explicit"), steady=True))[0].value == 10_453_825


def test_bounds_of_a_thousand_ops_come_at_once() -> None:
    problem = Problem.of(workloads.chain(500), machine("red-blue"), start={"N0": "fast"})
    found = bounds(problem)
    assert found[0].value >= 1001
