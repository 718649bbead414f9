"""Bounds under `recency` from start values, which never leave the ranking: no order with reruns costs less."""

from __future__ import annotations

import random
from unittest import mock

import numpy as np
import pytest
from benchmarks.scale_graphs import make_graph, make_machine

from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.referee.kernels.cache_price import price
from pebbler.referee.pricing import cache_game
from pebbler.solver.bounds import ranked_starts
from pebbler.solver.bounds.ranked_starts import _Ranks, rank_costs
from pebbler.solver.large_caches import cache_bounds
from pebbler.solver.problem import Problem


def random_step(rng: random.Random, ops: int) -> Graph:
    """Return ops that mostly follow one another and read start values between, some of which are updated in place."""
    graph, made = Graph("step", unit="pebble"), list[str]()
    starts = [f"W{i}" for i in range(rng.randint(1, 4))]
    for name in starts:
        graph.tensor(name, rng.randint(1, 5), kind=rng.choice(["input", "param"]))
    for number in range(ops):
        reads = made[-1:] if rng.random() < 0.9 else []
        reads += [rng.choice(made)] if made and rng.random() < 0.5 else []
        reads += [rng.choice(starts)] if rng.random() < 0.7 or not reads else []
        reads = [] if rng.random() < 0.15 else rng.sample(sorted(set(reads)), len(set(reads)))
        own = rng.choice(starts)
        writes = [own] if rng.random() < 0.12 and graph.tensor_named(own).kind == "param" else []
        if not writes:
            writes = [f"v{number}_{j}" for j in range(rng.choice([1, 1, 1, 2]))]
            for name in writes:
                graph.tensor(name, rng.randint(1, 4), kind="output" if number == ops - 1 else "temp")
            made += writes
        graph.op(f"o{number}", reads, writes, rng.choice([0, 0, 0, 1, 20]), once=rng.random() < 0.1)
    return graph


def random_ranks(rng: random.Random) -> Machine:
    count = rng.randint(1, 3)
    prices = sorted(rng.randint(0, 12) for _ in range(count + 1))
    if rng.random() < 0.1:
        rng.shuffle(prices)
    levels = [Level(f"L{i}", prices[i], rng.randint(0, 3), capacity=rng.randint(1, 9)) for i in range(count)]
    return Machine("ranks", "pebble", (*levels, Level("last", prices[-1], 1)), "recency", "any")


def is_legal(graph: Graph, sequence: list[int]) -> bool:
    flow, ran = graph.dataflow, [False] * len(graph.ops)
    for op in sequence:
        touched = [*flow.op_reads.row(op), *flow.op_writes.row(op)]
        gone = any(flow.value_destroyer[v] != NONE and ran[flow.value_destroyer[v]] for v in touched)
        if (ran[op] and (gone or not flow.op_can_rerun[op])) or not all(ran[other] for other in flow.before.row(op)):
            return False
        ran[op] = True
    return all(ran)


def least(rng: random.Random, graph: Graph, machine: Machine, tries: int) -> float:
    """Return the least energy of some sequences with reruns, each changed from one before it."""
    game, now = cache_game(graph, machine, steady=False), list(range(len(graph.ops)))
    cost = best = price(game, np.array(now))
    for _ in range(tries):
        changed, kind = list(now), rng.random()
        if kind < 0.4:
            changed.insert(rng.randint(0, len(changed)), rng.randrange(len(graph.ops)))
        elif kind < 0.6:
            del changed[rng.randrange(len(changed))]
        else:
            at = rng.randrange(len(changed))
            moved = changed[at : at + rng.randint(1, 3)]
            del changed[at : at + len(moved)]
            to = rng.randint(0, len(changed))
            changed[to:to] = moved
        if not is_legal(graph, changed):
            continue
        found = price(game, np.array(changed))
        if found <= cost + rng.choice([0, 0, 2, 10]):
            now, cost = changed, found
        best = min(best, cost)
    return best


def attack(seed: int) -> tuple[bool, bool]:
    """Return whether an order costs less than the bound, and whether the bound is above the floor."""
    rng = random.Random(seed)
    graph, machine = random_step(rng, rng.randint(3, 9)), random_ranks(rng)
    problem = Problem.of(graph, machine, steady=False)
    (bound,) = cache_bounds(problem, lambda: 1.0)
    return bound.value > least(rng, graph, machine, 120) + 1e-9, "ranking" in bound.proof


def test_no_order_with_reruns_costs_less() -> None:
    found = [attack(seed) for seed in range(100)]
    assert not any(wrong for wrong, _ in found)
    assert sum(raised for _, raised in found) > 20


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_no_order_with_reruns_costs_less_in_thousands_of_cases(part: int) -> None:
    assert not any(attack(seed)[0] for seed in range(1_000 * (part + 1), 1_000 * (part + 2)))


def no_reruns(ranks: _Ranks) -> np.ndarray:
    return np.full(ranks.problem.graph.dataflow.values, np.inf)


def no_reads(self: _Ranks, value: np.ndarray, reads: np.ndarray, units: np.ndarray) -> np.ndarray:
    return COSTS(self, value, 0 * reads, units)


COSTS, FIRST = _Ranks.costs, _Ranks.first_reads
FAULTS = {
    "first reads of the floor touch nothing": ("costs", no_reads),
    "first reads count twice": ("first_reads", lambda self: 2 * FIRST(self)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_bound_is_found(fault: str) -> None:
    name, wrong = FAULTS[fault]
    with mock.patch.object(_Ranks, name, wrong):
        assert any(attack(seed)[0] for seed in range(300))


def test_a_value_that_costs_nothing_is_made_again_rather_than_read_from_below() -> None:
    graph = Graph("again", unit="pebble").tensor("W", 20, kind="param").tensor("v", 6)
    graph.tensor("a", 1).tensor("b", 1).tensor("c", 1, kind="output")
    graph.op("make", [], ["v"], 0).op("use", ["v"], ["a"], 0).op("pass", ["a", "W"], ["b"], 0).op(
        "end", ["b", "v"], ["c"], 0
    )
    machine = Machine("ranks", "pebble", (Level("near", 1, 0, capacity=8), Level("far", 10, 0)), "recency", "any")
    problem = Problem.of(graph, machine, steady=False)
    best = price(cache_game(graph, machine, steady=False), np.array([0, 1, 2, 0, 3]))
    assert cache_bounds(problem, lambda: 1.0)[0].value <= best
    with mock.patch.object(_Ranks, "_again", no_reruns):
        assert cache_bounds(problem, lambda: 1.0)[0].value > best


@pytest.mark.slow
def test_what_other_readers_touch_is_not_counted_for_a_value() -> None:
    def all_units(*arguments: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        windows, reads, owned = WINDOWS(*arguments)
        return windows, reads, 0 * owned

    WINDOWS = ranked_starts.touch_windows
    with mock.patch.object(ranked_starts, "touch_windows", all_units):
        assert any(attack(seed)[0] for seed in range(700))


def test_windows_are_what_dependences_say() -> None:
    """Within a window lie only ops that must run then, and on a chain all of these."""
    rng, windows_seen, exact = random.Random(1), 0, 0
    for _ in range(200):
        graph = random_step(rng, rng.randint(3, 14))
        flow = graph.dataflow
        ranks = _Ranks.of(Problem.of(graph, random_ranks(rng), steady=False))
        after, starts = flow.descendants, np.flatnonzero(flow.start_value != NONE).tolist()
        for (value, first, last), reads, units in zip(*ranks.windows(), strict=True):
            touching = [int(flow.value_maker[value]), *flow.value_readers.row(int(value)).tolist()]
            assert first in touching
            assert last in touching[1:]
            assert after[first] >> int(last) & 1
            free = [
                op
                for op in touching[1:]
                if op != first and not after[op] >> int(first) & 1 and not after[last] >> op & 1
            ]
            assert reads >= len(free)
            between = [op for op in range(flow.ops) if after[first] >> op & 1 and after[op] >> int(last) & 1]
            tensors = {
                t
                for op in between
                if op not in touching
                for t in flow.value_tensor[[*flow.op_reads.row(op), *flow.op_writes.row(op)]].tolist()
                if t in starts
            }
            most = int(flow.tensor_size[sorted(tensors)].sum())
            assert units <= most
            exact += units == most
            windows_seen += 1
    assert windows_seen > 300
    assert exact > windows_seen // 2


def test_deep_start_values_raise_the_bound_of_a_large_step() -> None:
    graph = make_graph("transformer", 2_000)
    machine = make_machine("recency-0.3", graph)
    problem = Problem.of(graph, machine, steady=False)
    (bound,) = cache_bounds(problem, lambda: 5.0)
    assert rank_costs(problem) > 0.05 * bound.value
