"""Annealed stretches: legal, the same outside, and where nothing is left to estimate, cheaper by just what is said."""

from __future__ import annotations

import random

import numpy as np
import pytest
from benchmarks.other_shapes import make_shape
from benchmarks.textbook import machine_for

from naive_orders import random_graph
from pebbler.arrays import Ints
from pebbler.game.machine import Level, Machine
from pebbler.solver.greedy_plans import GreedyPlanner
from pebbler.solver.problem import Problem
from pebbler.solver.structure.kernels.belady_moves import run_belady
from pebbler.solver.structure.kernels.bisection import simple_orders
from pebbler.solver.structure.kernels.near_orders import anneal_stretch
from pebbler.solver.structure.order_search import net_of


def test_annealed_stretches_are_legal_and_cost_what_is_said() -> None:
    rng = random.Random(5)
    cheaper = 0
    for seed in range(300):
        graph = random_graph(rng, rng.randint(4, 30))
        levels = (Level("fast", 1, 2, capacity=rng.randint(4, 20)), Level("slow", 10, 15))
        problem = Problem.of(graph, Machine("two", "pebble", levels), steady=rng.random() < 0.3)
        game, net, ops = GreedyPlanner.of(problem).game, net_of(graph.dataflow), len(graph.ops)
        start = simple_orders(net)[rng.randrange(5)]
        low, high = sorted(rng.sample(range(ops + 1), 2))
        beyond = rng.choice([0, 3, ops])
        if rng.random() < 0.5:  # nothing before the stretch and nothing after it is left out
            low, beyond = 0, ops
        found, gain = anneal_stretch(game, net, start, low, high, beyond, 40, rng.choice([0.0, 0.5]), seed)
        place = np.argsort(found)
        assert all(
            place[other] < place[op] for op, others in enumerate(graph.dataflow.before.lists()) for other in others
        )
        assert sorted(found.tolist()) == list(range(ops))
        assert found[:low].tolist() == start[:low].tolist()
        assert found[high:].tolist() == start[high:].tolist()
        before, after = (run_belady(game, order, 0, np.inf)[1] for order in (start, found))
        if low == 0 and beyond == ops and before < np.inf:
            assert gain >= 0
            assert after == pytest.approx(before - gain)
            cheaper += gain > 0
    assert cheaper > 20


def test_a_shuffled_table_is_put_in_order_by_moves_of_single_stretches() -> None:
    shape = make_shape("near", 400)
    machine = machine_for("two-0.1", shape)
    game, net = GreedyPlanner.of(Problem.of(shape.graph, machine, steady=False)).game, net_of(shape.graph.dataflow)
    order: Ints = np.arange(len(shape.graph.ops))
    before = price = run_belady(game, order, 0, np.inf)[1]
    for seed in range(20):
        low = 40 * (seed % 9)
        found, gain = anneal_stretch(game, net, order, low, low + 80, 40, 300, 0.3, seed)
        after = run_belady(game, found, 0, np.inf)[1]
        if gain > 0 and after < price:
            order, price = found, after
    assert price < 0.9 * before
