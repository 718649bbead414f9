"""Counters of played plans: they add up to the energy that the referee states."""

from __future__ import annotations

import random

import msgspec
import pytest

from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Plan
from pebbler.game.transform import fuse, tile
from pebbler.referee.counters import Played, count
from pebbler.referee.judgement import check
from pebbler.referee.pieces import Pieces
from pebbler.referee.rows.family import Family
from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.task import Task
from pebbler.referee.rows.tile_range import TileRange
from pebbler.workloads import mlp
from row_attacks import random_form, random_leaves, random_plan, random_task


def leaf_of(plan: Plan, source: Graph, moment: str | None = None) -> Leaf:
    """The leaf of a plan's own tile sizes, and of the moment when all of a tensor has been made."""
    tiles = TileRange.of_sizes(source, Pieces(plan.graph, source).sizes)
    family = Family(Task(source, plan.machine, bool(plan.steady)), tiles.open, tiles.cut)
    if moment is None:
        return Leaf(family, tiles)
    values = family.flow.value_tensor.tolist()
    return Leaf(family, tiles, family.moment(values.index(source.tensor_index(moment))))


def rows_of_sums() -> Graph:
    """s sums all of x, and y is made of s and x."""
    graph = Graph("sums", unit="pebble").tensor("x", 4, "input", axes=[("i", 4)]).tensor("s", 1, axes=[])
    graph.tensor("y", 4, "output", axes=[("i", 4)])
    return graph.op("sum", ["x"], ["s"]).op("end", ["s", "x"], ["y"])


TWO = (Level("near", 1, 1, capacity=3), Level("far", 10, 100))


def test_counters_on_caches_by_hand():
    source = rows_of_sums()
    form = tile(source, "i", 2)
    plan = Plan.in_order(
        form, Machine("two", "pebble", TWO, "lru"), ["sum[0]", "sum[1]", "end[1]", "end[0]"], source=source
    )
    x, s, y = range(3)
    found = count(plan, leaf_of(plan, source, "s"))
    assert found == {
        ("read", 0, "before", x, 0, True, 1): 4,  # nobody has touched it before
        ("read", 1, "after", x, 0, True, 0): 2,  # x[1] lies below s
        ("read", 1, "after", x, 0, True, 1): 2,
        ("read", 1, "after", s, 0, True, 0): 1,
        ("read", 1, "after", s, 0, True, 1): 1,  # below x[1] and y[1]
        ("add", s, 0, True, 0): 1,
        ("written", s): 2,
        ("written", y): 4,
        ("sunk", s, 0, 0): 1,
        ("sunk", y, 0, 0): 2,
        ("found", x, 0, 1, 0): 2,
        ("found", x, 0, 1, 1): 2,
        ("alive", s, 0, 0): 1,
        ("run",): 0,
        ("tiles", "i"): 2,
    }
    assert check(plan).energy == 10 * (4 + 2 + 1) + (2 + 1 + 1) + 6 + 100 * 3


def test_counters_of_placements_by_hand():
    source = rows_of_sums()
    form = tile(source, "i", 2)
    moves = [
        ["copy", "x[0]", "far", "near"], ["compute", "sum[0]", "near"], ["drop", "x[0]", "near"], ["compute", "sum[1]", "far"],
        ["copy", "s", "far", "near"], ["compute", "end[0]", "far"], ["compute", "end[1]", "near"],
    ]  # fmt: skip
    plan = Plan(form, Machine("two", "pebble", TWO, "explicit", "any"), moves, source=source)
    x, s, y = range(3)
    found = count(plan, leaf_of(plan, source, "s"))
    assert found == {
        ("copy", "before", x, 0, 1, 0): 2,
        ("copy", "after", s, 0, 1, 0): 1,
        ("read", 0, "before", x, 0, True, 0): 2,
        ("read", 0, "before", x, 0, True, 1): 2,
        ("read", 1, "after", x, 0, True, 1): 4,
        ("read", 1, "after", s, 0, True, 0): 2,
        ("add", s, 0, True, 0): 1,
        ("begun", s, 0, 0): 1,
        ("made", s, 0, 1): 1,
        ("made", y, 0, 1): 2,
        ("made", y, 0, 0): 2,
        ("then", x, 0, (1,)): 4,
        ("then", s, 0, (1,)): 1,
        ("run",): 0,
        ("tiles", "i"): 2,
    }
    assert check(plan).energy == sum(leaf_of(plan, source).price(one) * number for one, number in found.items())


def test_pieces_of_an_op_that_needs_an_axis_whole_and_is_fused():
    source = mlp(n=2, hidden=3, batch=4)
    form = tile(tile(fuse(source, "dW1"), "batch", 4), "hidden", 2)
    pieces = Pieces(form, source)
    for number, op in enumerate(source.ops):
        assert sum(share for share, ops in zip(pieces.share, pieces.ops, strict=True) if number in ops) == 1, op.name


def exact(played: Played, leaf: Leaf) -> bool:
    """Whether every read, write and write-back of a plan is in some counter."""
    pieces, plan, flow = played.pieces, played.plan, played.pieces.flow
    order = plan.moves.order.tolist()
    again = {op for op in order if order.count(op) > 1}
    return (
        not leaf.family.elements.vanishing
        and plan.machine.line == 1
        and all(len(set(op.reads)) == len(op.reads) for op in plan.graph.ops)
        and all(pieces.completes[value] for op in again for value in flow.op_writes.row(op).tolist())
    )


def hold_prices(seed: int, management: str) -> int:
    """Hold the price of all counters against the energy of a plan; return in how many leaves it has to be the same."""
    rng, same = random.Random(seed), 0
    task = random_task(rng, management)
    plan = random_plan(rng, task, random_form(rng, task.graph))
    if plan is None:
        return 0
    played, energy = Played(plan), check(plan).energy
    for leaf in random_leaves(rng, task, played):
        total = sum(float(leaf.price(counter)) * float(number) for counter, number in played.count(leaf).items())
        if exact(played, leaf):
            assert total == pytest.approx(energy, rel=1e-12, abs=1e-9), f"seed {seed}"
            same += 1
        else:
            assert total <= energy * (1 + 1e-12) + 1e-9, f"seed {seed}"
    return same


@pytest.mark.parametrize("management", ["lru", "explicit"])
def test_the_energy_is_the_price_of_all_counters(management):
    assert sum(hold_prices(seed, management) for seed in range(60)) > 60


@pytest.mark.slow
@pytest.mark.parametrize("management", ["lru", "explicit"])
@pytest.mark.parametrize("chunk", range(10))
def test_the_energy_is_the_price_of_all_counters_in_thousands_of_cases(management, chunk):
    assert sum(hold_prices(seed, management) for seed in range(100 + 500 * chunk, 600 + 500 * chunk)) > 500


def test_the_price_does_not_depend_on_the_part_that_elements_are_in():
    graph = mlp(n=3, hidden=5)
    caches = msgspec.structs.replace(Machine("two", "float32", TWO, "lru"), allocator="own")
    plan = Plan.in_order(tile(graph, "hidden", 2), caches, source=graph)
    exact_leaf = leaf_of(plan, graph)
    wide = TileRange.all_of(graph)
    other = Leaf(Family(exact_leaf.family.task, wide.open, wide.cut), wide)
    energies = {sum(one.price(c) * float(n) for c, n in count(plan, one).items()) for one in (exact_leaf, other)}
    assert max(energies) <= check(plan).energy
