"""Fifteen shapes from applications: windows, lattices, filters, shuffles, trees of cells, transforms, exchanges between workers.

Program order is how a program without blocks is written: pass by pass, step by step, all of a kind before the next kind. The orders
that are named are the evident blocks of each shape.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from benchmarks.structured_graphs import Shape
from pebbler.game.graph import Graph

__all__ = ["APPLIED"]

Plane = dict[tuple[int, int], str]


def windowed(ops: int, seed: int = 0) -> Shape:
    """Layers of attention in which a token sees a window before it, and one token sees all."""
    layers, window = 3, 6
    tokens = max(8, round(ops / layers / (2 * window + 6)))
    shape = Shape(Graph(f"windowed-{tokens}", unit="pebble"))
    here = [shape.given(f"x{i}", 4) for i in range(tokens)]
    for layer in range(layers):
        weights = [shape.given(f"W{layer}_{m}", 16, "param") for m in "qkvo"]
        made = [
            [shape.run((layer, part, i, i), [one, weights[part]], size=4, cost=4) for i, one in enumerate(here)]
            for part in range(3)
        ]
        after = []
        for i in range(tokens):
            total: list[str] = []
            for j in sorted({0, *range(max(0, i - window + 1), i + 1)}):
                score = shape.run((layer, 3, i, j), [made[0][i], made[1][j]], size=2, cost=4)
                total = [shape.run((layer, 3, i, j), [score, made[2][j], *total], size=5, cost=4)]
            kind = "output" if layer == layers - 1 else "temp"
            after.append(shape.run((layer, 4, i, i), [total[0], weights[3], here[i]], size=4, cost=4, kind=kind))
        here = after
    for b in (1, 4, 16):
        shape.by(f"by-row-{b}", lambda layer, part, i, j, b=b: (layer, i // b, part, i, j))
        shape.by(f"all-layers-{b}", lambda layer, part, i, j, b=b: (i // b, layer, part, i, j))
    return shape


def tree_cells(ops: int, seed: int = 0) -> Shape:
    """Cells of a network on random binary trees, height by height, with the backward pass; gradients of weights are summed up."""
    rng = random.Random(seed)
    words = max(4, round(ops / 8))
    shape = Shape(Graph(f"tree-cells-{words}", unit="pebble"))
    weight = shape.given("W", 24, "param")
    nodes: list[tuple[int, list[int]]] = [(0, []) for _ in range(words)]
    roots = list(range(words))
    while len(roots) > 1:
        at = rng.randrange(len(roots) - 1)
        left, right = roots[at : at + 2]
        nodes.append((1 + max(nodes[left][0], nodes[right][0]), [left, right]))
        roots[at : at + 2] = [len(nodes) - 1]
    last = [0] * len(nodes)  # the last word of each
    for node, (_, below) in enumerate(nodes):
        last[node] = last[below[1]] if below else node
    hidden: dict[int, str] = {}
    gates: dict[int, str] = {}
    for node in sorted(range(len(nodes)), key=lambda node: nodes[node][0]):
        height, below = nodes[node]
        reads = [hidden[one] for one in below] or [shape.given(f"x{node}", 4)]
        gates[node] = shape.run((0, last[node], height), [*reads, weight], size=6, cost=8)
        hidden[node] = shape.run((0, last[node], height), [gates[node], *reads], size=4)
    sent = {len(nodes) - 1: shape.run((1, -last[-1], -nodes[-1][0]), [hidden[len(nodes) - 1]], size=4)}
    total: list[str] = []
    for node in sorted(range(len(nodes)), key=lambda node: -nodes[node][0]):
        height, below = nodes[node]
        at = (1, -last[node], -height)
        reads = [hidden[one] for one in below] or [f"x{node}"]
        for one in below:
            sent[one] = shape.run(at, [sent[node], gates[node], weight], size=4, cost=8)
        kind = "output" if height == 0 and node == words - 1 else "temp"
        total = [shape.run(at, [sent[node], gates[node], *reads, *total], size=24, cost=8, kind=kind)]
    shape.by("word-by-word", lambda back, at, height: (back, at, height))
    return shape


def forward_backward(ops: int, seed: int = 0) -> Shape:
    """Probabilities of the states of a hidden chain: forward, then backward, then both together."""
    states = 5
    steps = max(4, round(ops / (states * (2 * states + 2))))
    shape = Shape(Graph(f"forward-backward-{steps}", unit="pebble"))
    moves = {(a, b): shape.given(f"t{a}_{b}") for a in range(states) for b in range(states)}
    seen = [shape.given(f"y{step}", 2) for step in range(steps)]
    rows = [[shape.given(f"p{a}") for a in range(states)]]
    for step in range(steps):
        row = []
        for b in range(states):
            total: list[str] = []
            for a in range(states):
                total = [shape.run((0, step, b), [rows[-1][a], moves[a, b], *total])]
            row.append(shape.run((0, step, b), [total[0], seen[step]]))
        rows.append(row)
    back = [shape.given(f"e{a}") for a in range(states)]
    for step in range(steps - 1, -1, -1):
        row = []
        for a in range(states):
            total = []
            for b in range(states):
                total = [shape.run((1, steps - step, a), [back[b], moves[a, b], *total])]
            row.append(shape.run((1, steps - step, a), [total[0], seen[step]]))
            shape.run((1, steps - step, a), [row[-1], rows[step][a]], kind="output")
        back = row
    return shape


def warped(ops: int, seed: int = 0) -> Shape:
    """Two series matched within a band: distances first, then the table, then the way back along its middle."""
    band = max(4, round(math.sqrt(ops) / 3))
    steps = max(band + 1, round(ops / (4 * band + 2)))
    shape = Shape(Graph(f"warped-{steps}-{band}", unit="pebble"))
    one, other = ([shape.given(f"{m}{i}", 2) for i in range(steps)] for m in "xy")
    inside = [(i, j) for i in range(steps) for j in range(max(0, i - band), min(steps, i + band + 1))]
    apart = {(i, j): shape.run((0, i, j), [one[i], other[j]]) for i, j in inside}
    best: dict[tuple[int, int], str] = {}
    for i, j in inside:
        near = [best[at] for at in ((i - 1, j), (i, j - 1), (i - 1, j - 1)) if at in best]
        best[i, j] = shape.run((1, i, j), [apart[i, j], *near])
    here = shape.given("end")
    for i in range(steps - 1, -1, -1):
        near = [best[at] for at in ((i, i), (i - 1, i), (i, i - 1)) if at in best]
        here = shape.run((2, -i, -i), [here, *near], kind="output")
    for b in (2, 4, 8, 16):
        shape.by(f"strips-{b}", lambda part, i, j, b=b: (part == 2, j // b, i, j, part))
        shape.by(f"blocks-{b}", lambda part, i, j, b=b: (part == 2, i // b, j // b, part, i, j))
    return shape


def messages(ops: int, seed: int = 0) -> Shape:
    """Layers of messages along the edges of a random geometric graph; edges keep states of their own."""
    rng, layers = random.Random(seed), 3
    points = max(10, round(ops / layers / 4))
    shape = Shape(Graph(f"messages-{points}", unit="pebble"))
    at = [(rng.random(), rng.random()) for _ in range(points)]
    radius = math.sqrt(6 / (math.pi * points))
    edges = [(i, j) for i in range(points) for j in range(i) if math.dist(at[i], at[j]) < radius]
    rng.shuffle(edges)
    here = [shape.given(f"x{i}", 3) for i in range(points)]
    edge = [shape.given(f"e{k}") for k in range(len(edges))]
    for layer in range(layers):
        weight = shape.given(f"W{layer}", 9, "param")
        got: list[list[str]] = [[] for _ in range(points)]
        for k, (i, j) in enumerate(edges):
            edge[k] = shape.run((2 * layer, i), [here[i], here[j], edge[k]], size=2, cost=2)
            got[i].append(edge[k])
            got[j].append(edge[k])
        kind = "output" if layer == layers - 1 else "temp"
        here = [shape.run((2 * layer + 1, i), [here[i], weight, *got[i]], size=3, kind=kind) for i in range(points)]
    swept = sorted(range(points), key=lambda i: (int(6 * at[i][0]), at[i][1]))
    place = {i: number for number, i in enumerate(swept)}
    shape.by("swept", lambda layer, i: (layer, place[i]))
    for b in (10, 30):
        shape.by(f"some-points-{b}", lambda layer, i, b=b: (place[i] // b, layer, place[i]))
    return shape


def winograd(ops: int, seed: int = 0) -> Shape:
    """A convolution by transformed tiles: all tiles of all channels, all products, then all sums back."""
    channels, filters = 4, 4
    side = max(2, round(math.sqrt(ops / (channels + channels * filters + filters))))
    shape = Shape(Graph(f"winograd-{side}", unit="pebble"))
    plane = {
        (c, i, j): shape.given(f"x{c}_{i}_{j}", 4)
        for c in range(channels)
        for i in range(side + 1)
        for j in range(side + 1)
    }
    kernels = {(c, f): shape.given(f"k{c}_{f}", 16, "param") for c in range(channels) for f in range(filters)}
    tiles = [(i, j) for i in range(side) for j in range(side)]
    turned = {}
    for c in range(channels):
        for i, j in tiles:
            corners = [plane[c, i + a, j + b] for a in (0, 1) for b in (0, 1)]
            turned[c, i, j] = shape.run((0, i, j, 0, c), corners, size=16, cost=4)
    sums: dict[tuple[int, int, int], str] = {}
    for c in range(channels):
        for f in range(filters):
            for i, j in tiles:
                before = [sums[f, i, j]] if c else []
                sums[f, i, j] = shape.run((1, i, j, f, c), [turned[c, i, j], kernels[c, f], *before], size=16, cost=16)
    for f in range(filters):
        for i, j in tiles:
            shape.run((2, i, j, f, 0), [sums[f, i, j]], size=4, cost=4, kind="output")
    for b in (1, 2, 4):
        shape.by(f"tiles-{b}", lambda part, i, j, f, c, b=b: (i // b, j // b, part, f, c, i, j))
        shape.by(f"by-filter-{b}", lambda part, i, j, f, c, b=b: (i // b, j // b, f, part, c, i, j))
    return shape


def radix(ops: int, seed: int = 0) -> Shape:
    """Passes of a radix sort: counts of blocks, their prefix sums, and every key to its place."""
    rng, digits, block = random.Random(seed), 4, 8
    keys = max(16, round(ops / 4 / 1.6 / block) * block)
    shape = Shape(Graph(f"radix-{keys}", unit="pebble"))
    line = [(rng.randrange(256), shape.given(f"x{i}")) for i in range(keys)]
    for turn in range(4):
        counts = [
            shape.run((turn, 0, k), [name for _, name in line[k * block : (k + 1) * block]], size=digits)
            for k in range(keys // block)
        ]
        total, sums = shape.given(f"z{turn}", digits), []
        for k, count in enumerate(counts):
            sums.append(total)
            total = shape.run((turn, 1, k), [total, count], size=digits)
        kind = "output" if turn == 3 else "temp"
        moved = [
            (key, shape.run((turn, 2, i // block), [name, sums[i // block], total], kind=kind))
            for i, (key, name) in enumerate(line)
        ]
        line = sorted(moved, key=lambda pair: pair[0] >> (2 * turn) & 3)
    shape.by("block-by-block", lambda turn, part, k: (turn, part == 2, k, part))
    return shape


def kalman(ops: int, seed: int = 0) -> Shape:
    """Filters of many objects, step after step, and the smoothing backward; all share their matrices."""
    objects = max(3, round(math.sqrt(ops / 12)))
    steps = max(3, round(ops / objects / 6))
    shape = Shape(Graph(f"kalman-{objects}-{steps}", unit="pebble"))
    shared = [shape.given(name, 9, "param") for name in "FHQR"]
    states = [shape.given(f"s{k}", 3) for k in range(objects)]
    spreads = [shape.given(f"P{k}", 6) for k in range(objects)]
    kept: list[list[tuple[str, str, str, str]]] = []
    for step in range(steps):
        row = []
        for k in range(objects):
            at = (0, step, k)
            guess = shape.run(at, [states[k], shared[0]], size=3, cost=3)
            wide = shape.run(at, [spreads[k], shared[0], shared[2]], size=6, cost=6)
            gain = shape.run(at, [wide, shared[1], shared[3]], size=3, cost=6)
            states[k] = shape.run(at, [guess, gain, shape.given(f"y{step}_{k}")], size=3, cost=3)
            spreads[k] = shape.run(at, [wide, gain, shared[1]], size=6, cost=6)
            row.append((guess, wide, states[k], spreads[k]))
        kept.append(row)
    for step in range(steps - 2, -1, -1):
        for k in range(objects):
            guess, wide, _, _ = kept[step + 1][k]
            _, _, state, spread = kept[step][k]
            states[k] = shape.run(
                (1, steps - step, k), [state, spread, wide, guess, states[k], shared[0]], size=3, kind="output"
            )
    for b in (1, 2, 4):
        shape.by(f"objects-{b}", lambda back, step, k, b=b: (k // b, back, step, k))
    return shape


def shuffled(ops: int, seed: int = 0) -> Shape:
    """Three rounds in which every worker splits its part for all others, and merges what it gets one after the other."""
    rounds = 3
    workers = max(3, round(math.sqrt(ops / rounds / 2)))
    shape = Shape(Graph(f"shuffled-{workers}", unit="pebble"))
    parts = [shape.given(f"x{i}", 6) for i in range(workers)]
    for step in range(rounds):
        pieces = [[shape.run((step, 0, i, j), [parts[i]]) for j in range(workers)] for i in range(workers)]
        after = []
        for j in range(workers):
            total: list[str] = []
            for i in range(workers):
                kind = "output" if step == rounds - 1 and i == workers - 1 else "temp"
                total = [shape.run((step, 1, i, j), [pieces[i][j], *total], size=6, kind=kind)]
            after.append(total[0])
        parts = after
    for b in (2, 4, 8):
        shape.by(f"blocks-{b}", lambda step, part, i, j, b=b: (step, i // b, j // b, part, i, j))
        shape.by(f"receivers-{b}", lambda step, part, i, j, b=b: (step, j // b, i, part, j))
    return shape


def reversible(ops: int, seed: int = 0) -> Shape:
    """A net whose layers are undone on the way back instead of kept; all samples of a batch layer by layer."""
    layers = max(3, round(math.sqrt(ops / 7)))
    samples = max(2, round(ops / layers / 7))
    shape = Shape(Graph(f"reversible-{layers}-{samples}", unit="pebble"))
    weights = [[shape.given(f"{m}{layer}", 8, "param") for m in "FG"] for layer in range(layers)]
    pairs = [[shape.given(f"x{k}_{m}", 3) for m in (0, 1)] for k in range(samples)]
    for layer in range(layers):
        for k, pair in enumerate(pairs):
            for m in (0, 1):
                pair[m] = shape.run((0, layer, k), [pair[m], pair[1 - m], weights[layer][m]], size=3, cost=6)
    sent = [[shape.run((1, 0, k), [pair[m]], size=3) for m in (0, 1)] for k, pair in enumerate(pairs)]
    for layer in range(layers - 1, -1, -1):
        at = layers - layer
        sums: list[list[str]] = [[], []]
        for k, pair in enumerate(pairs):
            for m in (1, 0):
                pair[m] = shape.run((1, at, k), [pair[m], pair[1 - m], weights[layer][m]], size=3, cost=6)
                kind = "output" if k == samples - 1 else "temp"
                sums[m] = [shape.run((1, at, k), [sent[k][m], pair[1 - m], *sums[m]], size=8, cost=6, kind=kind)]
                sent[k][1 - m] = shape.run(
                    (1, at, k), [sent[k][1 - m], sent[k][m], pair[1 - m], weights[layer][m]], size=3, cost=6
                )
    for b in (1, 2, 4, 8):
        shape.by(f"samples-{b}", lambda back, at, k, b=b: (k // b, back, at, k))
    return shape


def transducer(ops: int, seed: int = 0) -> Shape:
    """A lattice of frames and letters: joint scores, forward, backward, and gradients summed over both sides."""
    letters = max(3, round(math.sqrt(ops / 15)))
    frames = max(3, round(ops / letters / 5))
    shape = Shape(Graph(f"transducer-{frames}-{letters}", unit="pebble"))
    sound, text = [shape.given(f"a{t}", 4) for t in range(frames)], [shape.given(f"l{u}", 4) for u in range(letters)]
    places = [(t, u) for t in range(frames) for u in range(letters)]
    joint = {(t, u): shape.run((0, 0, t, u), [sound[t], text[u]], size=2, cost=4) for t, u in places}
    reach: dict[tuple[int, int], str] = {}
    for t, u in places:
        near = [name for at in ((t - 1, u), (t, u - 1)) if at in reach for name in (reach[at], joint[at])]
        reach[t, u] = shape.run((0, 1, t, u), near or [joint[t, u]])
    left: dict[tuple[int, int], str] = {}
    of_sound: dict[int, str] = {}
    of_text: dict[int, str] = {}
    for t, u in reversed(places):
        at, near = (1, 2, -t, -u), [left[n] for n in ((t + 1, u), (t, u + 1)) if n in left]
        left[t, u] = shape.run(at, [joint[t, u], *near])
        sent = shape.run(at, [left[t, u], reach[t, u], joint[t, u]], size=2)
        kind = "output" if u == 0 else "temp"
        of_sound[t] = shape.run(at, [sent, text[u], *([of_sound[t]] if t in of_sound else [])], size=4, kind=kind)
        kind = "output" if t == 0 else "temp"
        of_text[u] = shape.run(at, [sent, sound[t], *([of_text[u]] if u in of_text else [])], size=4, kind=kind)
    for b in (2, 4, 8):
        shape.by(f"frames-{b}", lambda back, part, t, u, b=b: (back, t // b, part, u, t))
        shape.by(f"letters-{b}", lambda back, part, t, u, b=b: (back, u // b, t, u, part))
    return shape


def exchanged(ops: int, seed: int = 0) -> Shape:
    """Workers that add up their gradients by halving and doubling, some rounds, each after a step of its own."""
    bits, rounds = 3, 3
    workers = 1 << bits
    chunks = max(workers, round(ops / rounds / workers / 4 / workers) * workers)
    shape = Shape(Graph(f"exchanged-{chunks}", unit="pebble"))
    here = [[shape.given(f"x{w}_{c}") for c in range(chunks)] for w in range(workers)]
    for step in range(rounds):
        made = [[shape.run((step, c, 0, w), [one], cost=2) for c, one in enumerate(row)] for w, row in enumerate(here)]
        for bit in range(bits):
            before = [list(row) for row in made]
            for w in range(workers):
                for c in range(chunks):
                    if all((c ^ w) >> b & 1 == 0 for b in range(bit + 1)):
                        made[w][c] = shape.run((step, c, 1 + bit, w), [before[w][c], before[w ^ 1 << bit][c]])
        kind = "output" if step == rounds - 1 else "temp"
        here = [
            [shape.run((step, c, 1 + bits, w), [made[c % workers][c], here[w][c]], kind=kind) for c in range(chunks)]
            for w in range(workers)
        ]
    for b in (1, 4, 16):
        shape.by(f"chunks-{b}", lambda step, c, part, w, b=b: (c // b, step, part, w, c))
    return shape


def grids_and_back(ops: int, seed: int = 0) -> Shape:
    """A V-cycle of three levels on a plane, and its adjoint, which reads all that was smoothed."""
    side = max(4, 4 * round(math.sqrt(ops / 9) / 4))
    shape = Shape(Graph(f"grids-{side}", unit="pebble"))
    near = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))

    def smooth(part: int, depth: int, plane: Plane, own: Plane) -> Plane:
        return {
            (i, j): shape.run(
                (part, i << depth, j << depth),
                [*(plane[i + a, j + b] for a, b in near if (i + a, j + b) in plane), *([own[i, j]] if own else [])],
            )
            for i, j in plane
        }

    def halved(part: int, depth: int, plane: Plane) -> Plane:
        return {
            (i // 2, j // 2): shape.run(
                (part, i << depth, j << depth), [plane[i + a, j + b] for a in (0, 1) for b in (0, 1)]
            )
            for i, j in plane
            if i % 2 == 0 and j % 2 == 0
        }

    def doubled(part: int, depth: int, plane: Plane, fine: Plane) -> Plane:
        return {
            (i, j): shape.run((part, i << depth, j << depth), [one, plane[i // 2, j // 2]])
            for (i, j), one in fine.items()
        }

    plane = {(i, j): shape.given(f"x{i}_{j}") for i in range(side) for j in range(side)}
    kept = [smooth(0, 0, plane, {})]
    for depth in (1, 2):
        kept.append(smooth(0, depth, halved(0, depth - 1, kept[-1]), {}))
    up = kept[2]
    for depth in (1, 0):
        up = smooth(0, depth, doubled(0, depth, up, kept[depth]), {})
    back = smooth(1, 0, up, up)
    fine = [back]
    for depth in (1, 2):
        back = smooth(1, depth, halved(1, depth - 1, back), kept[depth])
        fine.append(back)
    for depth in (1, 0):
        back = smooth(1, depth, doubled(1, depth, back, fine[depth]), kept[depth])
    shape.run((2, 0, 0), list(back.values()), kind="output")
    for b in (4, 8, 16):
        shape.by(f"blocks-{b}", lambda part, i, j, b=b: (part, i // b, j // b))
    return shape


def trains(ops: int, seed: int = 0) -> Shape:
    """The inner product of two trains of tensors, by elements: each core times what came before, one train, then the other."""
    rank, width = 4, 3
    cores = max(2, round(ops / (2 * width * rank**3)))
    shape = Shape(Graph(f"trains-{cores}", unit="pebble"))
    here = {(a, b): shape.given(f"s{a}_{b}") for a in range(rank) for b in range(rank)}
    for core in range(cores):
        one, other = (
            {
                (a, n, b): shape.given(f"{m}{core}_{a}_{n}_{b}")
                for a in range(rank)
                for n in range(width)
                for b in range(rank)
            }
            for m in "AB"
        )
        half: dict[tuple[int, int, int], str] = {}
        for a in range(rank):
            for b in range(rank):
                for n in range(width):
                    for c in range(rank):
                        before = [half[b, n, c]] if a else []
                        half[b, n, c] = shape.run((core, 0, n, a, b, c), [here[a, b], one[a, n, c], *before])
        made: dict[tuple[int, int], str] = {}
        for c in range(rank):
            for d in range(rank):
                for n in range(width):
                    for b in range(rank):
                        before = [made[c, d]] if n or b else []
                        made[c, d] = shape.run((core, 1, n, c, b, d), [half[b, n, c], other[b, n, d], *before])
        here = made
    shape.run((cores, 0, 0, 0, 0, 0), list(here.values()), kind="output")
    shape.by("by-index", lambda core, part, n, a, b, c: (core, n, part, a, b, c))
    shape.by("by-row", lambda core, part, n, a, b, c: (core, part, b, n, a, c))
    return shape


def beliefs(ops: int, seed: int = 0) -> Shape:
    """Rounds of messages in four directions on a square of points, all of a direction before the next."""
    rounds = 4
    side = max(4, round(math.sqrt(ops / rounds / 5)))
    shape = Shape(Graph(f"beliefs-{side}", unit="pebble"))
    own = {(i, j): shape.given(f"x{i}_{j}", 2) for i in range(side) for j in range(side)}
    ways = ((1, 0), (-1, 0), (0, 1), (0, -1))
    sent: dict[tuple[int, int, int], str] = {}
    for step in range(rounds):
        now = {}
        for way, (a, b) in enumerate(ways):
            for i, j in own:
                if (i + a, j + b) in own:
                    got = [
                        sent[v, i - c, j - d]
                        for v, (c, d) in enumerate(ways)
                        if (v, i - c, j - d) in sent and v != way ^ 1
                    ]
                    now[way, i, j] = shape.run((step, way, i, j), [own[i, j], *got])
        sent = now
    for i, j in own:
        got = [sent[v, i - c, j - d] for v, (c, d) in enumerate(ways) if (v, i - c, j - d) in sent]
        shape.run((rounds, 0, i, j), [own[i, j], *got], kind="output")
    for b in (2, 4, 8):
        shape.by(f"leaning-{b}", lambda t, way, i, j, b=b: ((i + t) // b, t, way, i, j))
        shape.by(f"leaning-blocks-{b}", lambda t, way, i, j, b=b: ((i + t) // b, (j + t) // b, t, way, i, j))
    return shape


APPLIED: dict[str, Callable[[int, int], Shape]] = {
    "windowed": windowed,
    "tree-cells": tree_cells,
    "forward-backward": forward_backward,
    "warped": warped,
    "messages": messages,
    "winograd": winograd,
    "radix": radix,
    "kalman": kalman,
    "shuffled": shuffled,
    "reversible": reversible,
    "transducer": transducer,
    "exchanged": exchanged,
    "grids": grids_and_back,
    "trains": trains,
    "beliefs": beliefs,
}
