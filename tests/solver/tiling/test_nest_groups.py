"""Groups of ops that share loops: orders that compute what program order does, tile by tile."""

from __future__ import annotations

import random

import pytest

from pebbler import machine, workloads
from pebbler.game.graph import Graph
from pebbler.solver.tiling.nest_search import Group, NestOrders, OpAxes
from pebbler.solver.tiling.traced_tiles import PricedTiles, TracedTiles
from pebbler.solver.tiling.transform_space import TransformSpace

GRAPHS = ["mlp:n=4,hidden=6,batch=3", "attention:tokens=4,width=8,heads=2", "deep-mlp:n=3,hidden=4,layers=3,batch=2"]


def _orders(graph: Graph, sizes: dict[str, int]) -> tuple[PricedTiles, NestOrders, OpAxes]:
    axes = TransformSpace(graph).axes
    tiles = TracedTiles(graph, axes, sizes)
    nested = OpAxes(graph, axes)
    priced = PricedTiles(tiles, machine("notes").in_unit(graph.unit), steady=True)
    return priced, NestOrders(tiles, nested, range(len(graph.ops)), 20.0), nested


@pytest.mark.parametrize("seed", range(60))
def test_ops_that_can_share_loops_compute_what_program_order_does(seed: int) -> None:
    rng = random.Random(seed)
    graph = workloads.load(rng.choice(GRAPHS))
    extents = TransformSpace(graph).axes
    priced, orders, axes = _orders(graph, {axis: rng.randint(1, extent) for axis, extent in extents.items()})
    shared = 0
    for _ in range(20):
        groups, at = [], 0
        while at < len(graph.ops):
            ops = tuple(range(at, min(len(graph.ops), at + rng.randint(1, 6))))
            loops = tuple(rng.sample(sorted(extents), rng.randint(0, 2)))
            while axes.sides(ops, loops) is None:
                ops = ops[:-1]
            groups.append(Group(ops, loops))
            at += len(ops)
        shared += max(len(group.ops) for group in groups) > 1
        order = orders.order(groups)
        assert order is not None
        assert sorted(order.tolist()) == list(range(priced.tiles.pieces))
        # Sums over several axes are added in one order only; loops of a group may ask for another.
        sums = any(len(axes.loops[op]) > 2 for op in range(len(graph.ops)))
        assert sums or priced.price(order) < float("inf")
    assert shared


def test_a_flash_like_order_runs_all_of_a_tile_before_the_next() -> None:
    graph = workloads.load("attention:tokens=4,width=4,heads=2")
    priced, orders, _ = _orders(graph, {"heads": 1, "tokens": 2})
    names = [op.name for op in graph.ops]
    flash = [names.index(name) for name in ("fwd_scores", "fwd_softmax", "fwd_mix")]
    groups = [Group((op,)) for op in range(flash[0])]
    groups += [Group(tuple(flash), ("heads", "tokens"), frozenset({"tokens"}))]
    again = Group((*flash[:2], names.index("bwd_dweight")), ("heads", "tokens"))
    groups += [again if name == "bwd_dweight" else Group((op,)) for op, name in enumerate(names) if op > flash[-1]]
    order = orders.order(groups)
    assert order is not None
    assert priced.price(order) < float("inf")
    first = [priced.tiles.first[op] for op in flash]
    start = order.tolist().index(first[0] + 1)  # the last tile of tokens comes first
    assert order[start : start + 6].tolist() == [op + tile for tile in (1, 0) for op in first]


def test_what_needs_all_tiles_cannot_share_a_loop_with_what_makes_them() -> None:
    graph = workloads.load("attention:tokens=4,width=4,heads=2")
    _, orders, _ = _orders(graph, {"keys": 2})
    names = [op.name for op in graph.ops]
    pair = names.index("fwd_scores"), names.index("fwd_softmax")
    assert orders.order([Group(pair, ("keys",))]) is not None  # softmax runs after all turns
    mix = names.index("fwd_mix")
    assert orders.order([Group((*pair, mix), ("keys",))]) is None
