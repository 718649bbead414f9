"""Graphs with structure, each with the orders that a textbook gives for it: blocks, by expert, layer by layer, branches sorted.

A `Shape` is a graph in its usual program order, and keys by name. A key gives every op a rank; the order of that name runs the
ready op of the least rank, so it is legal whatever the key is. Sizes are about the number of ops that is asked for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pebbler.game.graph import Graph
from pebbler.game.ready_list import ReadyList, schedule_by_key

__all__ = ["SHAPES", "Shape", "blocks_of_two", "breadth_first", "depth_first", "fft_key"]


@dataclass
class Shape:
    """A graph of single elements, or of tensors, with where each op stands in its structure."""

    graph: Graph
    keys: dict[str, Callable[[int], Any]] = field(default_factory=dict)
    places: list[tuple[int, ...]] = field(default_factory=list)  # per op

    def given(self, name: str, size: int = 1, kind: str = "input") -> str:
        """Add a tensor that is there at the start."""
        self.graph.tensor(name, size, kind)
        return name

    def run(
        self, place: tuple[int, ...], reads: list[str], *, size: int = 1, kind: str = "temp", cost: float = 1
    ) -> str:
        """Add an op and its result; return the result's name."""
        name = f"v{len(self.places)}"
        self.graph.tensor(name, size, kind)
        self.graph.op(f"o{len(self.places)}", list(dict.fromkeys(reads)), [name], cost)
        self.places.append(place)
        return name

    def by(self, name: str, key: Callable[..., Any]) -> None:
        """Name an order: `key` takes an op's place."""
        self.keys[name] = lambda op: key(*self.places[op])

    def orders(self) -> dict[str, list[int]]:
        """Return program order, depth first, breadth first and the textbook's orders."""
        flow = self.graph.dataflow
        found = {
            "program": list(range(flow.ops)),
            "depth": depth_first(self.graph),
            "breadth": breadth_first(self.graph),
        }
        for name, key in self.keys.items():
            found[name] = schedule_by_key(ReadyList.of(flow), key)
        return found


def depth_first(graph: Graph) -> list[int]:
    """Return the ops as a walk from each end gives them: what an op waits for in the order of its reads, then the op."""
    flow = graph.dataflow
    before = flow.before.lists()
    order: list[int] = []
    seen = [False] * flow.ops
    for end in range(flow.ops):
        if len(flow.after.row(end)):
            continue
        stack = [(end, 0)]
        seen[end] = True
        while stack:
            op, at = stack.pop()
            if at == len(before[op]):
                order.append(op)
                continue
            stack.append((op, at + 1))
            if not seen[before[op][at]]:
                seen[before[op][at]] = True
                stack.append((before[op][at], 0))
    return order


def breadth_first(graph: Graph) -> list[int]:
    """Return the ops by how many ops must run before them, one after the other."""
    flow = graph.dataflow
    depth = [0] * flow.ops
    for op, before in enumerate(flow.before.lists()):
        depth[op] = 1 + max((depth[other] for other in before), default=-1)
    return sorted(range(flow.ops), key=lambda op: depth[op])


def tree(ops: int, seed: int = 0) -> Shape:
    """Sums in pairs, level by level."""
    shape = Shape(Graph(f"tree-{ops}", unit="pebble"))
    level = [shape.given(f"x{i}") for i in range(1 << round(math.log2(ops + 1)))]
    depth = 0
    while len(level) > 1:
        kind = "output" if len(level) == 2 else "temp"
        level = [shape.run((depth, i), [level[i], level[i + 1]], kind=kind) for i in range(0, len(level), 2)]
        depth += 1
    return shape


def fft(ops: int, seed: int = 0) -> Shape:
    """A butterfly of all bits; the textbook does some stages at once in blocks."""
    bits = next(b for b in range(1, 40) if b << b >= 0.8 * ops)
    shape = Shape(Graph(f"fft-{bits}", unit="pebble"))
    row = [shape.given(f"x{i}") for i in range(1 << bits)]
    for stage in range(bits):
        kind = "output" if stage == bits - 1 else "temp"
        row = [shape.run((stage, i), [row[i], row[i ^ 1 << stage]], kind=kind) for i in range(1 << bits)]
    for width in range(2, bits):
        shape.by(f"blocks-{width}", fft_key(width))
    return shape


def fft_key(width: int) -> Callable[[int, int], Any]:
    """Return the key of so many stages of a butterfly at once."""

    def key(stage: int, i: int) -> Any:
        low = stage // width * width
        outside = i >> low + width << low | i & (1 << low) - 1
        return low, outside, stage, i

    return key


def wavefront(ops: int, seed: int = 0) -> Shape:
    """A table in which an entry needs its left, upper and upper left neighbours (an alignment of two words)."""
    side = round(math.sqrt(ops))
    shape = Shape(Graph(f"wavefront-{side}", unit="pebble"))
    words = [[shape.given(f"{word}{i}") for i in range(side)] for word in "pq"]
    known: dict[tuple[int, int], str] = {}
    for i in range(side):
        for j in range(side):
            near = [known[at] for at in ((i - 1, j), (i, j - 1), (i - 1, j - 1)) if at in known]
            kind = "output" if i == j == side - 1 else "temp"
            known[i, j] = shape.run((i, j), [words[0][i], words[1][j], *near], kind=kind)
    blocks_of_two(shape)
    return shape


def blocks_of_two(shape: Shape) -> None:
    """Name strips and blocks of a table, by two places."""
    for b in (3, 4, 6, 8, 12, 16, 24, 32):
        shape.by(f"strips-{b}", lambda i, j, b=b: (j // b, i, j))
        shape.by(f"blocks-{b}", lambda i, j, b=b: (i // b, j // b, i, j))


def stencil(ops: int, seed: int = 0) -> Shape:
    """Steps of a line of points, each from itself and its neighbours; the textbook's blocks lean in time."""
    side = round(math.sqrt(ops))
    shape = Shape(Graph(f"stencil-{side}", unit="pebble"))
    line = [shape.given(f"x{i}") for i in range(side)]
    for step in range(side):
        kind = "output" if step == side - 1 else "temp"
        line = [
            shape.run((step, i), line[max(0, i - 1) : i + 2], kind=kind)  # all of these are of the step before
            for i in range(side)
        ]
    for b in (3, 4, 6, 8, 12, 16, 24, 32, 48):
        shape.by(f"leaning-{b}", lambda t, x, b=b: ((x + t) // b, t, x))
        shape.by(f"leaning-blocks-{b}", lambda t, x, b=b: (t // b, (x + t % b) // b, t, x))
    return shape


def bitonic(ops: int, seed: int = 0) -> Shape:
    """Batcher's bitonic sort: an op compares two values and writes both; the textbook sorts blocks as far as they go."""
    bits = next(b for b in range(2, 30) if (b * (b + 1) // 2) << (b - 1) >= 0.8 * ops)
    shape = Shape(Graph(f"bitonic-{bits}", unit="pebble"))
    row = [shape.given(f"x{i}") for i in range(1 << bits)]
    step, steps = 0, bits * (bits + 1) // 2
    strides: list[int] = []
    for phase in range(bits):
        for stride in range(phase, -1, -1):
            strides.append(stride)
            for i in range(1 << bits):
                other = i ^ 1 << stride
                if other > i:
                    kind = "output" if step == steps - 1 else "temp"
                    names = [f"v{len(shape.places)}a", f"v{len(shape.places)}b"]
                    for name in names:
                        shape.graph.tensor(name, 1, kind)
                    shape.graph.op(f"o{len(shape.places)}", [row[i], row[other]], names, 1)
                    shape.places.append((step, i))
                    row[i], row[other] = names
            step += 1
    for width in range(2, bits):
        group, groups = -1, []
        for at, stride in enumerate(strides):
            if stride >= width or at == 0 or strides[at - 1] >= width:
                group += 1
            groups.append(group)
        shape.by(
            f"blocks-{width}",
            lambda s, i, width=width, groups=groups: (groups[s], i >> width if strides[s] < width else 0, s, i),
        )
    return shape


def cholesky(ops: int, seed: int = 0) -> Shape:
    """A dense factorisation by single elements, right-looking; the textbook goes by blocks."""
    side = round((6 * ops) ** (1 / 3))
    shape = Shape(Graph(f"cholesky-{side}", unit="pebble"))
    known = {(i, j): shape.given(f"a{i}_{j}") for i in range(side) for j in range(i + 1)}
    for k in range(side):
        known[k, k] = shape.run((k, k, k), [known[k, k]], kind="output")
        for i in range(k + 1, side):
            known[i, k] = shape.run((i, k, k), [known[i, k], known[k, k]], kind="output")
        for j in range(k + 1, side):
            for i in range(j, side):
                known[i, j] = shape.run((i, j, k), [known[i, j], known[i, k], known[j, k]])
    for b in (2, 3, 4, 5, 6, 8, 10, 12, 16):
        shape.by(f"left-{b}", lambda i, j, k, b=b: (j // b, i // b, k // b, k, j, i))
        shape.by(f"right-{b}", lambda i, j, k, b=b: (k // b, j // b, i // b, k, j, i))
        shape.by(f"by-row-{b}", lambda i, j, k, b=b: (i // b, j // b, k // b, k, j, i))
    return shape


def trisolve(ops: int, seed: int = 0) -> Shape:
    """A triangular solve with the matrix of a square grid, an op per unknown."""
    side = round(math.sqrt(ops))
    shape = Shape(Graph(f"trisolve-{side}", unit="pebble"))
    known: dict[tuple[int, int], str] = {}
    for i in range(side):
        for j in range(side):
            near = [known[at] for at in ((i, j - 1), (i - 1, j), (i - 1, j + 1)) if at in known]
            row = shape.given(f"L{i}_{j}", 1 + len(near))
            known[i, j] = shape.run((i, j), [row, shape.given(f"b{i}_{j}"), *near], kind="output", cost=1 + len(near))
    for b in (3, 4, 6, 8, 12, 16, 24, 32):
        shape.by(f"leaning-{b}", lambda i, j, b=b: ((i + j) // b, i, j))
        shape.by(f"leaning-blocks-{b}", lambda i, j, b=b: (i // b, (j + i % b) // b, i, j))
    return shape


def experts(ops: int, seed: int = 0) -> Shape:
    """A mixture of experts: tokens choose two of 16 experts in every layer; program order takes token after token."""
    rng = random.Random(seed)
    layers, count = 4, 16
    tokens = max(4, round(ops / layers / 6))
    shape = Shape(Graph(f"experts-{tokens}", unit="pebble"))
    weights = [[shape.given(f"W{layer}_{e}", 64, "param") for e in range(count)] for layer in range(layers)]
    routers = [shape.given(f"R{layer}", 8, "param") for layer in range(layers)]
    here = [shape.given(f"x{t}", 4) for t in range(tokens)]
    for layer in range(layers):
        for t in range(tokens):
            gate = shape.run((layer, -1, t), [here[t], routers[layer]])
            outs = []
            for e in rng.sample(range(count), 2):
                wide = shape.run((layer, e, t), [here[t], weights[layer][e]], size=8, cost=8)
                outs.append(shape.run((layer, e, t), [wide, weights[layer][e]], size=4, cost=8))
            kind = "output" if layer == layers - 1 else "temp"
            here[t] = shape.run((layer, count, t), [here[t], gate, *outs], size=4, kind=kind)
    shape.by("by-expert", lambda layer, e, t: (layer, e, t))
    return shape


def shared(ops: int, seed: int = 0) -> Shape:
    """A training step of a transformer whose layers share their weights; program order adds their gradients up at the end."""
    layers = max(2, round(ops / 31))
    shape = Shape(Graph(f"shared-{layers}", unit="pebble"))
    weights = [shape.given(f"W{i}", 16, "param") for i in range(6)]
    here, saved = shape.given("x", 4), []
    for layer in range(layers):
        kept = [here]
        for i in range(6):
            here = shape.run((0, layer, i), [here, weights[i]], size=4, cost=8)
            kept.append(here)
        here = shape.run((0, layer, 6), [here, kept[0]], size=4)
        saved.append(kept)
    gradient = shape.run((0, layers, 0), [here], size=4)
    pieces: list[list[str]] = [[] for _ in range(6)]
    for layer in range(layers - 1, -1, -1):
        skip = gradient
        for i in range(5, -1, -1):
            pieces[i].append(shape.run((1, layers - layer, 0), [saved[layer][i], gradient], size=16, cost=8))
            gradient = shape.run((1, layers - layer, 1), [weights[i], gradient, saved[layer][i + 1]], size=4, cost=8)
        gradient = shape.run((1, layers - layer, 1), [gradient, skip], size=4)
    for i in range(6):
        total = pieces[i][0]
        for number, piece in enumerate(pieces[i][1:], start=1):
            total = shape.run((1, number + 1, -1), [total, piece], size=16, kind="temp")
        shape.graph.op(f"u{i}", [total, weights[i]], [weights[i]], 1)
        shape.places.append((2, 0, i))
    shape.by("layer-by-layer", lambda back, layer, what: (back, layer, what))
    return shape


def lstm(ops: int, seed: int = 0) -> Shape:
    """Cells of a deep LSTM in time, forward, step after step; the textbook goes layer by layer, or by blocks."""
    layers = 12
    steps = max(2, round(ops / layers / 6))
    shape = Shape(Graph(f"lstm-{steps}", unit="pebble"))
    weights = [shape.given(f"W{layer}", 64, "param") for layer in range(layers)]
    hidden = [shape.given(f"h{layer}", 4) for layer in range(layers)]
    cells = [shape.given(f"c{layer}", 4) for layer in range(layers)]
    for step in range(steps):
        below = shape.given(f"x{step}", 4)
        for layer in range(layers):
            at = (step, layer)
            gates = [shape.run(at, [below, hidden[layer], weights[layer]], size=4, cost=8) for _ in range(4)]
            cells[layer] = shape.run(at, [*gates[:3], cells[layer]], size=4)
            last = layer == layers - 1 or step == steps - 1
            hidden[layer] = shape.run(at, [gates[3], cells[layer]], size=4, kind="output" if last else "temp")
            below = hidden[layer]
    shape.by("layer-by-layer", lambda step, layer: (layer, step))
    for b in (4, 8, 16, 32, 64):
        shape.by(f"steps-{b}", lambda step, layer, b=b: (step // b, layer, step))
    return shape


def series_parallel(ops: int, seed: int = 0) -> Shape:
    """Branches within branches, of random sizes; the textbook runs the branch first that needs most beyond what it leaves."""
    rng = random.Random(seed)
    shape = Shape(Graph(f"series-parallel-{ops}", unit="pebble"))
    ranks: list[tuple[int, ...]] = []

    def grow(source: str, budget: int, rank: tuple[int, ...]) -> tuple[str, int, int]:
        """Add a part that reads `source`; return its result, its peak beside the source, and what it leaves."""
        if budget <= 4 or rng.random() < 0.1:
            peak = here = 0
            for _ in range(max(1, budget)):
                size = rng.randint(1, 9)
                source = shape.run((len(ranks),), [source], size=size)
                ranks.append(rank)
                peak, here = max(peak, here + size), size
            return source, peak, here
        if rng.random() < 0.4:
            first = rng.randint(1, budget - 1)
            middle, peak, left = grow(source, first, (*rank, 0))
            end, more, after = grow(middle, budget - first, (*rank, 1))
            return end, max(peak, left + more), after
        width = rng.randint(2, 4)
        first = len(ranks)
        parts = []
        for _ in range(width):
            begin = len(ranks)
            result = grow(source, max(1, budget // width), (*rank, 0))
            parts.append((result, begin, len(ranks)))
        need = sorted(range(width), key=lambda i: parts[i][0][2] - parts[i][0][1])
        held = peak = 0
        for place, i in enumerate(need):
            (_, more, left), begin, end = parts[i]
            peak, held = max(peak, held + more), held + left
            for op in range(begin, end):
                ranks[op] = (*rank, place, *ranks[op][len(rank) + 1 :])
        size = rng.randint(1, 9)
        joined = shape.run((len(ranks),), [part[0][0] for part in parts], size=size)
        ranks.append((*rank, width))
        return joined, max(peak, held + size), size

    end, _, _ = grow(shape.given("x", 4), ops, ())
    shape.run((len(ranks),), [end], kind="output")
    ranks.append((9,))
    shape.by("branches-sorted", lambda op: ranks[op])
    return shape


def conjugate_gradients(ops: int, seed: int = 0) -> Shape:
    """Fine-grained conjugate gradients with a random sparse matrix, as in public sets of task graphs."""
    rng = random.Random(seed)
    n = max(4, round(math.sqrt(ops / 6)))
    rounds = max(2, round(ops / n / 15))
    shape = Shape(Graph(f"cg-{n}-{rounds}", unit="pebble"))
    rows = _sparse_rows(rng, n)
    matrix = {(i, j): shape.given(f"A{i}_{j}") for i in range(n) for j in rows[i]}
    r = [shape.given(f"r{i}") for i in range(n)]
    x, p = [shape.given(f"x{i}") for i in range(n)], r
    run = lambda *reads, kind="temp": shape.run((len(shape.places),), list(reads), kind=kind)  # noqa: E731
    rho = run(*[run(a) for a in r])
    for _ in range(rounds):
        q = [run(*[run(matrix[i, j], p[j]) for j in rows[i]]) for i in range(n)]
        alpha = run(rho, run(*[run(a, b) for a, b in zip(p, q, strict=True)]))
        x = [run(a, alpha, b, kind="temp") for a, b in zip(x, p, strict=True)]
        r = [run(a, alpha, b) for a, b in zip(r, q, strict=True)]
        new = run(*[run(a) for a in r])
        beta = run(new, rho)
        p, rho = [run(a, beta, b) for a, b in zip(r, p, strict=True)], new
    run(*x, kind="output")
    return shape


def powers(ops: int, seed: int = 0) -> Shape:
    """Fine-grained products of a sparse matrix with a vector, again and again (`exp` of public sets of task graphs)."""
    rng = random.Random(seed)
    n = max(4, round(math.sqrt(ops / 5)))
    shape = Shape(Graph(f"powers-{n}", unit="pebble"))
    rows = _sparse_rows(rng, n)
    matrix = {(i, j): shape.given(f"A{i}_{j}") for i in range(n) for j in rows[i]}
    here, step = [shape.given(f"x{i}") for i in range(n)], 0
    rounds = max(2, round(ops / sum(len(row) + 1 for row in rows)))
    for step in range(rounds):
        kind = "output" if step == rounds - 1 else "temp"
        here = [
            shape.run((step, i), [shape.run((step, i), [matrix[i, j], here[j]]) for j in rows[i]], kind=kind)
            for i in range(n)
        ]
    return shape


def _sparse_rows(rng: random.Random, n: int) -> list[list[int]]:
    rows = [{i} for i in range(n)]
    for _ in range(3 * n):
        i = rng.randrange(n)
        rows[i].add((i + round(rng.gauss(0, 3))) % n if rng.random() < 0.8 else rng.randrange(n))
    return [sorted(row) for row in rows]


SHAPES: dict[str, Callable[[int, int], Shape]] = {
    "tree": tree,
    "fft": fft,
    "wavefront": wavefront,
    "stencil": stencil,
    "bitonic": bitonic,
    "cholesky": cholesky,
    "trisolve": trisolve,
    "experts": experts,
    "shared": shared,
    "lstm": lstm,
    "series-parallel": series_parallel,
    "cg": conjugate_gradients,
    "powers": powers,
}
