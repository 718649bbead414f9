"""Products with few points in a large box: orders that take as long as the points are many, and time limits that are kept."""

from __future__ import annotations

import time
from itertools import pairwise, product

import numpy as np
import pytest

from pebbler import check, solve
from pebbler.arrays import Ints
from pebbler.solver.products.loop_orders import Loop, changed_loops, first_loops, loops_of, nested_order
from triangular_solves import narrow_machine, triangular_solve


def walked(index: Ints, loops: tuple[Loop, ...]) -> list[int]:
    """The order of nested loops, walked block by block; a loop in which there is no point does not begin."""
    begun = [0] * len(loops)

    def go(depth: int, low: list[int], high: list[int], inside: list[int]) -> list[int]:
        if depth == len(loops) or not inside:
            return inside
        axis, block, turns = loops[depth]
        count = max(1, int((high[axis] - low[axis]) / block + 0.5))
        parts = list(pairwise(low[axis] + (high[axis] - low[axis]) * part // count for part in range(count + 1)))
        parts = parts[::-1] if turns and begun[depth] % 2 else parts
        begun[depth] += 1
        order = []
        for first, end in parts:
            kept = [point for point in inside if first <= index[point, axis] < end]
            lows, highs = list(low), list(high)
            lows[axis], highs[axis] = first, end
            order += go(depth + 1, lows, highs, kept)
        return order

    return go(0, [0, 0, 0], (index.max(axis=0) + 1).tolist(), list(range(len(index))))


def test_orders_are_those_of_loops_that_are_walked() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        sizes = rng.integers(1, 7, 3).tolist()
        points = np.array(list(product(*map(range, sizes))))
        kept = rng.permutation(len(points))[: rng.integers(1, len(points) + 1)]
        choices = first_loops(sizes)
        loops = choices[int(rng.integers(len(choices)))]
        for _ in range(3):
            assert nested_order(points[kept], loops).tolist() == walked(points[kept], loops)
            loops = changed_loops(rng, loops)


def test_a_large_box_of_few_points_is_ordered_at_once() -> None:
    points = np.stack([np.arange(20_000)] * 3, axis=1)
    began = time.process_time()
    assert sorted(nested_order(points, loops_of("i5k3jik")).tolist()) == list(range(20_000))
    assert time.process_time() - began < 2


@pytest.mark.parametrize("side", [15, 50, pytest.param(100, marks=pytest.mark.slow)])
def test_time_limits_are_kept_where_products_are_sparse(side: int) -> None:
    graph, machine = triangular_solve(side), narrow_machine()
    solve(graph, machine, time_limit=1, threads=1)  # loads the kernels
    began = time.process_time()  # on a busy machine the time on the clock says little
    plan = solve(graph, machine, time_limit=1, threads=1)
    assert time.process_time() - began < 2.1  # before the limit was looked at, minutes
    assert check(plan).legal
