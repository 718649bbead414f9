"""Products in blocks: orders are legal and whole, and what they cost with little room."""

from __future__ import annotations

import math
import random

from benchmarks.gaps import matmul

from pebbler import workloads
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.referee.judgement import check
from pebbler.referee.programs.product_points import ProductPoints
from pebbler.solver.problem import Problem, Search
from pebbler.solver.products.blocked_orders import block_loops, offer_blocks, op_order
from pebbler.solver.products.loop_orders import nested_order


def pebbles(graph: Graph, room: int) -> Problem:
    levels = (Level("fast", 0, 0, capacity=room), Level("slow", 1, 1))
    return Problem.of(graph, Machine("pebbles", "pebble", levels, "explicit", "fastest"))


def test_every_order_runs_every_op_after_what_it_needs() -> None:
    rng = random.Random(3)
    for _ in range(20):
        sizes = [rng.randint(1, 5) for _ in range(3)]
        flow = workloads.matmul(*sizes).dataflow
        points = ProductPoints.of(flow)
        if points is None:  # a single row times a single column, say
            continue
        for loops in block_loops(sizes, rng.randint(1, 20)):
            order = op_order(flow, points.makers[nested_order(points.index, loops)])
            place = {op: at for at, op in enumerate(order)}
            assert len(place) == len(order) == flow.ops
            assert all(place[early] < place[op] for op in range(flow.ops) for early in flow.before.row(op).tolist())


def test_blocks_fit_and_the_squarest_come_first() -> None:
    for loops in block_loops([9, 9, 9], 12):
        blocks = [loop.block for loop in loops if loop.block > 1]
        assert math.prod(blocks) <= 12
    assert [loop.block for loop in block_loops([9, 9, 9], 12)[0]][:2] == [3, 3]


def test_a_product_in_ten_pebbles() -> None:
    search = Search(pebbles(matmul(4), 10))
    offer_blocks(search, lambda: 1.0)
    assert search.energy <= 68
    assert search.best is not None
    assert check(search.best).legal


def test_nothing_is_offered_for_other_graphs_or_without_time() -> None:
    for problem, left in ((pebbles(workloads.chain(9), 5), 1.0), (pebbles(matmul(3), 7), 0.0)):
        search = Search(problem, time_limit=100.0)
        offer_blocks(search, lambda left=left: left)
        assert search.best is None
