"""Six shapes that were worse than simple orders at some hundreds of ops, or a test of those: rings, products in a row, pipelines.

Rings have no coordinate but the step. The orders named are those of their textbooks.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from benchmarks.structured_graphs import Shape
from pebbler.game.graph import Graph

__all__ = ["HUNDREDS"]


def ring(ops: int, seed: int = 0) -> Shape:
    """Points on a ring, each with its neighbours of the step before."""
    points = max(8, round(math.sqrt(ops)))
    steps = max(2, ops // points)
    shape = Shape(Graph(f"ring-{points}", unit="pebble"))
    row = [shape.given(f"x{i}") for i in range(points)]
    for step in range(steps):
        kind = "output" if step == steps - 1 else "temp"
        row = [shape.run((step, i), [row[i - 1], row[i], row[(i + 1) % points]], kind=kind) for i in range(points)]
    for b in (2, 4, 8):
        shape.by(f"blocks-{b}", lambda step, i, b=b: (step // b, i // b, step, i))
    return shape


def sinkhorn(ops: int, seed: int = 0) -> Shape:
    """Products of a matrix with vectors, by rows and by columns in turns."""
    rounds = 6
    side = max(4, round(math.sqrt(ops / rounds)))
    shape = Shape(Graph(f"sinkhorn-{side}", unit="pebble"))
    entry = {(i, j): shape.given(f"k{i}_{j}") for i in range(side) for j in range(side)}
    vector = [shape.given(f"x{j}") for j in range(side)]
    for step in range(rounds):
        sums = []
        for i in range(side):
            total: list[str] = []
            for j in range(side):
                one = entry[i, j] if step % 2 == 0 else entry[j, i]
                kind = "output" if step == rounds - 1 and j == side - 1 else "temp"
                total = [shape.run((step, i, j), [one, vector[j], *total], kind=kind)]
            sums += total
        vector = sums
    for b in (4, 8, 16):
        shape.by(f"blocks-{b}", lambda step, i, j, b=b: (step, i // b, j // b, i, j))
    shape.by("by-columns", lambda step, i, j: (step, j, i) if step % 2 else (step, i, j))
    return shape


def neighbours(ops: int, seed: int = 0) -> Shape:
    """Some layers of a network on points of a plane in random order: each sums over four near points."""
    rng, layers = random.Random(seed), 4
    points = max(10, ops // layers // 2)
    shape = Shape(Graph(f"neighbours-{points}", unit="pebble"))
    at = [(rng.random(), rng.random()) for _ in range(points)]
    near = [sorted(range(points), key=lambda j, i=i: math.dist(at[i], at[j]))[:5] for i in range(points)]
    here = [shape.given(f"x{i}", 2) for i in range(points)]
    for layer in range(layers):
        weight = shape.given(f"W{layer}", 6, "param")
        sent = [shape.run((2 * layer, i), [one, weight], size=2, cost=2) for i, one in enumerate(here)]
        kind = "output" if layer == layers - 1 else "temp"
        here = [shape.run((2 * layer + 1, i), [sent[j] for j in near[i]], size=2, kind=kind) for i in range(points)]
    swept = sorted(range(points), key=lambda i: (int(6 * at[i][0]), at[i][1]))
    place = {i: number for number, i in enumerate(swept)}
    shape.by("swept", lambda layer, i: (layer, place[i]))
    shape.by("some-points", lambda layer, i: (place[i] // 20, layer, place[i]))
    return shape


def knapsack(ops: int, seed: int = 0) -> Shape:
    """A table of weights and items: with an item or without."""
    rng = random.Random(seed)
    items = max(5, round(math.sqrt(ops)))
    room = max(5, ops // items)
    shape = Shape(Graph(f"knapsack-{items}", unit="pebble"))
    row = [shape.given(f"x{j}") for j in range(room)]
    for i in range(items):
        item, weight = shape.given(f"i{i}"), rng.randint(1, max(2, room // 4))
        kind = "output" if i == items - 1 else "temp"
        row = [
            shape.run((i, j), [row[j], item, *([row[j - weight]] if j >= weight else [])], kind=kind)
            for j in range(room)
        ]
    for b in (4, 8):
        shape.by(f"by-weights-{b}", lambda i, j, b=b: (j // b, i, j))
        shape.by(f"by-items-{b}", lambda i, j, b=b: (i // b, j, i))
    return shape


def microbatches(ops: int, seed: int = 0) -> Shape:
    """Forward and backward passes of small batches through stages with weights of their own; gradients are summed up."""
    stages = max(3, round(math.sqrt(ops / 3)))
    batches = max(3, round(ops / (3 * stages)))
    shape = Shape(Graph(f"microbatches-{stages}", unit="pebble"))
    weight = [shape.given(f"W{k}", 8, "param") for k in range(stages)]
    sums: list[list[str]] = [[] for _ in range(stages)]
    for batch in range(batches):
        kept = [shape.given(f"x{batch}", 2)]
        for k in range(stages):
            kept.append(shape.run((batch, k, 0), [kept[-1], weight[k]], size=2, cost=8))
        back = kept[-1]
        for k in reversed(range(stages)):
            kind = "output" if batch == batches - 1 else "temp"
            sums[k] = [shape.run((batch, 2 * stages - k, 1), [back, kept[k], *sums[k]], size=8, cost=8, kind=kind)]
            if k:
                back = shape.run((batch, 2 * stages - k, 2), [back, weight[k], kept[k]], size=2, cost=8)
    for b in (1, 2, 4, 8, batches):
        shape.by(f"stages-{b}", lambda batch, k, back, b=b: (batch // b, k, batch, back))
    return shape


def products_in_a_row(ops: int, seed: int = 0) -> Shape:
    """A product of four matrices, from the left."""
    side = max(3, round((ops / 3) ** (1 / 3)))
    shape = Shape(Graph(f"products-{side}", unit="pebble"))
    matrices = [{(i, j): shape.given(f"m{q}_{i}_{j}") for i in range(side) for j in range(side)} for q in range(4)]
    here = matrices[0]
    for q in range(1, 4):
        made = {}
        for i, j in here:
            total: list[str] = []
            for k in range(side):
                kind = "output" if q == 3 and k == side - 1 else "temp"
                total = [shape.run((q, i, j, k), [here[i, k], matrices[q][k, j], *total], kind=kind)]
            made[i, j] = total[0]
        here = made
    for b in (2, 3, 4):
        shape.by(f"blocks-{b}", lambda q, i, j, k, b=b: (q, i // b, j // b, k, i, j))
        shape.by(f"by-rows-{b}", lambda q, i, j, k, b=b: (i // b, q, j // b, k, i, j))
    return shape


HUNDREDS: dict[str, Callable[[int, int], Shape]] = {
    "ring": ring,
    "sinkhorn": sinkhorn,
    "neighbours": neighbours,
    "knapsack": knapsack,
    "microbatches": microbatches,
    "products": products_in_a_row,
}
