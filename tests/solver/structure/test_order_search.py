"""Orders from structure: legal whatever the graph, local where there is structure, and as good as a textbook's."""

from __future__ import annotations

import random

import numpy as np
import pytest
from benchmarks.other_shapes import OTHERS, make_shape
from benchmarks.structured_graphs import SHAPES
from benchmarks.textbook import machine_for

from naive_orders import random_graph
from pebbler.arrays import Ints
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.referee.judgement import check
from pebbler.solver.greedy_plans import GreedyPlanner
from pebbler.solver.paging.demand_paging import demand_plan
from pebbler.solver.problem import Problem
from pebbler.solver.structure.kernels.belady_moves import run_belady
from pebbler.solver.structure.kernels.bisection import bisect, simple_orders, strips
from pebbler.solver.structure.kernels.cut_moves import Cutting
from pebbler.solver.structure.order_search import OrderSearch, net_of

PLENTY = 10**12


def is_legal(graph: Graph, order: Ints) -> bool:
    place = {int(op): at for at, op in enumerate(order)}
    before = graph.dataflow.before.lists()
    return sorted(place) == list(range(len(graph.ops))) and all(
        place[other] < place[op] for op, others in enumerate(before) for other in others
    )


def test_orders_of_random_graphs_are_legal_whatever_the_stretch_and_the_work() -> None:
    rng = random.Random(0)
    for _ in range(150):
        graph = random_graph(rng, rng.randint(1, 40))
        net, ops = net_of(graph.dataflow), len(graph.ops)
        walks = simple_orders(net)
        assert all(is_legal(graph, walk) for walk in walks)
        start = walks[rng.randrange(len(walks))]
        low, high = sorted(rng.sample(range(ops + 1), 2))
        blend, room, wide = rng.choice([0.0, 0.3, 1.0]), rng.choice([0.0, 5.0]), rng.choice([0.0, 4.0])
        cutting = Cutting(rng.uniform(0.1, 0.5), rng.uniform(0.5, 0.9), 1.0, blend, room, wide)
        work = rng.choice([0, 100, PLENTY])
        for order in (
            bisect(net, start, low, high, cutting, work)[0],
            strips(net, start, low, high, rng.randrange(5), float(rng.randint(1, 20)), work)[0],
        ):
            assert is_legal(graph, order)
            assert order[:low].tolist() == start[:low].tolist()
            assert order[high:].tolist() == start[high:].tolist()


def test_strips_of_a_table_take_some_rows_at_a_time() -> None:
    shape = make_shape("wavefront", 400)
    order = strips(net_of(shape.graph.dataflow), np.arange(400), 0, 400, 0, 15.0, PLENTY)[0]
    machine = Machine("two", "pebble", (Level("fast", 0, 0, capacity=15), Level("slow", 1, 1)))
    game = GreedyPlanner.of(Problem.of(shape.graph, machine)).game
    assert run_belady(game, order, 0, np.inf)[1] < 0.7 * run_belady(game, np.arange(400), 0, np.inf)[1]


def test_parts_without_a_value_in_common_are_taken_apart() -> None:
    graph = Graph("combs", unit="pebble")
    for i in range(60):  # three chains in turns
        graph.tensor(f"v{i}", 1)
        graph.op(f"o{i}", [f"v{i - 3}"] if i >= 3 else [], [f"v{i}"])
    order = bisect(net_of(graph.dataflow), np.arange(60), 0, 60, Cutting(0.3, 0.7, 1.0, 0.0, 0.0, 0.0), PLENTY)[0]
    assert [op % 3 for op in order.tolist()] == [0] * 20 + [1] * 20 + [2] * 20


def test_belady_by_a_kernel_is_belady_by_a_heap_and_what_the_referee_says() -> None:
    rng = random.Random(1)
    compared = 0
    for _ in range(300):
        graph = random_graph(rng, rng.randint(2, 25))
        levels = (Level("fast", 1, 2, capacity=rng.randint(4, 20)), Level("slow", 10, 15))
        problem = Problem.of(graph, Machine("two", "pebble", levels), steady=False)
        planner = GreedyPlanner.of(problem)
        order = simple_orders(net_of(graph.dataflow))[rng.randrange(5)]
        plain, rows = demand_plan(problem, order.tolist(), "farthest"), planner.belady(order)
        assert (plain is None) == (rows is None)
        if plain is None or rows is None:
            continue
        judged = check(planner.plan_of(rows))
        assert judged.legal, judged.error
        price = run_belady(planner.game, order, 0, np.inf)[1]
        assert judged.energy == price == check(plain).energy
        copies = price - graph.dataflow.op_cost.sum()
        assert run_belady(planner.game, order, 0, copies)[1] == price
        assert not copies or run_belady(planner.game, order, 0, copies - 1)[1] == np.inf
        compared += 1
    assert compared > 100


def searched(name: str, ops: int, tries: int) -> tuple[float, float]:
    """Return what the search finds by Belady's rule, and the best of the shape's own orders."""
    shape = make_shape(name, ops)
    machine = machine_for("two-0.1", shape)
    game = GreedyPlanner.of(Problem.of(shape.graph, machine, steady=False)).game

    def price(order: Ints, bound: float) -> float:
        return float(run_belady(game, order, 0, bound)[1])

    search = OrderSearch(shape.graph.dataflow, [float(machine.level[0].capacity or 0)], price, lambda: float("inf"))
    search.explore()
    search.improve(tries)
    assert is_legal(shape.graph, search.best)
    return search.price, min(price(np.array(order), np.inf) for order in shape.orders().values())


@pytest.mark.parametrize("name", ["tree", "fft", "stencil", "experts", "scan", "three-words", "sweeps"])
def test_orders_are_as_good_as_a_textbook_s(name: str) -> None:
    ours, textbook = searched(name, 900, 300)
    assert ours <= 1.05 * textbook


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SHAPES, *OTHERS])
def test_orders_of_every_shape_are_as_good_as_a_textbook_s(name: str) -> None:
    ours, textbook = searched(name, 3_000, 900)
    assert ours <= 1.05 * textbook


def test_no_time_means_program_order_alone() -> None:
    shape = make_shape("fft", 300)
    tried: list[Ints] = []

    def price(order: Ints, bound: float) -> float:
        tried.append(order)
        return 1.0

    search = OrderSearch(shape.graph.dataflow, [10.0], price, lambda: 0.0)
    search.explore()
    search.improve(10)
    assert len(tried) == 1
    assert tried[0].tolist() == list(range(len(shape.graph.ops)))
