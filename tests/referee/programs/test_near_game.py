"""The least cost on a few near cells: against optima of small products, plans of larger ones, and the programs that there are."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
import pytest

from naive_near_game import least_cost
from pebbler.extras.cells.cell_program import CellProgram, distance
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.referee.programs import near_game, product_reads
from pebbler.referee.programs.near_game import least_near_cost, near_moves, potential
from pebbler.referee.programs.product_points import ProductPoints
from pebbler.referee.programs.product_reads import product_bound
from pebbler.solver.exact import solve_exact
from pebbler.solver.problem import Problem, Search
from pebbler.workloads import matmul

Box = tuple[int, int, int]
RECORDS = Path(__file__).parents[3] / "examples" / "records"
SMALL: list[tuple[Box, int]] = [
    *product([(1, 2, 1), (1, 3, 1), (2, 2, 1), (1, 1, 2), (1, 4, 1), (2, 3, 1)], (2, 3, 4)),
    *product([(1, 1, 3), (1, 2, 2)], (2, 3)),
    ((1, 1, 4), 2),
]


def near_cost(box: Box, cells: int) -> int:
    m, n, k = box
    return least_near_cost(cells, m * n * k, m * n * (k - 1), max(m, n))


def test_no_small_product_costs_less() -> None:
    least = {(box, cells): least_cost(box, cells) for box, cells in SMALL}
    assert all(near_cost(*game) <= cost for game, cost in least.items())
    assert sum(near_cost(*game) == cost for game, cost in least.items()) > 0.6 * len(SMALL)


def discounted(box: Box, cells: int, lower: int) -> int:
    m, n, k = box
    return near_game._least_parts(cells, m * n * k, m * n * (k - 1), max(m, n), lower)


def test_no_small_product_costs_less_where_copies_do() -> None:
    games: list[tuple[Box, int]] = [((2, 2, 1), 3), ((2, 3, 1), 3), ((2, 3, 1), 4)]
    least = [least_cost(*game, 6) for game in games]
    assert all(discounted(*game, 6) <= cost for game, cost in zip(games, least, strict=True))
    assert all(cost < 12 * least_cost(*game) for game, cost in zip(games, least, strict=True))  # elements are copied


def test_the_attack_finds_a_discount_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = near_moves
    monkeypatch.setattr(near_game, "near_moves", lambda cells: right(cells)._replace(moved=right(cells).copied * 0))
    near_game._least_parts.cache_clear()
    try:
        with pytest.raises(AssertionError):
            test_no_small_product_costs_less_where_copies_do()
    finally:
        near_game._least_parts.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("box", "cells"), [((1, 1, 4), 4), ((1, 2, 2), 4), ((2, 2, 2), 2), ((1, 3, 2), 3), ((1, 2, 3), 3)]
)
def test_no_larger_product_costs_less(box: Box, cells: int) -> None:
    assert near_cost(box, cells) <= least_cost(box, cells)


def test_the_attack_finds_a_rule_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without moves that overwrite an element with a product, programs would seem to cost more than they do."""
    moves = near_moves(4)
    holds = moves.held[np.repeat(np.arange(len(moves.first)), np.diff([*moves.first, len(moves.ends)]))]
    fewer = (moves.products == 1) & (moves.held[moves.ends] < holds)
    slow = moves._replace(cost=moves.cost + fewer)
    monkeypatch.setattr(near_game, "near_moves", lambda cells: slow)
    near_game._least_parts.cache_clear()
    try:
        with pytest.raises(AssertionError):
            test_no_small_product_costs_less()
    finally:
        near_game._least_parts.cache_clear()


def test_every_state_has_moves_and_more_cells_have_more_states() -> None:
    for cells in (1, 2, 3, 4):
        moves = near_moves(cells)
        assert (np.diff([*moves.first, len(moves.ends)]) > 0).all()
        assert len(moves.first) == [4, 37, 358, 3376][cells - 1]
        assert potential(moves, 48, 0, 1) == (0, -12, -24, -36)[cells - 1]  # what can be saved beyond 4 per op
        assert potential(moves, 60, 0, 1) is None


def test_the_programs_that_there_are_cost_more_near() -> None:
    for path in sorted(RECORDS.glob("*.ir")):
        box: Box = tuple(map(int, path.stem.split("x")))  # type: ignore[assignment]
        m, n, _ = box
        reads = Counter(map(distance, CellProgram.load(path).reads()))
        near = sum(min(far, 3) * count for far, count in reads.items())
        assert near >= near_cost(box, 4) + sum(max(0, m * n - room) for room in (0, 1, 4)), path.stem


def near_machine(second: int, prices: tuple[int, int, int], results: str = "over") -> Machine:
    one, two, far = prices
    levels = Level("one", one, 0, capacity=1), Level("few", two, 0, capacity=second), Level("far", far, 0)
    return Machine("near", "element", levels, "explicit", "any", results=results)  # type: ignore[arg-type]


def test_it_raises_the_bound_of_products_and_no_plan_is_below(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, raised = random.Random(3), 0
    for _ in range(20):
        graph = matmul(*rng.choice([(1, 2, 3), (1, 3, 2), (2, 2, 2), (1, 3, 3)]))
        prices = [1, 2, 3] if rng.random() < 0.5 else np.cumsum([rng.randint(1, 3) for _ in range(3)]).tolist()
        machine = near_machine(rng.randint(1, 2), prices, rng.choice(["apart", "over"]))
        bound = product_bound(Problem.of(graph, machine))
        with monkeypatch.context() as patch:
            patch.setattr(product_reads, "_near", lambda *given: 0)
            raised += product_bound(Problem.of(graph, machine)) < bound
        given = [one.name for one in graph.tensors if one.kind == "input"]
        placed = [msgspec.structs.replace(one, start=None) for one in graph.tensors]
        near = dict.fromkeys(given, "far") | dict(zip(rng.sample(given, 2), ("one", "few"), strict=True))
        search = Search(Problem.of(Graph(graph.name, graph.unit, placed, graph.ops), machine, start=near))
        solve_exact(search, max_states=3_000)
        assert bound <= search.energy
    assert raised >= 5


def test_other_sums_are_left_alone() -> None:
    """Three values added at once, one value twice, a sum that two ops read, or what comes from elsewhere: not this game."""

    def binary(*added: tuple[str, list[str]]) -> bool:
        graph = Graph("sums", unit="element")
        for name in ("x", "a0", "a1", "a2", "b0", "b1", "b2"):
            graph.tensor(name, 1, "input")
        for k in range(3):
            graph.tensor(f"p{k}", 1).op(f"times{k}", [f"a{k}", f"b{k}"], [f"p{k}"])
        graph.tensor("y", 1).op("elsewhere", ["x"], ["y"])
        for name, reads in added:
            graph.tensor(name, 1, "output").op(f"plus{name}", reads, [name])
        points = ProductPoints.of(graph.dataflow)
        return points is not None and product_reads._binary(graph.dataflow, points)

    assert binary(("s", ["p0", "p1"]), ("t", ["s", "p2"]))
    assert not binary(("s", ["p0", "p1", "p2"]))
    assert not binary(("s", ["p0", "p1"]), ("t", ["s"]))
    assert not binary(("s", ["p0", "p1"]), ("t", ["s", "p2"]), ("u", ["s", "y"]))
    assert not binary(("s", ["p0", "y"]))
