"""What pieces of products find near when one comes after the other: bounds by hand, and wrong ones that plans undercut."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest

from attacks import cheapest_order, transforms
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.machine import machine as named
from pebbler.game.plan import Plan
from pebbler.game.transform import tile
from pebbler.referee.judgement import check
from pebbler.referee.rows.elements import Elements
from pebbler.referee.rows.piece_rows import PieceRow, PieceRows
from pebbler.referee.rows.tile_range import TileRange
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.tiling_bound import tiled_bound
from pebbler.workloads import mlp


def products(extents: dict[str, int], *, second: bool = False, made: bool = False) -> Graph:
    """Return c = a b, and with `second` d = a c as well, which reads what the first product has made; b may be made once itself."""
    graph = Graph("products", unit="pebble")

    def tensor(name: str, axes: str, kind: str) -> None:
        size = 1
        for axis in axes:
            size *= extents[axis]
        graph.tensor(name, size, kind, axes=[(axis, extents[axis]) for axis in axes])  # type: ignore[arg-type]

    tensor("a", "ik", "input")
    tensor("b", "jk", "temp" if made else "param")
    tensor("c", "ij", "temp" if second else "output")
    if made:
        tensor("p", "", "param")
        graph.op("make", ["p"], ["b"], once=True)
    graph.op("mul", ["b", "a"], ["c"])
    if second:
        tensor("d", "jk", "output" if made else "temp")
        graph.op("back", ["c", "a"], ["d"])
        if not made:
            graph.op("step", ["b", "d"], ["b"])
    return graph


def caches(room: int) -> Machine:
    return Machine("rows", "pebble", (Level("near", 0, 0, capacity=room), Level("far", 10, 0)), "lru", "any")


def energies(extents: dict[str, int], sizes: dict[str, int], room: int, *, made: bool = False) -> tuple[float, float]:
    """Return the bound for tiles of some sizes, and what the pieces cost in an order of short steps."""
    graph = products(extents, made=made)
    form = graph
    for axis, size in sizes.items():
        form = tile(form, axis, size)
    rows, columns, sums = (-(-extents[axis] // sizes[axis]) for axis in "ijk")
    # Back and forth over the rows, and over all of it again for the next index that is summed over.
    there = [(i if j % 2 == 0 else rows - 1 - i, j) for j, i in product(range(columns), range(rows))]
    order = [(i, j, k) for k in range(sums) for i, j in (there if k % 2 == 0 else there[::-1])]
    places: dict[tuple[int, ...], list[str]] = {}
    for op in form.ops:
        at = [start // sizes[axis] for axis, (start, _) in sorted(op.meta["tile"]["at"].items())]
        # What makes a tile of b runs right before the first piece that reads it.
        place = tuple(at) if len(at) == 3 else next(one for one in order if list(one[1:]) == at)
        places.setdefault(place, []).append(op.name)
    names = [name for place in order for name in places[place]]
    judgement = check(Plan.in_order(form, caches(room), names, source=graph, steady=False))
    assert judgement.legal
    problem = Problem.of(graph, caches(room), steady=False)
    return tiled_bound(problem, sizes=sizes).energy, judgement.energy


def test_a_piece_of_a_product_finds_one_tile_of_the_piece_before():
    bound, energy = energies({"i": 3, "j": 3, "k": 3}, {"i": 1, "j": 1, "k": 1}, 3)
    # 27 pieces read a and b, 18 go on with c: 72 elements. Each finds one of its own, and the first one may find 3.
    assert (bound, energy) == (10 * (72 - 27 - 3), 10 * (72 - 26))


def test_rows_of_a_batch():
    graph = mlp(n=20, hidden=1000, batch=32)
    case = TileRange.of_sizes(graph, {"hidden": 4, "n": 4, "batch": 8})
    rows = PieceRows(Elements(graph, case.open, case.cut))
    forward, back = (
        next(k for k, op in enumerate(graph.ops) if op.name == name) for name in ("fwd_linear1", "bwd_dW1")
    )
    # 32 of x, or 32 of h_pre with 4 of b1, and W1 and b1 once, by their updates, beside what is there at first.
    both = frozenset({forward, back})
    assert rows.of(case, forward, 70) == PieceRow(each=36, more=70 + 20_000 + 1_000, ops=both)
    # dh_pre may be made again at any time; x or what is added up comes from the piece before.
    assert rows.of(case, back, 70) == PieceRow(each=32 + 32, more=70, ops=both)
    assert rows.of(case, back, 64) is None
    assert rows.of(case, forward, 100) is None  # a third tile may be there from before
    # 11.4 without any such row, 13.7 if what later runs fetch of x stands for the pieces of both ops.
    assert tiled_bound(Problem.of(graph, named("notes")), sizes={"hidden": 4, "n": 5, "batch": 4}).energy > 14.5e6


WRONG = {
    "nothing is shared": (lambda row: replace(row, each=0), 3, 1, False),
    "nothing is made in between": (lambda row: replace(row, more=0), 9, 2, True),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_version_is_undercut_by_a_plan(fault, monkeypatch):
    change, room, size, made = WRONG[fault]
    extents, sizes = {"i": 4, "j": 4, "k": 4}, {"i": 1, "j": size, "k": size}
    bound, energy = energies(extents, sizes, room, made=made)
    assert bound <= energy
    of = PieceRows.of
    monkeypatch.setattr(PieceRows, "of", lambda *args: change(row) if (row := of(*args)) is not None else None)
    assert energies(extents, sizes, room, made=made)[0] > energy


def attack(seed: int) -> None:
    rng = random.Random(seed)
    extents = {axis: rng.choice([2, 3, 3, 4, 5]) for axis in "ijk"}
    graph = products(extents, second=rng.random() < 0.5, made=rng.random() < 0.3)
    steady = rng.random() < 0.5
    for form, sizes in transforms(rng, graph, 4):
        tiles = [min(sizes.get(axis, extent), extent) for axis, extent in extents.items()]
        touched = tiles[0] * tiles[1] + tiles[1] * tiles[2] + tiles[0] * tiles[2]
        far = rng.choice([3, 10])
        levels = (
            Level("near", rng.choice([0, 1]), 0, capacity=max(1, touched + rng.randint(-3, 3))),
            Level("middle", rng.choice([1, 3]), rng.choice([0, 1]), capacity=rng.choice([touched, 2 * touched, 60])),
            Level("far", far, rng.choice([0, far])),
        )
        machine = Machine(
            "rows", "pebble", levels[:: rng.choice([1, 1, 2])], "lru", "any", allocator=rng.choice(["own", "reuse"])
        )
        plan = cheapest_order(rng, form, machine, graph, steady=steady, tries=40)
        bound = tiled_bound(Problem.of(graph, machine, steady=steady), sizes=sizes)
        assert check(plan).energy >= bound.energy, f"seed {seed}: a plan is below {bound} of tiles {sizes}"


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_of_products_is_below_its_bound(seed):
    attack(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 2000))
def test_no_plan_of_products_is_below_its_bound_in_many_cases(seed):
    attack(seed)
