"""Products that are cut into tiles of few elements: no plan reads less from outside than the bound says."""

from __future__ import annotations

import random
from itertools import permutations

import numpy as np
import pytest

from ordered_plans import least_energy, tiled
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine, machine
from pebbler.game.tile_meta import tile_of
from pebbler.referee.rows.elements import Elements
from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.product_traffic import product_reads
from pebbler.referee.rows.tile_products import largest_piece, product_families, tile_products
from pebbler.referee.rows.tile_range import TileRange
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.tiling_bound import RangeSearch, tiled_bound
from pebbler.workloads import attention, mlp


def random_product(rng: random.Random) -> tuple[Graph, dict[str, int]]:
    """Return a product of two matrices, perhaps with a bias, a batch, a second product, a pointwise op, an update; and tiles."""
    plain = rng.random() < 0.4  # nothing but a product of single elements: there the bound is nearest
    extents = {axis: rng.randint(4, 9) if plain else rng.randint(2, 7) for axis in "ijk"}
    extents["h"] = 1 if plain else rng.choice([1, 1, 2])
    graph = Graph("product", unit="pebble")
    batch = "h" if extents["h"] > 1 else ""

    def tensor(name: str, axes: str, kind: str) -> None:
        shape = [(axis, extents[axis]) for axis in axes]
        graph.tensor(name, int(np.prod([extent for _, extent in shape], dtype=np.int64)), kind, axes=shape)  # type: ignore[arg-type]

    kinds = ["param", "input"]
    tensor("A", batch + "ik", rng.choice(kinds))
    tensor("B", batch + "kj", rng.choice(kinds))
    tensor("bias", "j", "param")
    more = not plain and rng.random() < 0.4
    tensor("C", batch + "ij", "temp" if more else "output")
    added = ["bias"] if rng.random() < 0.3 else []
    graph.op("times", ["A", "B", *added], ["C"], meta={"adds": added} if added else {})
    if more:
        tensor("D", batch + "ij", "output")
        graph.op("point", ["C"], ["D"], pointwise=rng.random() < 0.5)
    if not plain and rng.random() < 0.3:
        tensor("E", batch + "ij", "output")
        graph.op("again", ["A", "B"], ["E"])
    if graph.tensor_named("A").kind == "param" and rng.random() < 0.4:
        graph.op("update", ["A"], ["A"], pointwise=True)
    sizes = {axis: 1 if plain else rng.randint(1, 3) for axis in "ijk" if plain or rng.random() < 0.85}
    return graph, {axis: size for axis, size in sizes.items() if size < extents[axis]}


def loop_orders(graph: Graph, rng: random.Random) -> list[list[int]]:
    """Return the ops in loops over their tiles: every nesting, back and forth along axes that are not summed over."""
    found = []
    for axes in permutations("ijk"):
        snake = rng.random() < 0.7
        block = {axis: rng.choice([1, 2, 3, 4, 99]) for axis in "ijk"}  # elements in blocks, blocks in loops

        def place(
            op: int, axes: tuple[str, ...] = axes, snake: bool = snake, block: dict = block
        ) -> tuple[object, ...]:
            known = tile_of(graph.ops[op])
            at = {axis: known.at[axis][0] if known is not None and axis in known.at else 0 for axis in "ijk"}
            row, turned = [], False
            loops = [(axis, at[axis] // block[axis]) for axis in axes] + [(axis, at[axis]) for axis in axes[::-1]]
            for axis, index in loops:
                row.append(-index if snake and turned and axis != "k" else index)
                turned ^= bool(index % 2)
            return (*row, op)

        first = [op for op in range(len(graph.ops)) if graph.ops[op].name.startswith("times")]
        found.append([*sorted(first, key=place), *(op for op in range(len(graph.ops)) if op not in set(first))])
        found.append(sorted(range(len(graph.ops)), key=place))
    return found


def random_levels(rng: random.Random, management: str) -> Machine:
    """Return two or three levels of which the first holds a few elements."""
    levels = [Level("near", rng.choice([0, 1, 5]), rng.choice([0, 0, 1]), capacity=rng.randint(2, 16))]
    if rng.random() < 0.4:
        levels.append(Level("middle", rng.choice([2, 8, 20]), rng.choice([0, 2]), capacity=rng.randint(8, 60)))
    levels.append(Level("far", rng.choice([10, 30, 100]), rng.choice([0, 0, 10])))
    return Machine("m", "pebble", tuple(levels), management, "any", allocator=rng.choice(["own", "reuse"]))  # type: ignore[arg-type]


def attack(seed: int, management: str) -> tuple[bool, float] | None:
    """Hold the bound against plans in loop order; return whether a product raised it, and how near it is."""
    rng = random.Random(seed)
    graph, sizes = random_product(rng)
    levels, steady = random_levels(rng, management), rng.random() < 0.5
    problem = Problem.of(graph, levels, steady=steady)
    form = tiled(graph, sizes)
    best = least_energy(problem, form, loop_orders(form, rng))
    if best == float("inf"):
        return None
    for bound in (tiled_bound(problem, sizes=sizes), tiled_bound(problem, 300)):
        assert bound.energy <= best, f"seed {seed}: {best} is below {bound}"
    search = RangeSearch(problem, sizes)
    search.run(0)
    tiles = TileRange.of_sizes(graph, sizes)
    raised = any(True for _ in product_reads(Leaf(search._family(tiles), tiles)))
    return raised, search.run(0).energy / best if best else 1.0


@pytest.mark.parametrize("management", ["lru", "explicit"])
def test_no_plan_of_a_tiled_product_is_below_its_bound(management):
    found = [one for one in (attack(seed, management) for seed in range(24)) if one is not None]
    assert len(found) >= 18
    assert sum(raised for raised, _ in found) >= 5  # products matter in some of them


@pytest.mark.slow
@pytest.mark.parametrize("management", ["lru", "explicit"])
@pytest.mark.parametrize("chunk", range(10, 40))
def test_no_plan_of_thousands_of_tiled_products_is_below_its_bound(management, chunk):
    for seed in range(chunk * 100, (chunk + 1) * 100):
        attack(seed, management)


def test_products_are_found_by_their_axes():
    step = mlp(n=20, hidden=1000, batch=32)
    case = TileRange.of_sizes(step, {"hidden": 4, "n": 7, "batch": 4})
    elements = Elements(step, case.open, case.cut)
    first, *_ = product_families(elements)
    assert [step.ops[one.op].name for one in first.products] == ["fwd_linear1"]
    assert first.points == 20 * 1000 * 32
    assert largest_piece(first.touched_together(elements), elements, case) == 28 + 28 + 16
    names = [attention().ops[one.op].name for one in tile_products(Elements(attention()))]
    assert names[:5] == ["fwd_q", "fwd_k", "fwd_v", "fwd_scores", "fwd_mix"]


def test_what_can_be_made_again_is_no_operand_of_a_product():
    step = attention()
    whole = {step.ops[one.op].name for family in product_families(Elements(step)) for one in family.products}
    assert whole == {
        "fwd_q",
        "fwd_k",
        "fwd_v",
        "bwd_dmix",
    }  # dy stands for the target; all else reads what one piece makes
    cut = Elements(step, cut=frozenset({"width"}))  # q, k and v are added up
    assert "fwd_scores" in {step.ops[one.op].name for family in product_families(cut) for one in family.products}


def test_small_tiles_of_a_batch_read_more_than_their_operands_once_per_piece():
    problem = Problem.of(mlp(n=20, hidden=1000, batch=32), machine("notes"))
    assert tiled_bound(problem, sizes={"hidden": 4, "n": 7, "batch": 4}).energy > 10.8e6  # 9,870,420 without products
