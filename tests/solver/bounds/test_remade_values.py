"""Values made again with params that have left: small training steps against their optima, and planted faults."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pebbler import workloads
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.referee.programs import remade_values
from pebbler.referee.programs.compulsory_traffic import ValuePrices, compulsory_traffic
from pebbler.referee.programs.eviction_cost import copy_out_and_in
from pebbler.referee.programs.remade_values import NOTHING_REMADE, ParamUpdate, RemadeValues
from pebbler.referee.programs.stay_moments import StayMoments, TightMoment
from pebbler.referee.programs.stay_program import StayFacts
from pebbler.referee.programs.wanted_values import stays
from pebbler.solver.bounds.many_moments import all_moments, searched_bound, tight_moments
from pebbler.solver.capacity import op_requirement
from pebbler.solver.exact import solve_exact
from pebbler.solver.problem import Impossible, Problem, Search


def small_step(rng: random.Random) -> Problem:
    """Return a training step of two or three layers, with odd sizes and edges, in little more room than its largest op needs."""
    layers = 2 if rng.random() < 0.95 else 3
    graph = Graph("step", unit="pebble")
    sizes = rng.choice([[1, 2, 2, 3], [1, 2, 3, 5, 5]])
    weight = [rng.choice(sizes) for _ in range(layers)]
    kept = [rng.choice([1, 1, 1, 2]) for _ in range(layers + 1)]
    costs = rng.choice([[0], [0], [0, 0, 1], [1, 2, 5]])

    def op(name: str, reads: list[str], size: int, kind: str = "temp") -> str:
        graph.tensor(name, size, kind)
        graph.op(f"make_{name}", reads, [name], cost=rng.choice(costs))
        return name

    for layer in range(layers):
        graph.tensor(f"W{layer}", weight[layer], "param")
    value = "x"
    graph.tensor("x", kept[0], "input")
    inputs, outputs = [], []
    for layer in range(layers):
        inputs.append(value)
        value = op(f"h{layer}", [f"W{layer}", value], kept[layer + 1])
        outputs.append(value)
        if rng.random() < 0.3:
            value = op(f"r{layer}", [value], kept[layer + 1])
    grad = op("dz", [value], kept[layers])
    for layer in reversed(range(layers)):
        if layer < layers - 1 and rng.random() < 0.85:
            grad = op(f"dr{layer}", [grad, rng.choice([outputs[layer], inputs[layer + 1]])], kept[layer + 1])
        op(f"dW{layer}", [grad, inputs[layer]], rng.choice([weight[layer], weight[layer], 1, 5]))
        if layer and rng.random() < 0.95:
            grad = op(f"dh{layer}", [f"W{layer}", grad], kept[layer])
    for layer in rng.sample(range(layers), layers):
        graph.op(f"update{layer}", [f"W{layer}", f"dW{layer}"], [f"W{layer}"], cost=rng.choice(costs))
    out, back = rng.choice([(1, 1), (1, 1), (0, 1), (2, 1)])
    unbounded = Machine("two", "pebble", (Level("fast", 0, 0, capacity=99), Level("slow", back, out)), "explicit")
    need = op_requirement(Problem.of(graph, unbounded))
    assert need is not None
    room = need.units + rng.randint(0, 5)
    two = Machine("two", "pebble", (Level("fast", 0, 0, capacity=room), Level("slow", back, out)), "explicit")
    return Problem.of(graph, two, steady=rng.random() < 0.8)


def optimum(problem: Problem, states: int = 400_000) -> float | None:
    search = Search(problem)
    try:
        solve_exact(search, max_states=states)
    except Impossible:
        return None
    return None if search.cut_off else search.energy


def bound_of(problem: Problem, remade: RemadeValues | None = None) -> float:
    """Return the bound of all moments with what is said of values made again, or with something else said of them."""
    flow, prices, capacity = problem.graph.dataflow, ValuePrices.of(problem), problem.machine.level[0].capacity
    assert capacity is not None
    found = stays(problem, prices)
    if remade is None:
        remade = remade_values.remade_values(flow, prices, found, capacity)
    listed = StayMoments(flow, capacity, found, remade)
    facts = StayFacts(compulsory_traffic(problem, prices), found, remade, listed)
    return searched_bound(facts.program(tight_moments(listed).items()), 10.0).value


def raised(seeds: range) -> int:
    """Return how many bounds are above those without values made again; none is above its optimum."""
    found = 0
    for seed in seeds:
        problem = small_step(random.Random(seed))
        bound = bound_of(problem)
        assert bound >= bound_of(problem, NOTHING_REMADE)
        if bound > bound_of(problem, NOTHING_REMADE):
            least = optimum(problem)
            if least is not None:
                assert bound <= least, f"seed {seed}: {bound} is above {least}"
                found += 1
    return found


def test_it_is_never_above_the_optimum_of_a_small_step() -> None:
    assert raised(range(300)) >= 5


@pytest.mark.slow
def test_it_is_never_above_the_optimum_of_thousands_of_steps() -> None:
    assert raised(range(1_000, 16_000)) >= 300


def everything_excludes(*_: object) -> bool:
    return True


def twice(prices: ValuePrices, level: int) -> float:
    return 2 * copy_out_and_in(prices, level)


def at_any_time(self: StayMoments, ran: int, waiting: int, inside: set[int]) -> tuple[int, ...]:
    return tuple(range(len(self.remade.remakings)))


def both_rooms(self: StayMoments, number: int, update: ParamUpdate) -> TightMoment:
    return replace(right_pair(self, number, update), room=0)


def whatever_stays(self: StayMoments, number: int, update: ParamUpdate) -> TightMoment:
    return replace(right_pair(self, number, update), pair=None)


def a_little_less_room(rooms: Any, capacity: int, *others: Any) -> bool:
    return right_excludes(rooms, capacity - 1, *others)


right_pair, right_excludes = StayMoments.pair, remade_values._excludes
# What is replaced by what; seeds are tried from some way before the first that shows it.
FAULTS: dict[str, tuple[object, str, Callable[..., object], int]] = {
    "any two params exclude each other": (remade_values, "_excludes", everything_excludes, 1_000),
    "what just fits does not fit": (remade_values, "_excludes", a_little_less_room, 2_000),
    "a copy out and in costs twice as much": (remade_values, "copy_out_and_in", twice, 5_400),
    "lineages are needed at any time": (StayMoments, "remakings", at_any_time, 1_000),
    "a pair leaves no room": (StayMoments, "pair", both_rooms, 1_000),
    "a pair is always there": (StayMoments, "pair", whatever_stays, 1_000),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_attack_finds_planted_faults(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, what, fault, first = FAULTS[name]
    for seed in range(first, first + 1_000):
        problem = small_step(random.Random(seed))
        right = bound_of(problem)
        with monkeypatch.context() as patched:
            patched.setattr(where, what, fault)
            wrong = bound_of(problem)
        least = optimum(problem) if wrong > right else None
        if least is not None and wrong > least:
            return
    raise AssertionError(f"not found: {name}")


def test_a_step_that_pages_has_to_store_its_activations() -> None:
    graph = workloads.get("deep-mlp:n=20,hidden=100,layers=8,batch=32")
    two = Machine("two", graph.unit, (Level("fast", 0, 0, capacity=30_000), Level("slow", 1, 1)), "explicit")
    problem = Problem.of(graph, two, steady=True)
    assert bound_of(problem, NOTHING_REMADE) == 177_114
    assert all_moments(problem, 10.0)[0].value == 205_514


def test_ops_that_read_many_changes_do_not_take_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiling of 36 ops has six million lineages with two params: a bound that may take a second took five minutes."""
    many, tried = range(24), []
    graph = Graph("step", unit="pebble").tensor("x", 1, "input")
    for i in many:
        graph.tensor(f"W{i}", 1, "param").tensor(f"h{i}", 1)
        graph.op(f"forward{i}", [f"W{i}", f"h{i - 1}" if i else "x"], [f"h{i}"])
    for i in many:
        graph.tensor(f"d{i}", 1).op(f"backward{i}", [f"W{i}", f"h{i}"], [f"d{i}"])
    for i in many:
        graph.op(f"update{i}", [f"W{i}", *(f"d{j}" for j in many)], [f"W{i}"])
    two = Machine("two", "pebble", (Level("fast", 0, 0, capacity=18), Level("slow", 1, 1)), "explicit")
    monkeypatch.setattr(remade_values, "_excludes", lambda *told: tried.append(told))
    bound_of(Problem.of(graph, two, steady=True))
    assert len(tried) == remade_values._MOST_TRIED
