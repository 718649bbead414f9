"""Reads before and after a moment: against all orders of small products, optima of small games, and the programs that there are."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from naive_room import least_outside
from pebbler.arrays import Ints
from pebbler.extras.cells.cell_program import CellProgram, distance
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.referee.programs import product_midway, product_reads
from pebbler.referee.programs.product_midway import Box, least_midway_reads
from pebbler.referee.programs.product_points import ProductPoints
from pebbler.referee.programs.product_reads import product_bound
from pebbler.solver.problem import Problem
from pebbler.workloads import matmul

RECORDS = Path(__file__).parents[3] / "examples" / "records"
SMALL: list[Box] = [(1, 1, 3), (1, 3, 1), (2, 2, 1), (1, 2, 2), (2, 2, 2), (2, 2, 3), (3, 2, 2), (1, 4, 2), (3, 3, 1)]


def best_order(box: Box, room: int, at_start: int) -> int:
    """Return the least that any order of the points needs, of the reads before and after its worst moment."""
    m, n, k = box
    points = list(product(range(m), range(n), range(k)))

    def elements(made: int) -> tuple[set[tuple[int, int, int]], set[tuple[int, int]]]:
        chosen = [point for number, point in enumerate(points) if made >> number & 1]
        return {e for i, j, q in chosen for e in ((0, i, q), (1, q, j))}, {point[:2] for point in chosen}

    every = (1 << len(points)) - 1
    cost = []
    for made in range(every + 1):
        touched, begun = elements(made)
        ahead, going_on = elements(every ^ made)
        after = max(0, len(ahead) + len(begun) - room)
        after = max(after, max(0, len(ahead) + len(begun & going_on) - room) + max(0, m * n - room))
        now = max(0, len(touched) - min(room, at_start)) + after if made else 0
        earlier = [cost[made ^ 1 << number] for number in range(len(points)) if made >> number & 1]
        cost.append(max(now, min(earlier, default=0)))
    return cost[every]


def test_no_order_of_a_small_product_needs_less() -> None:
    exact = 0
    for box in SMALL:
        m, n, k = box
        for room in range(1, m * k + k * n):
            for at_start in {0, room // 2, room}:
                found, least = least_midway_reads(box, room, at_start), best_order(box, room, at_start)
                assert found <= least, (box, room, at_start)
                exact += found == least
    assert exact > 20


def naive_midway(box: Box, room: int, at_start: int) -> int:
    """Return the best moment's least reads over all rows, columns, layers and numbers of elements done that the proof allows."""
    m, n, k = box
    moments = []
    for r in range(1, m * n + 1):
        least = []
        for x, y, p, q in product(range(m + 1), range(n + 1), range(k + 1), range(k + 1)):
            if x * n + y * m - x * y > r or (p and not x) or (q and not y):
                continue
            for done, a, b in product(range(x * p + y * q + 1), range(m + 1), range(n + 1)):
                touched = max(done + q * (m - x) + p * (n - y), k * (a + b))
                wanted = m * k + k * n - done + r
                after = max(0, wanted - min(r, a * b) - room) + max(0, m * n - room)
                least.append(max(0, touched - min(room, at_start)) + max(0, wanted - room, after))
        moments.append(min(least))
    return max(moments)


@pytest.mark.parametrize("box", [(2, 3, 2), (4, 2, 2), (1, 5, 2), (4, 1, 3), (3, 3, 2), (5, 3, 1)])
def test_the_least_is_over_every_number_of_elements_done(box: Box) -> None:
    m, n, k = box
    for room in range(1, m * k + k * n + m * n):
        for at_start in (0, room // 2, room):
            assert least_midway_reads(box, room, at_start) == naive_midway(box, room, at_start), (room, at_start)


def test_the_attack_on_orders_finds_a_planted_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """One element more is said to be touched once any are done."""
    right = product_midway._least_touched_too

    def more(box: Box) -> Ints:
        found = right(box)
        return found + (np.arange(found.shape[1]) > 0)

    monkeypatch.setattr(product_midway, "_least_touched_too", more)
    least_midway_reads.cache_clear()
    try:
        with pytest.raises(AssertionError):
            test_no_order_of_a_small_product_needs_less()
    finally:
        least_midway_reads.cache_clear()


def test_the_attack_on_orders_finds_sums_said_to_be_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sum fewer is said to be complete."""
    right = product_midway._crossings
    monkeypatch.setattr(product_midway, "_crossings", lambda m, n, lines: max(0, right(m, n, lines) - 1))
    least_midway_reads.cache_clear()
    try:
        with pytest.raises(AssertionError):
            test_no_order_of_a_small_product_needs_less()
    finally:
        least_midway_reads.cache_clear()


def one_room(box: Box, room: int) -> Problem:
    """Return a product on a machine that counts the reads from outside one room."""
    levels = Level("room", 0, 0, capacity=room), Level("far", 1, 0)
    return Problem.of(matmul(*box), Machine("room", "element", levels, "explicit", "any", results="over"))


def no_plan_is_below(games: list[tuple[Box, int]], monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Check bounds against optima; return how many are the optimum, and how many are higher by the reads at a moment."""
    exact = raised = 0
    for box, room in games:
        bound, least = product_bound(one_room(box, room)), least_outside(box, room)
        assert bound <= least, (box, room)
        exact += bound == least
        with monkeypatch.context() as patch:
            patch.setattr(product_reads, "least_midway_reads", lambda *given: 0)
            raised += product_bound(one_room(box, room)) < bound
    return exact, raised


def test_no_plan_of_a_small_product_reads_less(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes: list[Box] = [(1, 1, 3), (2, 2, 1), (1, 2, 2), (1, 3, 1)]
    games = [(box, room) for box in boxes for room in range(1, 6)]
    exact, raised = no_plan_is_below([*games, *(((2, 3, 1), room) for room in (2, 3, 4))], monkeypatch)
    assert exact >= 8
    assert raised >= 2


@pytest.mark.slow
def test_no_plan_of_a_larger_product_reads_less(monkeypatch: pytest.MonkeyPatch) -> None:
    no_plan_is_below([((2, 3, 1), 5), ((1, 1, 4), 4), ((1, 1, 4), 5)], monkeypatch)


def test_the_programs_that_there_are_read_more() -> None:
    for path in sorted(RECORDS.glob("*.ir")):
        box: Box = tuple(map(int, path.stem.split("x")))  # type: ignore[assignment]
        reads = Counter(map(distance, CellProgram.load(path).reads()))
        for side in range(1, max(reads) + 1):
            outside = sum(count for far, count in reads.items() if far > side)
            assert least_midway_reads(box, side**2, side**2) <= outside, (path.stem, side)


def test_only_whole_products_whose_results_are_read_together_count() -> None:
    graph = matmul(2, 2, 2)
    flow = graph.dataflow
    points = ProductPoints.of(flow)
    assert points is not None
    assert product_reads._gathered_box(flow, points) == (2, 2, 2)
    kept = [op for op in graph.ops if op.name != "exit"]
    apart = Graph("apart", graph.unit, graph.tensors, kept)
    found = ProductPoints.of(apart.dataflow)
    assert found is not None
    assert product_reads._gathered_box(apart.dataflow, found) is None
    assert least_midway_reads((64, 64, 64), 100, 100) == 0
