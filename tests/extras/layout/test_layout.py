"""Layouts of fixed orders: routes against brute force, plans against the referee and the optimum, bounds against layouts."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from pebbler.compiled import kernel
from pebbler.extras.layout.kernels.rerouting import fill, take_all
from pebbler.extras.layout.kernels.value_route import (
    LayoutArrays,
    Routes,
    cost_about,
    cost_of,
    empty_room,
    least_cost,
    route,
    scratch_for,
)
from pebbler.extras.layout.layout_arrays import can_lay_out
from pebbler.extras.layout.layout_search import Layout
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine, machine
from pebbler.referee.judgement import check
from pebbler.solver.exact import solve_exact
from pebbler.solver.problem import Problem, Search
from pebbler.workloads import matmul


def random_graph(rng: random.Random, ops: int) -> Graph:
    """Return a graph of single results with in-place updates, values read often, and outputs."""
    graph = Graph("random", unit="element")
    names = [f"x{i}" for i in range(rng.randint(1, 3))]
    sizes = rng.choice([(1,), (1, 2, 3)])
    size = {name: rng.choice(sizes) for name in names}
    for name in names:
        graph.tensor(name, size[name], "input", start=rng.choice(["free", None]))
    updated: set[str] = set()
    for number in range(ops):
        reads = rng.sample(names, min(len(names), rng.randint(1, 3)))
        if rng.random() < 0.2 and reads[0].startswith("t"):
            graph.op(f"op{number}", reads, [reads[0]])
            updated.add(reads[0])
            continue
        name = f"t{number}"
        size[name] = rng.choice(sizes)
        graph.tensor(name, size[name], "output" if rng.random() < 0.3 or number == ops - 1 else "temp")
        graph.op(f"op{number}", [*reads, *(reads[:1] if rng.random() < 0.1 else [])], [name])
        names.append(name)
    return graph


def random_machine(rng: random.Random, results: str = "apart") -> Machine:
    """Return an explicit machine of a few small levels."""
    reads = sorted(rng.randint(0, 5) for _ in range(rng.randint(1, 4)))
    levels = [Level(f"l{i}", read, rng.choice([0, 0, 1, 2]), rng.randint(1, 4)) for i, read in enumerate(reads)]
    return Machine(
        "m", "element", (*levels, Level("far", rng.randint(5, 9), rng.choice([0, 3]))), operands="any", results=results
    )  # type: ignore[arg-type]


def test_plans_of_layouts_are_legal_and_cost_what_the_layout_says() -> None:
    detours = 0
    for seed in range(60):
        rng = random.Random(seed)
        problem = Problem.of(random_graph(rng, rng.randint(2, 9)), random_machine(rng, rng.choice(["apart", "over"])))
        assert can_lay_out(problem)
        layout = Layout.of(problem, np.arange(len(problem.graph.ops)), rounds=20)
        layout.improve(100, seed)
        judgement = check(layout.plan())
        assert judgement.legal, f"seed {seed}: {judgement.error}"
        # A detour, where copies stand in each other's way, is not in the layout's own figure.
        assert judgement.energy >= layout.energy - 1e-6, f"seed {seed}"
        detours += judgement.energy > layout.energy + 1e-6
        assert layout.bound <= layout.energy + 1e-6, f"seed {seed}"
    assert detours <= 2


def game_against_optimum(seed: int) -> tuple[float, float] | None:
    """Return what a layout costs and the optimum of a small game with the common rules; None where that is not found."""
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(2, 5))
    fixed = Graph(graph.name, graph.unit)
    for tensor in graph.tensors:
        fixed.tensor(tensor.name, tensor.size, tensor.kind)
    for op in graph.ops:
        fixed.op(op.name, op.reads, op.writes)
    problem = Problem.of(fixed, random_machine(rng))
    search = Search(problem)
    solve_exact(search, 50_000)
    if not search.done:
        return None
    layout = Layout.of(problem, np.arange(len(fixed.ops)), rounds=20)
    layout.improve(200, seed)
    energy = check(layout.plan()).energy
    assert energy >= search.energy - 1e-9, f"seed {seed}"
    return energy, search.energy


def test_layouts_come_near_the_optimum() -> None:
    pairs = [pair for pair in map(game_against_optimum, range(40)) if pair is not None]
    assert len(pairs) > 25
    assert sum(energy <= best + 1e-9 for energy, best in pairs) > 0.6 * len(pairs)


@kernel
def least_route(arrays, room):  # type: ignore[no-untyped-def]
    return least_cost(arrays, room, 0, arrays.use_start[0], arrays.use_start[1])


def test_room_counted_in_digits_is_full_where_all_units_are_taken() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        levels, values, positions = int(rng.integers(1, 5)), int(rng.integers(1, 40)), int(rng.integers(3, 200))
        arrays = LayoutArrays(
            np.arange(levels, dtype=np.float64), np.zeros(levels), 2 * positions + 3, 3, np.ones(values, np.int64),
            2 * rng.integers(0, positions - 1, values) + 1, np.full(values, 2 * positions + 3), np.full(values, -1),
            np.ones(values, np.bool_), np.arange(values + 1), np.zeros(values, np.int64), np.ones(values, np.int64),
            np.array([0, 1]), np.array([0]),
        )  # fmt: skip
        arrays.use[:] = rng.integers((arrays.first + 1) // 2, positions + 1)
        arrays.end[:] = np.where(rng.random(values) < 0.8, 2 * arrays.use + 1, arrays.end)
        near = rng.integers(0, levels, 4 * values).astype(np.int8)
        far = np.where((rng.random(4 * values) < 0.3) & (near + 1 < levels), near + 1, -1).astype(np.int8)
        routes = Routes(near, far, np.zeros(values))
        capacity = rng.integers(1, 12, levels)
        plain = empty_room(capacity, arrays.slots, values, single=False)
        take_all(arrays, scratch_for(arrays), plain, routes)
        capacity = np.maximum(1, plain.taken.max(axis=1).astype(np.int64) - rng.integers(-1, 1, levels))
        room = empty_room(capacity, arrays.slots, values + 1, single=True)
        take_all(arrays, scratch_for(arrays), room, routes)
        bits = np.unpackbits(room.full.view(np.uint8), axis=1, bitorder="little")[:, : arrays.slots]
        assert (bits == (plain.taken == capacity[:, None])).all(), f"seed {seed}"


State = frozenset[int]


def naive_route(
    arrays: LayoutArrays, taken: np.ndarray, capacity: np.ndarray, fixed: dict[int, State] | None = None
) -> float:
    """Return the cheapest route of value 0 by trying all states of all segments: up to two levels each.

    In `fixed` segments it is where it is said to be, whether or not there is room.
    """
    fixed = fixed or {}
    levels, parts = len(arrays.read), arrays.parts
    states = [
        frozenset(x) for x in [*((a,) for a in range(levels)), *((a, b) for a in range(levels) for b in range(a))]
    ]
    spans, at = [], int(arrays.first[0])
    for use in arrays.use.tolist():
        spans.append((at, 2 * use, 0))
        if parts == 2:
            spans.append((2 * use, min(2 * use + 2, int(arrays.end[0])), 1))
        else:
            spans.append((2 * use, min(2 * use + 1, int(arrays.end[0])), 1))
            spans.append((spans[-1][1], min(2 * use + 2, int(arrays.end[0])), 2))
        at = spans[-1][1]
    spans.append((at, int(arrays.end[0]), 0))
    cost: dict[frozenset[int], float] = {}
    uses = 0
    for number, (first, end, kind) in enumerate(spans):
        now: dict[frozenset[int], float] = {}
        for state in states:
            if fixed.get(number, state) != state:
                continue
            if number not in fixed and any(
                taken[level, slot] + arrays.size[0] > capacity[level] for level in state for slot in range(first, end)
            ):
                continue
            if number == 0:
                begins = len(state) == 1 or number in fixed
                ways = [arrays.write[min(state)] * bool(arrays.made[0])] if begins else []
            else:
                ways = []
                for old, paid in cost.items():
                    new = state - old
                    if not new:
                        ways.append(paid)
                    elif (kind != 2 and len(new) == 1) or number in fixed:
                        ways.append(paid + min(arrays.read[level] for level in old) + sum(arrays.write[x] for x in new))
            if ways:
                reads = arrays.times[uses] * min(arrays.read[level] for level in state) if kind == 1 else 0.0
                now[state] = min(ways) + reads
        uses += kind == 1
        cost = now
    singles = [paid for state, paid in cost.items() if len(state) == 1 or len(spans) - 1 in fixed]
    return float(arrays.size[0] * min(singles)) if singles else -1.0


@pytest.mark.parametrize("parts", [2, 3])
def test_a_route_is_the_cheapest_there_is(parts: int) -> None:
    for seed in range(150):
        rng = np.random.default_rng(seed)
        levels, count = int(rng.integers(1, 5)), int(rng.integers(0, 4))
        positions = 12
        use = np.sort(rng.choice(np.arange(2, positions), count, replace=False)).astype(np.int64)
        size = int(rng.integers(1, 3))
        last = 2 * int(use[-1]) + (2 if parts == 2 else 1) if count else 4
        end = int(rng.choice([last, 2 * positions + 1]))
        arrays = LayoutArrays(
            np.sort(rng.integers(0, 6, levels)).astype(np.float64), rng.integers(0, 3, levels).astype(np.float64),
            2 * positions + 3, parts, np.array([size]), np.array([int(rng.choice([0, 3]))]), np.array([end]),
            np.array([int(rng.choice([-1, rng.integers(levels)]))]), np.array([bool(rng.integers(2))]),
            np.array([0, count]), use, rng.integers(1, 3, count), np.array([0, 1]), np.array([0]),
        )  # fmt: skip
        if arrays.begin[0] != -1 and arrays.made[0]:
            continue
        capacity = rng.integers(size, 4, levels)
        room = empty_room(capacity, arrays.slots, 9, size == 1)
        taken = ((rng.random((levels, arrays.slots)) < 0.1) * capacity[:, None]).astype(np.int32)
        room.taken[:] = taken[:, : room.taken.shape[1]]
        for level, slot in product(range(levels), range(arrays.slots)):
            if taken[level, slot] >= capacity[level]:
                room.full[level, slot >> 6] |= np.uint64(1) << np.uint64(slot & 63)
        rows = parts * count + 1
        routes = Routes(np.zeros(rows, np.int8), np.full(rows, -1, np.int8), np.zeros(1))
        toll = np.zeros((levels, arrays.slots + 1))
        if arrays.begin[0] != -1:  # the brute force knows no start; block the other levels in the first slot
            for level in range(levels):
                if level != arrays.begin[0]:
                    taken[level, arrays.first[0]] = 99
        least = least_route(arrays, room)
        found = fill(arrays, scratch_for(arrays), room, toll, 0.0, routes, np.array([0]))
        wanted = naive_route(arrays, taken, capacity)
        if arrays.begin[0] != -1 and arrays.first[0] == 2 * (use[0] if count else 99):
            continue
        assert found == pytest.approx(wanted), f"seed {seed}"
        assert least <= found + 1e-9 or found < 0, f"seed {seed}"  # a change is given up once the least is too much


@kernel
def part_of_route(arrays, scratch, room, toll, routes, low, high):  # type: ignore[no-untyped-def]
    """Choose a part of value 0's route anew; return what it cannot cost less than, and whether there is one."""
    least = cost_of(arrays, routes, 0) - cost_about(arrays, routes, 0, low, high)
    least += least_cost(arrays, room, 0, low, high)
    return least, route(arrays, scratch, room, toll, 0.0, routes, 0, low, high)


def states_of(routes: Routes) -> list[State]:
    return [
        frozenset(x for x in pair if x >= 0) for pair in zip(routes.near.tolist(), routes.far.tolist(), strict=True)
    ]


@pytest.mark.parametrize("parts", [2, 3])
def test_a_part_of_a_route_is_the_cheapest_beside_what_stays(parts: int) -> None:
    tried = 0
    for seed in range(500):
        rng = np.random.default_rng(seed)
        levels, count, positions = int(rng.integers(1, 5)), int(rng.integers(2, 7)), 14
        use = np.sort(rng.choice(np.arange(2, positions), count, replace=False)).astype(np.int64)
        last = 2 * int(use[-1]) + (2 if parts == 2 else 1)
        arrays = LayoutArrays(
            np.sort(rng.integers(0, 6, levels)).astype(np.float64), rng.integers(0, 3, levels).astype(np.float64),
            2 * positions + 3, parts, np.array([1]), np.array([int(rng.choice([0, 3]))]),
            np.array([int(rng.choice([last, 2 * positions + 1]))]), np.array([-1]), np.array([bool(rng.integers(2))]),
            np.array([0, count]), use, rng.integers(1, 3, count), np.array([0, 1]), np.array([0]),
        )  # fmt: skip
        capacity, rows = np.ones(levels, np.int64), parts * count + 1
        scratch, toll = scratch_for(arrays), np.zeros((levels, arrays.slots + 1))
        routes = Routes(np.zeros(rows, np.int8), np.full(rows, -1, np.int8), np.zeros(1))
        low = int(rng.integers(0, count))
        high = int(rng.integers(low + 1, count + 1))
        rooms, found = [], False
        for share in (0.15, 0.25):  # of the slots that are full: when all of it is routed, and then when a part is
            taken = (rng.random((levels, arrays.slots)) < share).astype(np.int32)
            room = empty_room(capacity, arrays.slots, 9, single=True)
            for level, slot in zip(*np.nonzero(taken), strict=True):
                room.full[level, slot >> 6] |= np.uint64(1) << np.uint64(slot & 63)
            rooms.append((taken, room))
        if fill(arrays, scratch, rooms[0][1], toll, 0.0, routes, np.array([0])) < 0:
            continue
        before = states_of(routes)
        fixed = {k: state for k, state in enumerate(before) if not parts * low <= k <= parts * high}
        least, found = part_of_route(arrays, scratch, rooms[1][1], toll, routes, low, high)
        wanted = naive_route(arrays, rooms[1][0], capacity, fixed)
        assert found == (wanted >= 0), f"seed {seed}"
        if found:
            assert routes.cost[0] == pytest.approx(wanted), f"seed {seed}"
            assert least <= wanted + 1e-9, f"seed {seed}"
            after = states_of(routes)
            assert all(after[k] == state for k, state in fixed.items()), f"seed {seed}"
            tried += after != before
    assert tried > 40


def test_a_saved_layout_is_gone_on_from() -> None:
    for results in ("apart", "over"):
        problem = Problem.of(
            matmul(2, 2, 2), Machine("m", "element", machine("grid").level, operands="any", results=results)
        )  # type: ignore[arg-type]
        layout = Layout.of(problem, np.arange(len(problem.graph.ops)), rounds=20)
        layout.improve(400, seed=1)
        again = Layout.from_plan(problem, layout.plan())
        assert again is not None
        assert again.energy <= layout.energy


def test_where_there_are_no_layouts() -> None:
    fast = Machine("m", "element", (Level("a", 0, 0, 3), Level("b", 1, 1)), operands="fastest")
    assert not can_lay_out(Problem.of(matmul(1, 1, 2), fast))
    graph = Graph("two", unit="element").tensor("a", 1, "input").tensor("b", 1, "output").tensor("c", 1, "output")
    graph.op("f", ["a"], ["b", "c"])
    assert not can_lay_out(Problem.of(graph, "grid"))
