"""Counters of played plans: they add up to the energy that the referee states."""

from __future__ import annotations

import random

import msgspec
import pytest

from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Plan
from pebbler.game.transform import fuse, tile
from pebbler.referee.cache_counters import CachePlay, Touch
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


def test_a_sum_that_is_pushed_out_before_it_is_written_costs_more_than_its_counters():
    """A piece reads s, makes two elements of y, which push s out, and writes s: what it writes back then no counter has."""
    source = Graph("sums", unit="pebble").tensor("x", 2, "input", axes=[("i", 2)]).tensor("s", 1, axes=[])
    source.tensor("y", 4, axes=[("i", 2), ("j", 2)]).tensor("z", 1, "output", axes=[])
    source.op("sum", ["x"], ["y", "s"]).op("end", ["s"], ["z"])
    near = (Level("near", 1, 1, capacity=2), Level("far", 10, 100))
    plan = Plan.in_order(tile(source, "i", 1), Machine("two", "pebble", near, "lru"), source=source)
    played, leaf = Played(plan), leaf_of(plan, source)
    total = sum(leaf.price(counter) * number for counter, number in played.count(leaf).items())
    # x[0], y[0], s, x[1], s, y[1], s, s, z: s is found far by its second write alone, and all of y is written back.
    assert total == 10 * 2 + 1 * 2 + 7 + 100 * 4
    assert check(plan).energy == total + 100
    assert pushed_out(played) == 100


def test_pieces_of_an_op_that_needs_an_axis_whole_and_is_fused():
    source = mlp(n=2, hidden=3, batch=4)
    form = tile(tile(fuse(source, "dW1"), "batch", 4), "hidden", 2)
    pieces = Pieces(form, source)
    for number, op in enumerate(source.ops):
        assert sum(share for share, ops in zip(pieces.share, pieces.ops, strict=True) if number in ops) == 1, op.name


def pushed_out(played: Played) -> float:
    """Return what sums cost that a piece's own results push out between its read of them and its write: no counter has that."""
    if not isinstance(played.play, CachePlay):
        return 0.0
    levels, flow, paid = played.plan.machine.in_unit(played.plan.graph.unit).level, played.pieces.flow, 0.0
    read: dict[tuple[int, int], Touch] = {}  # by move and tensor
    for one in played.play.touches:
        key = one.move, int(flow.value_tensor[one.value])
        if not one.write:
            read[key] = one
        elif (before := read.get(key)) is not None and not played.pieces.completes[before.value]:
            pairs = zip(before.levels.tolist(), one.levels.tolist(), strict=True)
            paid += sum(level.write for near, far in pairs for level in levels[near + 1 : far + 1])
    return paid


def exact(played: Played, leaf: Leaf) -> bool:
    """Whether every read, write and write-back of a plan is in some counter, or else in `pushed_out`."""
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
            assert total + pushed_out(played) == pytest.approx(energy, rel=1e-12, abs=1e-9), f"seed {seed}"
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
