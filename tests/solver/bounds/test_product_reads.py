"""The bound of matrix products against the optimum of small games, against plans of larger ones, and some figures known by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from typing import Any

import msgspec
import numpy as np
import pytest

from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import Moves
from pebbler.referee.judgement import check
from pebbler.referee.programs import product_reads
from pebbler.referee.programs.product_points import ProductPoints
from pebbler.referee.programs.product_reads import (
    ProductForm,
    least_entries,
    least_outside_reads,
    most_points,
    product_bound,
)
from pebbler.solver.bounds import bounds
from pebbler.solver.exact import solve_exact
from pebbler.solver.paging.demand_paging import demand_plan
from pebbler.solver.paging.sequence_search import PagingSearch
from pebbler.solver.problem import Impossible, Problem, Search

Points = list[tuple[int, int, int]]


def multiplied(points: Points, rng: random.Random, *, fused: bool, size: int = 1, kind: str = "input") -> Graph:
    """Return the graph of a matrix product with these points only; sums are added up in a random tree, or at once."""
    graph = Graph("product", unit="pebble")
    for name in dict.fromkeys(name for i, j, k in points for name in (f"a{i}.{k}", f"b{k}.{j}")):
        graph.tensor(name, size, kind)  # type: ignore[arg-type]
    for i, j in dict.fromkeys((i, j) for i, j, _ in points):
        terms: list[str] = []
        own = [point for point in points if point[:2] == (i, j)]
        for number, (_, _, k) in enumerate(own):
            before = terms if fused else []
            last = number == len(own) - 1 and (fused or len(own) == 1)
            name = f"t{i}.{j}.{k}"
            graph.tensor(name, size, "output" if last else "temp")
            graph.op(f"times{name}", [f"a{i}.{k}", f"b{k}.{j}", *before], [name])
            terms = [*([] if fused else terms), name]
        while len(terms) > 1:
            rng.shuffle(terms)
            one, other = terms.pop(), terms.pop()
            name = f"{one}+{other}"
            graph.tensor(name, size, "temp" if terms else "output")
            graph.op(f"plus{name}", [one, other], [name])
            terms.append(name)
    return graph


def random_points(rng: random.Random, most: int) -> Points:
    """Return some points of a small box, now and then all of them."""
    while True:
        box = [rng.randint(1, 3) for _ in range(3)]
        points = list(product(*map(range, box)))
        if rng.random() < 0.5:
            points = rng.sample(points, rng.randint(1, len(points)))
        if len(points) <= most:
            return points


def random_machine(rng: random.Random, least: int, size: int) -> Machine:
    """Return an explicit machine of two or three levels of which the fastest may hold little more than one op needs."""
    operands = rng.choice(["any", "any", "fastest"])
    levels = []
    for number in range(rng.choice([1, 1, 2])):
        room = size * rng.randint(0, 4) + (least if operands == "fastest" and not number else size)
        levels.append(Level(f"l{number}", rng.choice([0, 0, 1, 2]), rng.choice([0, 0, 1]), capacity=room))
    return Machine(
        "m", "pebble", (*levels, Level("far", rng.randint(0, 6), rng.choice([0, 0, 2]))), "explicit", operands
    )  # type: ignore[arg-type]


def small_game(seed: int, most: int, states: int) -> float | None:
    """Check the bound of one small game against its optimum; return how near it is, None where there is nothing to compare."""
    rng = random.Random(seed)
    size = rng.choice([1, 1, 1, 2])
    steady = rng.random() < 0.3
    graph = multiplied(
        random_points(rng, most), rng, fused=rng.random() < 0.4, size=size, kind="param" if steady else "input"
    )
    least = max(len(op.reads) + len(op.writes) for op in graph.ops) * size
    problem = Problem.of(graph, random_machine(rng, least, size), steady=steady)
    search = Search(problem)
    try:
        solve_exact(search, max_states=states)
    except Impossible:
        return None
    bound = product_bound(problem)
    assert bound <= search.energy, f"seed {seed}: {bound} is above {search.energy}"
    return None if search.cut_off or not search.energy else bound / search.energy


def test_it_is_never_above_the_optimum() -> None:
    near = [ratio for ratio in (small_game(seed, 6, 20_000) for seed in range(250)) if ratio is not None]
    assert len(near) >= 120
    assert sum(ratio > 0.7 for ratio in near) > 0.3 * len(near)


@pytest.mark.slow
def test_it_is_never_above_the_optimum_of_many_games() -> None:
    assert sum(small_game(seed, 8, 100_000) is not None for seed in range(1_000, 4_000)) >= 1_000


def copying_game(seed: int) -> float:
    """Check the bound where every read costs something and few elements fit into the nearest levels, so that copies pay.

    Elements start far away, or anywhere: then the optimum is the least over all starts. Returns how near the bound is.
    """
    rng = random.Random(seed)
    box = rng.choice([(2, 2, 1), (2, 2, 1), (1, 3, 1), (1, 4, 1), (1, 2, 2), (2, 3, 1), (1, 1, 3)])
    graph = multiplied(list(product(*map(range, box))), rng, fused=rng.random() < 0.3)
    few = (
        Level("few", rng.randint(1, 2), 0, capacity=1),
        Level("some", rng.randint(2, 4), 0, capacity=rng.randint(1, 3)),
    )
    levels = (*few[: rng.randint(1, 2)], Level("far", rng.randint(3, 9), 0))
    machine = Machine("m", "pebble", levels, "explicit", "any", results=rng.choice(["apart", "over"]))  # type: ignore[arg-type]
    given = [tensor.name for tensor in graph.tensors if tensor.kind == "input"]
    free = len(levels) ** len(given) < 100 and rng.random() < 0.7
    best = math.inf
    for where in product([level.name for level in levels], repeat=len(given)) if free else [("far",) * len(given)]:
        if any(where.count(level.name) > (level.capacity or len(given)) for level in levels):
            continue
        search = Search(Problem.of(graph, machine, start=dict(zip(given, where, strict=True))))
        solve_exact(search, max_states=20_000)
        best = min(best, search.energy)
    if free:
        tensors = [msgspec.structs.replace(one, start="free") if one.name in given else one for one in graph.tensors]
        graph = Graph(graph.name, graph.unit, tensors, graph.ops)
    bound = product_bound(Problem.of(graph, machine))
    assert bound <= best, f"seed {seed}: {bound} is above {best}"
    return bound / best


def test_copies_are_never_more_than_the_optimum_makes() -> None:
    near = [copying_game(seed) for seed in range(40)]
    assert sum(ratio > 0.85 for ratio in near) > 0.4 * len(near)


@pytest.mark.slow
def test_copies_are_never_more_than_the_optimum_of_many_games_makes() -> None:
    for seed in range(1_000, 6_000):
        copying_game(seed)


def test_the_attack_on_copies_finds_a_planted_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    right = product_reads._at_start
    monkeypatch.setattr(product_reads, "_at_start", lambda *given: max(0, right(*given) - 1))
    with pytest.raises(AssertionError, match="is above"):
        [copying_game(seed) for seed in range(40)]


def test_the_smallest_product_shows_how_low_it_is() -> None:
    graph = multiplied(list(product(range(2), repeat=3)), random.Random(0), fused=False)
    levels = Level("fast", 0, 0, capacity=6), Level("slow", 1, 1)
    problem = Problem.of(graph, Machine("two", "pebble", levels, "explicit", "fastest"), steady=False)
    search = Search(problem)
    solve_exact(search, max_states=400_000)
    assert (product_bound(problem), search.energy, search.done) == (8, 10, True)


def larger_game(seed: int) -> None:
    """Check the bound of a larger game against plans that go through the product tile by tile."""
    rng = random.Random(seed)
    box = [rng.randint(1, 5) for _ in range(3)]
    points = list(product(*map(range, box)))
    order, tile = rng.sample(range(3), 3), [rng.randint(1, 4) for _ in range(3)]

    def place(point: tuple[int, int, int]) -> tuple[list[int], list[int]]:
        outer = [point[axis] // tile[axis] for axis in order]
        return outer, [-point[axis] if sum(outer) % 2 else point[axis] for axis in order]

    points.sort(key=place)
    fused = rng.random() < 0.5
    size = rng.choice([1, 1, 1, 2])
    graph = multiplied(points, rng, fused=fused, size=size)
    # Sums are begun in the order of the points, and go on in it.
    rank = {f"t{i}.{j}.{k}": number for number, (i, j, k) in enumerate(points)}

    def due(op: int) -> float:
        (written,) = graph.ops[op].writes
        return max(rank[name] + 0.5 * ("+" in written) for name in written.split("+"))

    ops = sorted(range(len(graph.ops)), key=lambda op: (due(op), op))
    least = max(len(one.reads) + len(one.writes) for one in graph.ops) * size
    machine = random_machine(rng, least, size)
    problem = Problem.of(graph, machine, steady=False)
    bound = product_bound(problem)
    plan = demand_plan(problem, ops, "farthest")
    assert plan is None or bound <= check(plan).energy, f"seed {seed}"
    paging = PagingSearch(problem, lambda: 1.0)
    paged = paging.page(np.array(ops, np.int64))
    assert paged is None or bound <= check(paging.plan(paging.improve(paged, 1))).energy, f"seed {seed}"
    caches = Machine("caches", "pebble", machine.level, "lru", "any")
    for steady in (False, True):
        cached = Problem.of(graph, caches, steady=steady)
        energy = check(cached.plan(Moves.computes(graph, caches, ops))).energy
        assert product_bound(cached) <= energy, f"seed {seed}"


def test_no_plan_of_a_larger_product_is_below_it() -> None:
    for seed in range(60):
        larger_game(seed)


@pytest.mark.slow
def test_no_plan_of_many_larger_products_is_below_it() -> None:
    for seed in range(1_000, 4_000):
        larger_game(seed)


def elements_of(points: set[tuple[int, int, int]]) -> int:
    """Return how many elements of the three matrices a set of points has."""
    return sum(len({tuple(np.delete(point, axis)) for point in points}) for axis in range(3))


def stacks(side: int) -> Iterator[set[tuple[int, int, int]]]:
    """Yield all sets of points in a cube that hold with a point every one below, before and beside it."""
    rows = [row for row in product(range(side + 1), repeat=side) if list(row) == sorted(row, reverse=True)]
    for heights in product(rows, repeat=side):
        if all(low >= high for before, after in pairwise(heights) for low, high in zip(before, after, strict=True)):
            yield {(i, j, k) for i, row in enumerate(heights) for j, height in enumerate(row) for k in range(height)}


def test_points_are_as_many_as_their_elements_allow() -> None:
    # Pushing points together makes no projection larger, so stacks have the fewest elements for their number of points.
    every = [(elements_of(points), len(points)) for points in stacks(3) if points]
    for elements in range(3, 28):
        best = max(count for used, count in every if used <= elements)
        assert most_points((9, 9, 9), np.array([elements])).tolist() == [best]


def test_no_set_of_points_has_fewer_elements() -> None:
    rng = random.Random(5)
    for _ in range(300):
        side = rng.randint(2, 5)
        cube = list(product(range(side), repeat=3))
        points = set(rng.sample(cube, rng.randint(1, len(cube))))
        assert len(points) <= most_points((side**2,) * 3, np.array([elements_of(points)]))[0]


FAULTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a point less from as many elements": ("most_points", lambda points: np.maximum(points - 1, 0)),
    "one more sum is copied out": ("_copied_out", lambda units: units + 1),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_attack_finds_planted_faults(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    what, change = FAULTS[name]
    right = getattr(product_reads, what)
    monkeypatch.setattr(product_reads, what, lambda *given: change(right(*given)))
    with pytest.raises(AssertionError, match="is above"):
        [small_game(seed, 6, 20_000) for seed in range(1_000)]


def test_entries_are_never_more_than_a_tiled_product_needs() -> None:
    # C stays inside in tiles of c x c, columns of A and rows of B come in one after the other.
    for n, c in ((4, 1), (4, 2), (8, 2), (8, 4), (12, 3)):
        form = ProductForm(n**3, n * n, n * n, n * n, apart=False)
        assert least_outside_reads(form, c * c + c + 1, 0) <= 2 * n**3 // c
        assert least_entries(form, c * c + c + 1, 0) <= 2 * n**3 // c + n * n


def test_what_is_no_matrix_product_is_not_taken_for_one() -> None:
    rng = random.Random(1)
    assert ProductPoints.of(multiplied([(0, 0, 0), (0, 1, 0)], rng, fused=False).dataflow) is not None
    squares = Graph("squares", unit="pebble")  # every a with every b, twice: no two indices tell the products apart
    for name in ("a", "b"):
        squares.tensor(name, 1, "input")
    for name in ("s", "t"):
        squares.tensor(name, 1, "output")
        squares.op(f"times{name}", ["a", "b"], [name])
    assert ProductPoints.of(squares.dataflow) is None
    gram = Graph("gram", unit="pebble")  # what is on the left is on the right as well
    for name in ("x0", "x1"):
        gram.tensor(name, 1, "input")
    for one, other in (("x0", "x1"), ("x1", "x0")):
        gram.tensor(one + other, 1, "output")
        gram.op(f"times{one}{other}", [one, other], [one + other])
    assert ProductPoints.of(gram.dataflow) is None


def grid_bound(n: int) -> int:
    """Return the bound of an n x n x n product on cells where reading cell a costs ceil(sqrt(a)), results read once at the end."""
    form = ProductForm(n**3, n * n, n * n, n * n)
    total, side = 4 * n**3 - n * n, 1  # outside of no cells at all: every read
    while True:
        room = side * side
        ops = (2 * n**3 - n * n) * max(0, 2 - room)
        found = max(ops, least_outside_reads(form, room, room)) + max(0, n * n - room)
        if not found:
            return total
        total, side = total + found, side + 1


def test_the_distance_grid() -> None:
    assert grid_bound(4) >= 482
    assert grid_bound(16) >= 44_000


def test_machines_of_one_price_and_of_lines_are_left_alone() -> None:
    graph = multiplied(list(product(range(3), repeat=3)), random.Random(2), fused=False)
    free = Machine("free", "pebble", (Level("fast", 0, 0, capacity=4), Level("far", 0, 0)), "explicit", "any")
    assert product_bound(Problem.of(graph, free)) == 0
    lines = Machine("lines", "pebble", (Level("fast", 0, 0, capacity=4), Level("far", 9, 0)), "lru", "any", line=2)
    assert product_bound(Problem.of(graph, lines)) == 0
    pebbles = Machine("pebbles", "pebble", (Level("fast", 0, 0, capacity=5), Level("far", 1, 1)), "explicit", "fastest")
    assert bounds(Problem.of(graph, pebbles))[0].proof.startswith("matrix products")


def test_sums_written_over_inputs_need_not_be_there_at_the_end() -> None:
    """They were counted as copied out of the fast level: 70 was stated."""
    graph = Graph("outer", unit="pebble")
    for name in ("a0", "a1", "b0", "b1"):
        graph.tensor(name, 1, "input")
    for i, j in product("01", "01"):
        graph.tensor(f"c{i}{j}", 1, "input").op(f"times{i}{j}", [f"a{i}", f"b{j}"], [f"c{i}{j}"])
    fast, slow = Level("fast", 0, 0, capacity=3), Level("slow", 10, 10)
    problem = Problem.of(graph, Machine("two", "pebble", (fast, slow), "explicit", "fastest"))
    search = Search(problem)
    solve_exact(search)
    assert search.energy == 50
    assert product_bound(problem) <= 50
