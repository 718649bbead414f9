"""Pieces as flat arrays against the graph that tiling builds: the same touches, the same legal orders, the same price."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pebbler import machine, workloads
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.game.moves import Moves
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.referee.touches import touches_of_ops
from pebbler.solver.tiling.traced_tiles import PricedTiles, TracedTiles
from pebbler.solver.tiling.transform_space import Transform, TransformSpace

GRAPHS = ["mlp:n=5,hidden=7,batch=3", "attention:tokens=6,width=8,heads=2", "deep-mlp:n=3,hidden=4,layers=3,batch=2"]


def _tiled(rng: random.Random) -> tuple[Graph, Graph, TracedTiles]:
    """Return a graph, a random tiling of it with some temps fused, and the same as flat arrays."""
    while True:
        space = TransformSpace(workloads.load(rng.choice(GRAPHS)))
        sizes = {axis: rng.randint(1, extent) for axis, extent in space.axes.items() if rng.random() < 0.6}
        temps = tuple(temp for temp in space.temps if rng.random() < 0.5)
        transform = space.effective(Transform(fused=temps).with_sizes(**sizes))
        fused, built = space.fused_graph(transform.fused), space.transformed(transform)
        if fused is None:
            continue
        traced = TracedTiles(fused, space.axes, dict(transform.sizes))
        assert traced.can_be_cut == (built is not None)
        if built is not None:
            return space.graph, built, traced


@pytest.mark.parametrize("seed", range(40))
def test_pieces_touch_what_those_of_the_built_graph_touch(seed: int) -> None:
    rng = random.Random(seed)
    _, built, traced = _tiled(rng)
    assert traced.pieces == len(built.ops)
    allocator, line = rng.choice(["own", "reuse"]), rng.choice([1, 4])
    ours, theirs = traced.touches(allocator, line), touches_of_ops(built, allocator, line)
    for name, mine, other in zip(ours._fields, ours, theirs, strict=True):
        assert np.array_equal(mine, other), name
    assert np.allclose(traced.costs, built.dataflow.op_cost)


def _judged(built: Graph, source: Graph, levels: Machine, order: list[int]) -> float:
    plan = Plan(built, levels, Moves.computes(built, levels, order), {}, True, source=source)
    judgement = check(plan)
    return judgement.energy if judgement.legal else float("inf")


@pytest.mark.parametrize("seed", range(60))
def test_an_order_is_legal_and_costs_what_the_referee_says(seed: int) -> None:
    rng = random.Random(seed)
    source, built, traced = _tiled(rng)
    levels = machine(rng.choice(["notes", "horowitz-45nm", "laptop"])).in_unit(built.unit)
    priced = PricedTiles(traced, levels, steady=True)
    order = list(range(len(built.ops)))
    assert priced.price(np.array(order)) == pytest.approx(_judged(built, source, levels, order))
    for _ in range(6):  # an op elsewhere, or once more
        changed = list(order)
        op = changed.pop(rng.randrange(len(changed)))
        changed.insert(rng.randrange(len(changed) + 1), op)
        if rng.random() < 0.3:
            changed.insert(rng.randrange(len(changed) + 1), op)
        energy = _judged(built, source, levels, changed)
        assert priced.price(np.array(changed)) == pytest.approx(energy)
        order = changed if energy < float("inf") else order


def test_what_cannot_be_cut_is_said() -> None:
    graph = Graph("g").tensor("a", 4, "input", axes=[("i", 4)]).tensor("s", 1, "param", axes=[])
    graph.op("f", ["a", "s"], ["s"])
    assert TransformSpace(graph).transformed(Transform(sizes=(("i", 2),))) is None
    assert not TracedTiles(graph, {"i": 4}, {"i": 2}).can_be_cut
    assert TracedTiles(graph, {"i": 4}, {}).can_be_cut
