"""Shapes that no order was made for: recursions, sweeps, backward passes, hubs, grids within trees.

They keep the solver honest: whatever makes orders of `benchmarks.structured_graphs` good has to make these good too. Where blocks
of a shape are evident they are named, as for the others.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from benchmarks.applied_shapes import APPLIED
from benchmarks.more_shapes import MORE
from benchmarks.small_shapes import HUNDREDS
from benchmarks.structured_graphs import SHAPES, Shape, blocks_of_two, fft_key
from pebbler.game.graph import Graph

__all__ = ["OTHERS", "make_shape"]


def pyramid(ops: int, seed: int = 0) -> Shape:
    """Each row one shorter than the one below, in random program order within a row."""
    side = round(math.sqrt(2 * ops))
    rng = random.Random(seed)
    shape = Shape(Graph(f"pyramid-{side}", unit="pebble"))
    row = [shape.given(f"x{i}") for i in range(side + 1)]
    for step in range(side):
        made = {}
        for i in rng.sample(range(len(row) - 1), len(row) - 1):
            made[i] = shape.run((step, i), [row[i], row[i + 1]], kind="output" if len(row) == 2 else "temp")
        row = [made[i] for i in range(len(made))]
    blocks_of_two(shape)
    return shape


def plane(ops: int, seed: int = 0) -> Shape:
    """Steps of a plane of points with five neighbours."""
    side = round(ops ** (1 / 3))
    shape = Shape(Graph(f"plane-{side}", unit="pebble"))
    here = {(i, j): shape.given(f"x{i}_{j}") for i in range(side) for j in range(side)}
    for step in range(side):
        near = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))
        kind = "output" if step == side - 1 else "temp"
        here = {
            (i, j): shape.run((step, i, j), [here[i + a, j + b] for a, b in near if (i + a, j + b) in here], kind=kind)
            for i, j in here
        }
    for b in (2, 3, 4, 6, 8, 12):
        shape.by(f"leaning-{b}", lambda t, i, j, b=b: ((i + t) // b, (j + t) // b, t, i, j))
        shape.by(f"leaning-blocks-{b}", lambda t, i, j, b=b: (t // b, (i + t % b) // b, (j + t % b) // b, t, i, j))
    return shape


def scan(ops: int, seed: int = 0) -> Shape:
    """Prefix sums by a tree up and down."""
    bits = round(math.log2(max(4, ops / 2)))
    shape = Shape(Graph(f"scan-{bits}", unit="pebble"))
    level = [shape.given(f"x{i}") for i in range(1 << bits)]
    levels = [level]
    for depth in range(bits):
        level = [shape.run((0, depth, i), level[2 * i : 2 * i + 2]) for i in range(len(level) // 2)]
        levels.append(level)
    above: list[str] = [levels[-1][0]]
    for depth in range(bits - 1, -1, -1):
        kind = "output" if depth == 0 else "temp"
        below: list[str] = []
        for i, own in enumerate(levels[depth]):
            if i == 0:
                below.append(own)
            elif i % 2:
                below.append(above[i // 2])
            else:
                below.append(shape.run((1, depth, i), [above[i // 2 - 1], own], kind=kind))
        above = below
    return shape


def strassen(ops: int, seed: int = 0) -> Shape:
    """Strassen's product of matrices, down to single elements, all products of a depth before their sums."""
    side = 1 << max(1, round(math.log(ops / 12) / math.log(7)))
    shape = Shape(Graph(f"strassen-{side}", unit="pebble"))
    given = [[[shape.given(f"{m}{i}_{j}") for j in range(side)] for i in range(side)] for m in "ab"]
    run = lambda *reads: shape.run((len(shape.places),), list(reads))  # noqa: E731

    def cut(m: list[list[str]]) -> list[list[list[str]]]:
        half = len(m) // 2
        return [[row[c : c + half] for row in m[r : r + half]] for r in (0, half) for c in (0, half)]

    def add(*parts: list[list[str]]) -> list[list[str]]:
        return [[run(*(part[i][j] for part in parts)) for j in range(len(parts[0]))] for i in range(len(parts[0]))]

    def times(a: list[list[str]], b: list[list[str]]) -> list[list[str]]:
        if len(a) == 1:
            return [[run(a[0][0], b[0][0])]]
        a11, a12, a21, a22 = cut(a)
        b11, b12, b21, b22 = cut(b)
        pairs = [
            (add(a11, a22), add(b11, b22)), (add(a21, a22), b11), (a11, add(b12, b22)), (a22, add(b21, b11)),
            (add(a11, a12), b22), (add(a21, a11), add(b11, b12)), (add(a12, a22), add(b21, b22)),
        ]  # fmt: skip
        m = [times(left, right) for left, right in pairs]
        c11, c12, c21, c22 = add(m[0], m[3], m[4], m[6]), add(m[2], m[4]), add(m[1], m[3]), add(m[0], m[1], m[2], m[5])
        top = [left + right for left, right in zip(c11, c12, strict=True)]
        return top + [left + right for left, right in zip(c21, c22, strict=True)]

    total = times(given[0], given[1])
    for row in total:
        for name in row:
            shape.run((len(shape.places),), [name], kind="output")
    return shape


def floyd(ops: int, seed: int = 0) -> Shape:
    """All shortest paths by Floyd and Warshall, an op per pair and step; the textbook goes by blocks of pairs."""
    side = round(ops ** (1 / 3))
    shape = Shape(Graph(f"floyd-{side}", unit="pebble"))
    here = {(i, j): shape.given(f"d{i}_{j}") for i in range(side) for j in range(side)}
    for k in range(side):
        kind = "output" if k == side - 1 else "temp"
        here = {(i, j): shape.run((k, i, j), [here[i, j], here[i, k], here[k, j]], kind=kind) for i, j in here}
    for b in (2, 3, 4, 6, 8):
        shape.by(f"blocks-{b}", lambda k, i, j, b=b: (k // b, i // b, j // b, k, i, j))
    return shape


def near_points(ops: int, seed: int = 0) -> Shape:
    """Points of a square in random order, each reading points near it that came before."""
    rng = random.Random(seed)
    shape = Shape(Graph(f"near-{ops}", unit="pebble"))
    side = max(1, round(math.sqrt(ops / 4)))
    cells: dict[tuple[int, int], list[tuple[float, float, str]]] = {}
    for _ in range(ops):
        x, y = rng.random() * side, rng.random() * side
        cell = int(x), int(y)
        close = [p for a in (-1, 0, 1) for b in (-1, 0, 1) for p in cells.get((cell[0] + a, cell[1] + b), ())]
        close.sort(key=lambda p: (p[0] - x) ** 2 + (p[1] - y) ** 2)
        reads = [p[2] for p in close[:3]] or [shape.given(f"s{len(shape.places)}")]
        name = shape.run((int(x * 4), int(y * 4)), reads, size=rng.randint(1, 4))
        cells.setdefault(cell, []).append((x, y, name))
    for b in (4, 8, 16, 32):
        shape.by(f"blocks-{b}", lambda i, j, b=b: (i // b, j // b))
    return shape


def random_chains(ops: int, seed: int = 0) -> Shape:
    """Many chains in turns, which meet now and then."""
    rng = random.Random(seed)
    count = max(4, round(math.sqrt(ops)))
    shape = Shape(Graph(f"chains-{count}", unit="pebble"))
    ends = [shape.given(f"x{i}", 2) for i in range(count)]
    while len(shape.places) < ops:
        i = rng.randrange(count)
        reads = [ends[i], ends[(i + 1) % count]] if rng.random() < 0.05 else [ends[i]]
        ends[i] = shape.run((i, len(shape.places)), reads, size=rng.randint(1, 5))
    shape.run((count, 0), ends, kind="output")
    shape.by("by-chain", lambda i, n: (i, n))
    return shape


def multigrid(ops: int, seed: int = 0) -> Shape:
    """A V-cycle on a line: smooth, halve, and back; twice."""
    bits = max(3, round(math.log2(ops / 24)))
    shape = Shape(Graph(f"multigrid-{bits}", unit="pebble"))
    line = [shape.given(f"x{i}") for i in range(1 << bits)]

    def smooth(line: list[str], depth: int) -> list[str]:
        for _ in range(2):
            line = [shape.run((depth, i), line[max(0, i - 1) : i + 2]) for i in range(len(line))]
        return line

    for _ in range(2):
        kept = []
        for depth in range(bits - 1):
            line = smooth(line, depth)
            kept.append(line)
            line = [shape.run((depth, i), line[2 * i : 2 * i + 2]) for i in range(len(line) // 2)]
        for depth in range(bits - 2, -1, -1):
            line = [shape.run((depth, i), [own, line[i // 2]]) for i, own in enumerate(kept[depth])]
            line = smooth(line, depth)
    shape.run((0, 0), line, kind="output")
    return shape


def attention_rows(ops: int, seed: int = 0) -> Shape:
    """Causal attention of several heads by blocks of rows and columns, with running sums."""
    blocks, heads = max(2, round(math.sqrt(ops / 4))), 2
    shape = Shape(Graph(f"attention-{blocks}", unit="pebble"))
    for head in range(heads):
        q, k, v = ([shape.given(f"{m}{head}_{i}", 4) for i in range(blocks)] for m in "qkv")
        sums = [shape.given(f"s{head}_{i}", 5) for i in range(blocks)]
        for j in range(blocks):
            for i in range(j, blocks):
                scores = shape.run((head, i, j), [q[i], k[j]], size=8, cost=4)
                sums[i] = shape.run(
                    (head, i, j), [scores, v[j], sums[i]], size=5, cost=4, kind="output" if i == j else "temp"
                )
    for b in (1, 2, 4, 8):
        shape.by(f"by-row-{b}", lambda h, i, j, b=b: (h, i // b, j, i))
        shape.by(f"blocks-{b}", lambda h, i, j, b=b: (h, i // b, j // b, i, j))
    return shape


def odd_even(ops: int, seed: int = 0) -> Shape:
    """Butterflies whose strides come in random order, with a random exchange of places between them."""
    bits = next(b for b in range(1, 40) if b << b >= 0.8 * ops)
    rng = random.Random(seed)
    shape = Shape(Graph(f"butterfly-{bits}", unit="pebble"))
    row = [shape.given(f"x{i}") for i in range(1 << bits)]
    for stage in range(bits):
        stride = rng.randrange(bits)
        kind = "output" if stage == bits - 1 else "temp"
        row = [shape.run((stage, i), [row[i], row[i ^ 1 << stride]], kind=kind) for i in range(1 << bits)]
        if rng.random() < 0.3:
            mask = rng.randrange(1 << bits)
            row = [row[i ^ mask] for i in range(1 << bits)]
    return shape


def skips(ops: int, seed: int = 0) -> Shape:
    """A butterfly whose ops also read their own place two stages before."""
    bits = next(b for b in range(1, 40) if b << b >= 0.8 * ops)
    shape = Shape(Graph(f"skips-{bits}", unit="pebble"))
    rows = [[shape.given(f"x{i}") for i in range(1 << bits)]]
    for stage in range(bits):
        kind = "output" if stage == bits - 1 else "temp"
        before, far = rows[-1], rows[max(0, stage - 2)]
        rows.append(
            [shape.run((stage, i), [before[i], before[i ^ 1 << stage], far[i]], kind=kind) for i in range(1 << bits)]
        )
    for width in range(2, bits):
        shape.by(f"blocks-{width}", fft_key(width))
    return shape


def banded(ops: int, seed: int = 0) -> Shape:
    """LU of a banded matrix, an op per update."""
    band = max(3, round(ops ** (1 / 3) / 1.5))
    side = max(band + 1, round(ops / (band * (band + 1))))
    shape = Shape(Graph(f"banded-{side}-{band}", unit="pebble"))
    near = [(i, j) for i in range(side) for j in range(max(0, i - band), min(side, i + band + 1))]
    known = {(i, j): shape.given(f"a{i}_{j}") for i, j in near}
    for k in range(side):
        end = min(side, k + band + 1)
        for i in range(k + 1, end):
            known[i, k] = shape.run((i, k, k), [known[i, k], known[k, k]], kind="output")
        for i in range(k + 1, end):
            for j in range(k + 1, end):
                last = k == min(i, j) - 1
                kind = "output" if last else "temp"
                known[i, j] = shape.run((i, j, k), [known[i, j], known[i, k], known[k, j]], kind=kind)
    for b in (2, 3, 4, 6, 8, 12):
        shape.by(f"right-{b}", lambda i, j, k, b=b: (k // b, i // b, j // b, k, i, j))
        shape.by(f"left-{b}", lambda i, j, k, b=b: (j // b, i // b, k // b, k, i, j))
    shape.by("by-entry", lambda i, j, k: (max(i, j), i, j, k))
    return shape


def tree_of_stencils(ops: int, seed: int = 0) -> Shape:
    """A tree whose nodes join two lines of points and take some steps of all of them."""
    leaves = max(2, 1 << round(math.log2(max(2, ops / 400))))
    width = 16
    shape = Shape(Graph(f"stencil-tree-{leaves}", unit="pebble"))
    lines = [[shape.given(f"x{leaf}_{i}") for i in range(width)] for leaf in range(leaves)]

    def steps(line: list[str], depth: int, node: int) -> list[str]:
        for step in range(width):
            line = [shape.run((depth, node, step, i), line[max(0, i - 1) : i + 2]) for i in range(len(line))]
        return line

    depth = 0
    lines = [steps(line, 0, node) for node, line in enumerate(lines)]
    while len(lines) > 1:
        depth += 1
        joined = [a + b for a, b in zip(lines[::2], lines[1::2], strict=True)]
        halved = [
            [shape.run((depth, node, -1, i), line[2 * i : 2 * i + 2]) for i in range(width)]
            for node, line in enumerate(joined)
        ]
        lines = [steps(line, depth, node) for node, line in enumerate(halved)]
    shape.run((depth + 1, 0, 0, 0), lines[0], kind="output")
    shape.by("node-by-node", lambda depth, node, step, i: ((node + 1) << depth, depth, step, i))
    return shape


def uneven_branches(ops: int, seed: int = 0) -> Shape:
    """Branches within branches whose values are of very different sizes, all branches of a depth in turns."""
    rng = random.Random(seed)
    shape = Shape(Graph(f"uneven-{ops}", unit="pebble"))

    def size() -> int:
        return min(60, int(rng.paretovariate(0.9)))

    def grow(source: str, budget: int, at: tuple[int, ...]) -> str:
        if budget < 8:
            for _ in range(max(1, budget)):
                source = shape.run(at, [source], size=size())
            return source
        parts, left = [], budget - 1
        width = rng.randint(2, 5)
        for branch in range(width):
            share = left if branch == width - 1 else rng.randint(1, max(1, 2 * left // width))
            left = max(1, left - share)
            parts.append(grow(source, share, (*at, branch)))
        return shape.run(at, parts, size=size())

    here, rounds = shape.given("x", 4), 3
    for part in range(rounds):
        here = grow(here, ops // rounds, (part,))
    shape.run((rounds,), [here], kind="output")
    return shape


def woven(ops: int, seed: int = 0) -> Shape:
    """Chains of very different lengths in turns, each op reading one of a few tables, and a sum of all at the end."""
    rng = random.Random(seed)
    count = max(4, round(math.sqrt(ops) / 2))
    shape = Shape(Graph(f"woven-{count}", unit="pebble"))
    tables = [shape.given(f"T{i}", 12) for i in range(16)]
    weights = [rng.paretovariate(1.0) for _ in range(count)]
    lengths = [max(1, round(ops * weight / sum(weights))) for weight in weights]
    ends = [shape.given(f"x{i}", 3) for i in range(count)]
    turns = [i for i in range(count) for _ in range(lengths[i])]
    rng.shuffle(turns)
    for step, i in enumerate(turns):
        table = (7 * i + rng.randrange(3)) % len(tables)
        ends[i] = shape.run((i, table, step), [ends[i], tables[table]], size=rng.randint(1, 6))
    shape.run((count, 0, len(turns)), ends, kind="output")
    shape.by("by-chain", lambda i, table, step: (i, step))
    for b in (2, 4):
        shape.by(f"some-chains-{b}", lambda i, table, step, b=b: (i // b, step))
    return shape


def diamonds(ops: int, seed: int = 0) -> Shape:
    """Rows that grow by one and shrink again, several such diamonds one after the other, the last entry into the next."""
    side, count = max(4, round(math.sqrt(ops / 5))), 5
    shape = Shape(Graph(f"diamonds-{side}", unit="pebble"))
    here = shape.given("x")
    for number in range(count):
        row = [here]
        for step in range(2 * side - 1):
            grows = step < side - 1
            ends = range(len(row) + 1) if grows else range(len(row) - 1)
            row = [
                shape.run((number, step, i), row[max(0, i - 1) : i + 1] if grows else row[i : i + 2]) for i in ends
            ] or row
        here = row[0]
    shape.run((count, 0, 0), [here], kind="output")
    for b in (4, 8, 16):
        shape.by(f"strips-{b}", lambda n, step, i, b=b: (n, i // b, step, i))
        shape.by(f"leaning-{b}", lambda n, step, i, b=b: (n, (step - i) // b, step, i))
    return shape


def hubs(ops: int, seed: int = 0) -> Shape:
    """Ops that read two near values and, now and then, one that many others read already."""
    rng = random.Random(seed)
    shape = Shape(Graph(f"hubs-{ops}", unit="pebble"))
    made = [shape.given(f"x{i}", rng.randint(1, 5)) for i in range(20)]
    ends = list(made)
    for number in range(ops):
        reads = [made[max(0, len(made) - 1 - int(rng.expovariate(0.02)))] for _ in range(2)]
        if rng.random() < 0.3:
            reads.append(rng.choice(ends))
        name = shape.run((number,), reads, size=rng.randint(1, 5))
        made.append(name)
        ends += reads if rng.random() < 0.1 else []
    shape.run((ops,), made[-10:], kind="output")
    return shape


def karatsuba(ops: int, seed: int = 0) -> Shape:
    """Karatsuba's product of two polynomials, down to single coefficients, all sums of a depth before its products."""
    side = 1 << max(1, round(math.log(ops / 9) / math.log(3)))
    shape = Shape(Graph(f"karatsuba-{side}", unit="pebble"))
    run = lambda *reads: shape.run((len(shape.places),), list(reads))  # noqa: E731

    def times(pairs: list[tuple[list[str], list[str]]]) -> list[list[str]]:
        if len(pairs[0][0]) == 1:
            return [[run(a[0], b[0])] for a, b in pairs]
        half, inner = len(pairs[0][0]) // 2, []
        for a, b in pairs:
            inner += [(a[:half], b[:half]), (a[half:], b[half:])]
            inner.append(tuple([run(m[i], m[half + i]) for i in range(half)] for m in (a, b)))  # type: ignore[arg-type]
        products, done = times(inner), []
        for low, high, both in zip(products[::3], products[1::3], products[2::3], strict=True):
            middle = [run(both[i], low[i], high[i]) for i in range(len(low))]
            total = []
            for i in range(4 * half - 1):
                parts = [
                    part[i - first]
                    for first, part in ((0, low), (half, middle), (2 * half, high))
                    if 0 <= i - first < len(part)
                ]
                total.append(parts[0] if len(parts) == 1 else run(*parts))
            done.append(total)
        return done

    given = [[shape.given(f"{m}{i}") for i in range(side)] for m in "ab"]
    for name in times([(given[0], given[1])])[0]:
        shape.run((len(shape.places),), [name], kind="output")
    return shape


def three_words(ops: int, seed: int = 0) -> Shape:
    """A table of three words, each entry from its seven neighbours."""
    side = round(ops ** (1 / 3))
    shape = Shape(Graph(f"three-words-{side}", unit="pebble"))
    known: dict[tuple[int, int, int], str] = {}
    back = [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1) if a + b + c]
    for i in range(side):
        for j in range(side):
            for k in range(side):
                near = [known[at] for a, b, c in back if (at := (i - a, j - b, k - c)) in known]
                kind = "output" if i == j == k == side - 1 else "temp"
                known[i, j, k] = shape.run((i, j, k), near or [shape.given("x")], kind=kind)
    for b in (2, 3, 4, 6, 8):
        shape.by(f"blocks-{b}", lambda i, j, k, b=b: (i // b, j // b, k // b, i, j, k))
        shape.by(f"bars-{b}", lambda i, j, k, b=b: (j // b, k // b, i, j, k))
    return shape


def adjoint(ops: int, seed: int = 0) -> Shape:
    """Steps of a line of points, then backward through all of them: every forward value is read once more."""
    side = max(4, round(math.sqrt(ops / 2)))
    shape = Shape(Graph(f"adjoint-{side}", unit="pebble"))
    lines = [[shape.given(f"x{i}") for i in range(side)]]
    for step in range(side):
        line = lines[-1]
        lines.append([shape.run((0, step, i), line[max(0, i - 1) : i + 2]) for i in range(side)])
    back = lines.pop()
    for step in range(side - 1, -1, -1):
        kind = "output" if step == 0 else "temp"
        back = [shape.run((1, step, i), [*back[max(0, i - 1) : i + 2], lines[step][i]], kind=kind) for i in range(side)]
    for b in (4, 8, 16):
        shape.by(f"leaning-{b}", lambda back, t, x, b=b: (back, (x - t if back else x + t) // b, -t if back else t, x))
    return shape


def spans(ops: int, seed: int = 0) -> Shape:
    """The best way to put brackets: an entry for every span, a running minimum over the places to split it."""
    side = max(4, round((6 * ops) ** (1 / 3)))
    shape = Shape(Graph(f"spans-{side}", unit="pebble"))
    known = {(i, i): shape.given(f"x{i}") for i in range(side)}
    for width in range(1, side):
        for i in range(side - width):
            best: list[str] = []
            for k in range(i, i + width):
                kind = "output" if width == side - 1 and k == i + width - 1 else "temp"
                best = [shape.run((i, i + width, k), [*best, known[i, k], known[k + 1, i + width]], kind=kind)]
            known[i, i + width] = best[0]
    for b in (2, 4, 8):
        shape.by(f"columns-{b}", lambda i, j, k, b=b: (j // b, -i, j, k))
        shape.by(f"blocks-{b}", lambda i, j, k, b=b: (j // b, -(i // b), j, -i, k))
    return shape


def sweeps(ops: int, seed: int = 0) -> Shape:
    """Sweeps over a square in place, each point from new values before it and old ones after it."""
    side = max(4, round((ops / 2) ** (1 / 3) * 1.4))
    rounds = max(2, round(ops / side**2))
    shape = Shape(Graph(f"sweeps-{side}-{rounds}", unit="pebble"))
    here = {(i, j): shape.given(f"x{i}_{j}") for i in range(side) for j in range(side)}
    for step in range(rounds):
        for i in range(side):
            for j in range(side):
                near = ((0, 0), (-1, 0), (0, -1), (1, 0), (0, 1))
                kind = "output" if step == rounds - 1 else "temp"
                reads = [here[i + a, j + b] for a, b in near if (i + a, j + b) in here]
                here[i, j] = shape.run((step, i, j), reads, kind=kind)
    for b in (2, 4, 8):
        shape.by(f"leaning-{b}", lambda t, i, j, b=b: ((i + t) // b, t, i, j))
        shape.by(f"leaning-blocks-{b}", lambda t, i, j, b=b: ((i + t) // b, (j + t) // b, t, i, j))
    return shape


def random_pairs(ops: int, seed: int = 0) -> Shape:
    """Rows whose ops read two random values of the row before: no locality at all."""
    rng = random.Random(seed)
    width = max(8, round(math.sqrt(ops) / 2))
    shape = Shape(Graph(f"random-pairs-{width}", unit="pebble"))
    row = [shape.given(f"x{i}") for i in range(width)]
    for step in range(max(2, round(ops / width))):
        row = [shape.run((step, i), rng.sample(row, 2)) for i in range(width)]
    shape.run((-1, 0), row, kind="output")
    return shape


OTHERS: dict[str, Callable[[int, int], Shape]] = (
    {
        "pyramid": pyramid,
        "plane": plane,
        "scan": scan,
        "strassen": strassen,
        "floyd": floyd,
        "near": near_points,
        "chains": random_chains,
        "multigrid": multigrid,
        "attention": attention_rows,
        "butterflies": odd_even,
        "skips": skips,
        "banded": banded,
        "stencil-tree": tree_of_stencils,
        "uneven": uneven_branches,
        "woven": woven,
        "diamonds": diamonds,
        "hubs": hubs,
        "karatsuba": karatsuba,
        "three-words": three_words,
        "adjoint": adjoint,
        "spans": spans,
        "sweeps": sweeps,
        "random-pairs": random_pairs,
    }
    | MORE
    | HUNDREDS
    | APPLIED
)


def make_shape(name: str, ops: int, seed: int = 0) -> Shape:
    """Return a shape with about so many ops.

    >>> len(make_shape("fft", 1000).graph.ops)
    1024
    """
    return (SHAPES | OTHERS)[name](ops, seed)
