"""Orders by list scheduling: the compiled one against its naive twin, and on graphs of tiles."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_orders as naive
import pebbler as pb
from pebbler.game.transform import fuse, tile
from pebbler.referee.judgement import check
from pebbler.referee.kernels.cache_price import price
from pebbler.referee.pricing import cache_game
from pebbler.solver.tiling.list_order import forward_sweeps, nearest_first
from pebbler.solver.tiling.node_graph import NodeGraph
from pebbler.solver.tiling.transform_space import Transform, TransformSpace


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.booleans(), st.integers(1, 3))
def test_the_nearest_op_runs_first(seed: int, by_price: bool, rounds: int) -> None:
    rng = random.Random(seed)
    graph, machine = naive.random_graph(rng, rng.randrange(1, 9)), naive.random_machine(rng, "lru")
    nodes = NodeGraph.of(graph)
    assert nodes is not None
    sequence = nearest_first(nodes, machine, by_price=by_price, rounds=rounds)
    assert nodes.order(sequence).tolist() == naive.nearest_first(graph, machine, by_price, rounds)


def test_the_nearest_first_is_legal_on_any_graph_of_tiles() -> None:
    graph = TransformSpace(pb.workloads.attention(tokens=6, width=8, heads=2)).transformed(
        Transform(sizes=(("heads", 1), ("tokens", 2)))
    )
    machine = pb.machine("laptop").in_unit("float32")
    nodes = NodeGraph.of(graph)
    game = cache_game(graph, machine, steady=True)
    for by_price in (False, True):
        order = nodes.order(nearest_first(nodes, machine, by_price=by_price))
        plan = pb.Plan.in_order(graph, machine, [graph.ops[i].name for i in order])
        assert check(plan).legal
        assert price(game, np.ascontiguousarray(order)) == pytest.approx(check(plan).energy, rel=1e-12)


def test_forward_sweeps_finish_a_tile_before_the_next() -> None:
    graph = tile(fuse(pb.workloads.mlp(n=2, hidden=6), "dW1"), "hidden", 2)
    nodes = NodeGraph.of(graph)
    order = nodes.order(forward_sweeps(nodes))
    assert check(pb.Plan.in_order(graph, pb.machine("notes"), [graph.ops[i].name for i in order])).legal
    loss = next(i for i, op in enumerate(order) if graph.ops[op].name == "bwd_loss")
    for half in (order[:loss], order[loss + 1 :]):
        starts = [graph.ops[op].meta["tile"]["at"]["hidden"][0] for op in half if "tile" in graph.ops[op].meta]
        assert starts == sorted(starts)
        assert set(starts) == {0, 2, 4}
