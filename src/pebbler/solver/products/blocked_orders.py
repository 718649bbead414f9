"""Orders of a matrix product in blocks, for machines whose ops take operands from the fastest level.

A block of one matrix stays there while strips of the other two pass by: of sums while rows and columns pass, or of elements
while sums pass. Which block is best depends on how much room an op needs beside it, so several are paged and compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import permutations

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.dataflow import Dataflow
from pebbler.referee.programs.product_points import ProductPoints
from pebbler.solver.paging.demand_paging import demand_plan
from pebbler.solver.problem import Search
from pebbler.solver.products.loop_orders import Loop, Loops, nested_order

__all__ = ["block_loops", "offer_blocks", "op_order"]

_MOST_OPS = 20_000
_MOST_BLOCKS = 40
_SUMMED = 2  # the axis of sums, whose order the graph may fix


def offer_blocks(search: Search, seconds_left: Callable[[], float]) -> None:
    """Offer a product in blocks of several shapes, values evicted whose next use is farthest, as long as there is time."""
    problem, flow = search.problem, search.problem.graph.dataflow
    room = problem.machine.level[0].capacity
    if room is None or problem.machine.operands != "fastest" or flow.ops > _MOST_OPS:
        return
    points = ProductPoints.of(flow)
    if points is None or points.count <= min(len(points.left), len(points.right), len(points.sums)):
        return  # nothing is used twice, so that there is nothing to stay
    for loops in block_loops((points.index.max(axis=0) + 1).tolist(), room // points.unit):
        if seconds_left() <= 0 or search.done:
            return
        order = op_order(flow, points.makers[nested_order(points.index, loops)])
        search.offer_plan(demand_plan(problem, order, "farthest"))


def block_loops(sizes: list[int], room: int) -> list[Loops]:
    """Return loops over blocks of one matrix that fit into the room, those past which the least has to be carried first.

    >>> from pebbler.solver.products.loop_orders import loops_text
    >>> [loops_text(loops) for loops in block_loops([4, 4, 4], 10)][:3]
    ['i2j2k_ij', 'i2k2jik_', 'j2i2k_ji']
    """
    found: dict[Loops, float] = {}
    for one, other, passing in permutations(range(3)):
        for rows in _blocks(sizes[one]):
            for columns in _blocks(sizes[other]):
                if rows * columns > room:
                    break
                blocks = (Loop(one, rows, True), Loop(other, columns, True))
                loops = (
                    *(loop for loop in blocks if 1 < loop.block < sizes[loop.axis]),
                    *(Loop(axis, 1, axis != _SUMMED) for axis in (passing, one, other)),
                )
                found.setdefault(loops, 1 / rows + 1 / columns)
    return sorted(found, key=lambda loops: found[loops])[:_MOST_BLOCKS]


def op_order(flow: Dataflow, products: Ints) -> list[int]:
    """Return an order of all ops that makes products in this order, and runs everything else as soon as it can be run.

    >>> from pebbler import workloads
    >>> flow = workloads.matmul(1, 2, 2).dataflow
    >>> order = op_order(flow, ProductPoints.of(flow).makers[::-1])
    >>> len(order) == flow.ops, order[0] == int(ProductPoints.of(flow).makers[-1])
    (True, True)
    """
    missing = np.diff(flow.before.start).tolist()
    in_turn = set(products.tolist())
    asked: set[int] = set()
    order: list[int] = []

    def run(ready: list[int]) -> None:
        queue = deque(ready)
        while queue:
            op = queue.popleft()
            order.append(op)
            for later in flow.after.row(op).tolist():
                missing[later] -= 1
                if missing[later] == 0 and (later in asked or later not in in_turn):
                    queue.append(later)

    run([op for op in range(flow.ops) if missing[op] == 0 and op not in in_turn])
    for op in products.tolist():
        asked.add(op)
        if missing[op] == 0:
            run([op])
    return order


def _blocks(size: int) -> list[int]:
    """Return the block sizes that cut a length into parts as equal as possible."""
    return sorted({-(-size // parts) for parts in range(1, size + 1)})
