"""Eight shapes from other fields that nothing in the solver was tried on before: the orders named are those of their textbooks."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from benchmarks.structured_graphs import Shape
from pebbler.game.graph import Graph

__all__ = ["MORE"]


def householder(ops: int, seed: int = 0) -> Shape:
    """QR by tiles: a tile column is reduced and its reflections are applied to the tiles at its right."""
    side = max(3, round((1.5 * ops) ** (1 / 3)))
    shape = Shape(Graph(f"qr-{side}", unit="pebble"))
    tile = {(i, j): shape.given(f"a{i}_{j}", 4) for i in range(side) for j in range(side)}
    for k in range(side):
        tile[k, k] = shape.run((k, k, k), [tile[k, k]], size=4, cost=4)
        for j in range(k + 1, side):
            tile[k, j] = shape.run((k, j, k), [tile[k, j], tile[k, k]], size=4, cost=4)
        for i in range(k + 1, side):
            turned = shape.run((i, k, k), [tile[k, k], tile[i, k]], size=4, cost=4, kind="output")
            tile[k, k] = shape.run((i, k, k), [tile[k, k], turned], size=4)
            for j in range(k + 1, side):
                above = shape.run((i, j, k), [tile[k, j], tile[i, j], turned], size=4, cost=4)
                tile[i, j] = shape.run((i, j, k), [tile[i, j], tile[k, j], turned], size=4, cost=4)
                tile[k, j] = above
    shape.run((side, side, side), [tile[k, j] for k in range(side) for j in range(k, side)], kind="output")
    for b in (1, 2, 3, 4):
        shape.by(f"left-{b}", lambda i, j, k, b=b: (j // b, k // b, i // b, k, i, j))
        shape.by(f"right-{b}", lambda i, j, k, b=b: (k // b, i // b, j // b, k, i, j))
    return shape


def affine_gaps(ops: int, seed: int = 0) -> Shape:
    """The alignment of two words with affine gaps: three tables that are filled together."""
    side = round(math.sqrt(ops / 3))
    shape = Shape(Graph(f"gaps-{side}", unit="pebble"))
    words = [[shape.given(f"{word}{i}") for i in range(side)] for word in "pq"]
    best: dict[tuple[int, int], str] = {}
    down, right = dict(best), dict(best)
    for i in range(side):
        for j in range(side):
            near = [table[at] for at in ((i - 1, j),) for table in (best, down) if at in table]
            down[i, j] = shape.run((i, j), [words[0][i], *near])
            near = [table[at] for at in ((i, j - 1),) for table in (best, right) if at in table]
            right[i, j] = shape.run((i, j), [words[1][j], *near])
            near = [best[at] for at in ((i - 1, j - 1),) if at in best]
            kind = "output" if i == j == side - 1 else "temp"
            best[i, j] = shape.run((i, j), [down[i, j], right[i, j], words[0][i], words[1][j], *near], kind=kind)
    for b in (2, 3, 4, 6, 8, 12, 16):
        shape.by(f"strips-{b}", lambda i, j, b=b: (j // b, i, j))
        shape.by(f"blocks-{b}", lambda i, j, b=b: (i // b, j // b, i, j))
    return shape


def sparse_lu(ops: int, seed: int = 0) -> Shape:
    """A sparse factorisation of a planar grid whose points are eliminated in random order within nested halves."""
    rng = random.Random(seed)
    side = max(4, round((ops / 6) ** (1 / 3)))
    shape = Shape(Graph(f"planar-{side}", unit="pebble"))
    order: list[tuple[int, int]] = []

    def halve(rows: range, columns: range) -> None:
        if len(rows) * len(columns) <= 6:
            order.extend(rng.sample([(i, j) for i in rows for j in columns], len(rows) * len(columns)))
        elif len(rows) >= len(columns):
            middle = rows[len(rows) // 2]
            halve(range(rows.start, middle), columns)
            halve(range(middle + 1, rows.stop), columns)
            order.extend((middle, j) for j in columns)
        else:
            middle = columns[len(columns) // 2]
            halve(rows, range(columns.start, middle))
            halve(rows, range(middle + 1, columns.stop))
            order.extend((i, middle) for i in rows)

    halve(range(side), range(side))
    rank = {point: at for at, point in enumerate(order)}
    above: list[set[int]] = [set() for _ in order]
    for (i, j), at in rank.items():
        for near in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            if rank.get(near, -1) > at:
                above[at].add(rank[near])
    known: dict[tuple[int, int], str] = {}
    for k in range(len(order)):
        later = sorted(above[k])
        if later:
            above[later[0]] |= set(later[1:])
    for k in range(len(order)):
        known.setdefault((k, k), shape.given(f"d{k}"))
        pivot = shape.run((k, k), [known[k, k]], kind="output")
        scaled = {}
        for i in sorted(above[k]):
            entry = known.get((i, k)) or shape.given(f"a{i}_{k}")
            scaled[i] = shape.run((k, i), [entry, pivot], kind="output")
        for i in scaled:
            for j in scaled:
                if j <= i:
                    entry = known.get((i, j)) or shape.given(f"a{i}_{j}")
                    known[i, j] = shape.run((k, i), list(dict.fromkeys([entry, scaled[i], scaled[j]])))
    for b in (2, 4, 8, 16):
        shape.by(f"columns-{b}", lambda k, i, b=b: (k // b, i // b, k, i))
    return shape


def allreduce(ops: int, seed: int = 0) -> Shape:
    """Norms of blocks of a vector: a tree adds all up, the total goes back to each element; some layers of that."""
    layers, bits = 4, max(3, round(math.log2(ops / 12)))
    shape = Shape(Graph(f"allreduce-{bits}", unit="pebble"))
    line = [shape.given(f"x{i}") for i in range(1 << bits)]
    for layer in range(layers):
        groups = 1 << max(0, bits - 3 - 2 * (layer % 2))
        width = len(line) // groups
        done: list[str] = []
        for group in range(groups):
            level = line[group * width : (group + 1) * width]
            while len(level) > 1:
                level = [shape.run((layer, group, 0), level[2 * i : 2 * i + 2]) for i in range(len(level) // 2)]
            kind = "output" if layer == layers - 1 else "temp"
            part = line[group * width : (group + 1) * width]
            done += [shape.run((layer, group, 1), [own, level[0]], kind=kind) for own in part]
        stride = 4
        line = [done[i] for first in range(stride) for i in range(first, len(done), stride)]
    for b in (1, 2, 4, 8):
        shape.by(f"by-group-{b}", lambda layer, group, back, b=b: (group // b, layer, group, back))
    return shape


def attending_rnn(ops: int, seed: int = 0) -> Shape:
    """A recurrent decoder that attends to all states of its encoder at every step."""
    steps = max(4, round(math.sqrt(ops / 2)))
    shape = Shape(Graph(f"attending-{steps}", unit="pebble"))
    weights = [shape.given(f"W{i}", 12, "param") for i in range(2)]
    here, states = shape.given("h", 4), []
    for step in range(steps):
        here = shape.run((0, step, 0), [here, shape.given(f"x{step}", 2), weights[0]], size=4, cost=4)
        states.append(here)
    keys = [shape.run((0, step, 1), [state], size=2) for step, state in enumerate(states)]
    for step in range(steps):
        total = shape.given(f"z{step}", 3)
        for other in range(steps):
            score = shape.run((1, step, other), [here, keys[other]], cost=2)
            total = shape.run((1, step, other), [total, score, states[other]], size=3)
        here = shape.run((1, step, steps), [here, total, weights[1]], size=4, cost=4)
        shape.run((1, step, steps), [here], kind="output")
    return shape


def unet(ops: int, seed: int = 0) -> Shape:
    """Convolutions and halvings of a plane of points, and back up with the planes that were kept."""
    side = 1 << max(2, round(math.log2(math.sqrt(ops / 5.4))))
    shape = Shape(Graph(f"planes-{side}", unit="pebble"))
    plane = {(i, j): shape.given(f"x{i}_{j}") for i in range(side) for j in range(side)}

    def smooth(plane: dict[tuple[int, int], str], depth: int) -> dict[tuple[int, int], str]:
        near = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))
        size = 1 << depth
        return {
            (i, j): shape.run(
                (depth, i * size, j * size), [plane[i + a, j + b] for a, b in near if (i + a, j + b) in plane]
            )
            for i, j in plane
        }

    kept = []
    while side > 2:
        depth = len(kept)
        plane = smooth(smooth(plane, depth), depth)
        kept.append(plane)
        side //= 2
        corners = ((0, 0), (0, 1), (1, 0), (1, 1))
        size = 2 << depth
        plane = {
            (i, j): shape.run((depth, i * size, j * size), [plane[2 * i + a, 2 * j + b] for a, b in corners])
            for i in range(side)
            for j in range(side)
        }
    for depth in range(len(kept) - 1, -1, -1):
        size = 1 << depth
        plane = {
            (i, j): shape.run((depth, i * size, j * size), [own, plane[i // 2, j // 2]])
            for (i, j), own in kept[depth].items()
        }
        plane = smooth(plane, depth)
    shape.run((0, 0, 0), list(plane.values())[:8], kind="output")
    for b in (2, 4, 8, 16):
        shape.by(f"blocks-{b}", lambda depth, i, j, b=b: (i // b, j // b, depth, i, j))
    return shape


def viterbi(ops: int, seed: int = 0) -> Shape:
    """The likeliest states of a hidden chain, with the way back."""
    states = max(3, round(ops ** (1 / 3)))
    steps = max(3, round(ops / (states * (states + 2))))
    shape = Shape(Graph(f"viterbi-{states}", unit="pebble"))
    moves = {(a, b): shape.given(f"t{a}_{b}") for a in range(states) for b in range(states)}
    here, back = [shape.given(f"p{a}") for a in range(states)], []
    for step in range(steps):
        seen = shape.given(f"y{step}", 2)
        nows, choices = [], []
        for b in range(states):
            ways = [shape.run((0, step, b), [here[a], moves[a, b]]) for a in range(states)]
            choices.append(shape.run((0, step, b), ways))
            nows.append(shape.run((0, step, b), [choices[-1], seen]))
        here = nows
        back.append(choices)
    path = shape.run((1, 0, 0), here)
    for step in range(steps - 1, -1, -1):
        path = shape.run((1, steps - step, 0), [path, *back[step]], kind="output")
    return shape


def clusters(ops: int, seed: int = 0) -> Shape:
    """Some rounds of k-means: distances of points to centres, the nearest, and centres as sums of their points."""
    rng = random.Random(seed)
    centres, rounds = 6, 3
    points = max(4, round(ops / rounds / (centres + 2)))
    shape = Shape(Graph(f"clusters-{points}", unit="pebble"))
    data = [shape.given(f"x{i}", 3) for i in range(points)]
    here = [shape.given(f"c{j}", 3) for j in range(centres)]
    for step in range(rounds):
        sums: list[str] = [shape.given(f"s{step}_{j}", 3) for j in range(centres)]
        nearest = []
        for i in range(points):
            apart = [shape.run((step, 0, i), [data[i], here[j]]) for j in range(centres)]
            nearest.append(shape.run((step, 0, i), apart))
        for i in rng.sample(range(points), points):
            j = rng.randrange(centres)
            sums[j] = shape.run((step, 1, i), [sums[j], data[i], nearest[i]], size=3)
        kind = "output" if step == rounds - 1 else "temp"
        here = [shape.run((step, 2, j), [one], size=3, kind=kind) for j, one in enumerate(sums)]
    shape.by("point-by-point", lambda step, part, i: (step, part == 2, i, part))
    return shape


MORE: dict[str, Callable[[int, int], Shape]] = {
    "householder": householder,
    "affine-gaps": affine_gaps,
    "sparse-lu": sparse_lu,
    "allreduce": allreduce,
    "attending-rnn": attending_rnn,
    "planes": unet,
    "viterbi": viterbi,
    "clusters": clusters,
}
