"""Graphs, machines and forms of kinds that `attacks` leaves out, made from the rules alone.

Ops that read a tensor twice or nothing at all, results of different axes, axes that only a result has, sums that begin with a value
that is added once, outputs that are read, values written over in place or by something smaller, beside other results, read after
that or not; prime extents, tiles of which the last is smaller, sums that run backwards.
"""

from __future__ import annotations

import random
from math import prod

from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.solver.tiling.transform_space import Transform, TransformSpace

Named = tuple[str, ...] | None  # the axes of a tensor by name; None: it has none and any size


class _Growing:
    """A graph that grows op by op, and the axes of all that can be read."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.graph = rng, Graph("odd", unit="pebble")
        names = rng.sample("ijkb", rng.choice([1, 2, 2, 3, 3, 4]))
        self.extent = {axis: rng.choice([1, 2, 3, 3, 4, 5, 7]) for axis in names}
        self.axes: dict[str, Named] = {}

    def tensor(self, axes: Named, kind: str, overwrites: str | None = None, size: int | None = None) -> str:
        name = f"{kind[0]}{len(self.graph.tensors)}"
        sized = None if axes is None else [(axis, self.extent[axis]) for axis in axes]
        units = (size or self.rng.choice([1, 1, 2, 5, 9])) if sized is None else prod(extent for _, extent in sized)
        self.graph.tensor(name, units, kind, axes=sized, overwrites=overwrites)
        self.axes[name] = axes
        return name

    def any_axes(self) -> Named:
        if self.rng.random() < 0.08:
            return None
        return tuple(axis for axis in self.extent if self.rng.random() < 0.65)[:3]

    def result(self, axes: Named) -> str:
        return self.tensor(axes, "output" if self.rng.random() < 0.12 else "temp")

    def known(self) -> str:
        names = list(self.axes)
        return self.rng.choice(names[-4:] if self.rng.random() < 0.6 else names)

    def whole(self) -> list[str]:
        return [axis for axis in self.extent if self.rng.random() < 0.12]

    def op(self, reads: list[str], writes: list[str], **more: object) -> None:
        self.graph.op(f"op{len(self.graph.ops)}", reads, writes, **more)  # type: ignore[arg-type]

    def add_any(self) -> None:
        rng, reads = self.rng, [self.known() for _ in range(self.rng.choice([1, 2, 2, 3]))]
        reads = reads if rng.random() < 0.15 else list(dict.fromkeys(reads))
        seen = sorted({axis for name in reads for axis in self.axes[name] or ()})
        some = [[axis for axis in rng.sample(seen, len(seen)) if rng.random() < 0.6] for _ in range(3)]
        writes = [
            self.result(self.any_axes() if rng.random() < 0.15 else tuple(axes[:3]))
            for axes in some[: rng.choice([1, 1, 1, 2, 3])]
        ]
        kept = set.intersection(*(set(self.axes[name] or ()) for name in writes))
        adds = [name for name in reads if set(self.axes[name] or ()) <= kept and rng.random() < 0.5][: len(reads) - 1]
        cost = rng.choice([0, 0, 0, 0, 1, 2.5])
        self.op(reads, writes, once=rng.random() < 0.12, whole=self.whole(), cost=cost, meta={"adds": adds[:1]})

    def add_pointwise(self) -> None:
        rng, first = self.rng, self.known()
        reads = list(dict.fromkeys([first, *(self.known() for _ in range(rng.choice([0, 1, 1, 2])))]))
        rng.shuffle(reads)
        writes = [self.result(self.axes[first]) for _ in range(rng.choice([1, 1, 1, 2]))]
        self.op(reads, writes, pointwise=True, whole=self.whole(), once=rng.random() < 0.06)

    def add_overwriting(self) -> None:
        """In place or under another name, smaller or not, read or not, beside other results or not."""
        rng, graph = self.rng, self.graph
        names = [name for name in self.axes if graph.tensor_named(name).kind != "output"]
        if not names:
            return
        name = rng.choice(names)
        axes = self.axes[name]
        reads = [one for one in dict.fromkeys([self.known(), self.known()]) if one != name][: rng.choice([0, 1, 1, 2])]
        if rng.random() < 0.8:
            reads.insert(rng.randint(0, len(reads)), name)
        writes = [self.result(self.any_axes()) for _ in range(rng.choice([0, 0, 0, 1]))]
        if rng.random() < 0.6:
            writes.insert(0, name)
        else:
            size = None if axes is not None else rng.randint(1, graph.tensor_named(name).size)
            writes.insert(0, self.tensor(axes, "temp", overwrites=name, size=size))
            del self.axes[name]
        rng.shuffle(writes)
        same = all(self.axes[other] == axes for other in writes)
        self.op(reads, writes, pointwise=same and rng.random() < 0.7)

    def add_barrier(self) -> None:
        """Something that needs all of some values, and what reads them again with it."""
        rng, names = self.rng, list(self.axes)
        reads = list(dict.fromkeys(rng.choice(names[-5:]) for _ in range(2)))
        everything = self.tensor((), "temp")
        self.op(reads, [everything])
        again = [name for name in dict.fromkeys([everything, *reads, rng.choice(names)]) if rng.random() < 0.8]
        self.op(again or [everything], [self.result(rng.choice([(), self.any_axes()]))], whole=self.whole())


def odd_graph(rng: random.Random) -> Graph:
    """Return a small graph of any shape that the rules allow."""
    while True:
        growing = _Growing(rng)
        for _ in range(rng.randint(1, 3)):
            growing.tensor(growing.any_axes(), rng.choice(["input", "param", "param"]))
        kinds = [growing.add_any, growing.add_pointwise, growing.add_overwriting, growing.add_barrier]
        for _ in range(rng.randint(2, 7)):
            rng.choices(kinds, [4, 3, 1.5, 1.5])[0]()
        growing.op([growing.known()], [growing.tensor((), "output")])
        try:
            _ = growing.graph.dataflow
        except InputError:
            continue  # something is read after it was overwritten
        return growing.graph


def odd_machine(rng: random.Random, graph: Graph) -> Machine:
    """Return a machine whose levels are about as large as what an op touches, a tile of that, or one tensor."""
    sizes = [tensor.size for tensor in graph.tensors]
    touched = [sum(graph.tensor_named(name).size for name in {*op.reads, *op.writes}) for op in graph.ops]
    extents = [extent for tensor in graph.tensors for _, extent in tensor.axes or ()] or [1]
    levels, near, farther = [], [0, 1, 1, 5], [1, 1, 2, 10]
    for number in range(rng.choice([1, 1, 1, 2, 3])):
        part = rng.choice(touched) / rng.choice(extents)
        base = rng.choice([rng.choice(touched), part, sum(sizes) * rng.random(), rng.choice(sizes), 3])
        prices = farther if number else near
        room = max(1, int(base) + rng.choice([-1, 0, 0, 1, 2, 3]))
        levels.append(Level(f"l{number}", rng.choice(prices), rng.choice(prices), capacity=room))
    levels.append(Level("far", *(rng.choice([0, 1, 10, 10, 100, 1000]) for _ in range(2))))
    if rng.random() < 0.1:
        levels = [Level(one.name, one.read + 0.1, one.write + 0.3, capacity=one.capacity) for one in levels]
    return _managed(rng, graph, levels, line=rng.choice([1, 1, 1, 2, 3]))


def _managed(rng: random.Random, graph: Graph, levels: list[Level], line: int) -> Machine:
    lru = rng.random() < 0.5
    operands = "any" if lru or rng.random() < 0.8 else "fastest"
    return Machine(
        "odd",
        graph.unit,
        tuple(levels),
        "lru" if lru else "explicit",
        operands,  # type: ignore[arg-type]
        allocator=rng.choice(["own", "reuse", "reuse"]),
        line=line if lru else 1,
    )


def phased_graph(rng: random.Random) -> Graph:
    """Return a step in two phases: values per row from shared operands, something that needs all of them, and their second use."""
    graph = Graph("phases", unit="pebble")
    i, k = ("i", rng.choice([3, 4, 5, 7])), ("k", rng.choice([1, 2, 5, 12]))
    whole = ["k"] if rng.random() < 0.7 else []

    def tensor(name: str, axes: list[tuple[str, int]], kind: str = "temp") -> str:
        graph.tensor(name, prod(extent for _, extent in axes), kind, axes=axes)
        return name

    given = [tensor("x0", rng.choice([[i], [i, k]]), rng.choice(["input", "param"]))]
    for number in range(1, rng.randint(1, 4)):
        given.append(tensor(f"x{number}", rng.choice([[i], [i, k], [k]]), rng.choice(["input", "param", "temp"])))
        if graph.tensor_named(given[-1]).kind == "temp":
            graph.op(f"make{number}", [], [given[-1]], once=rng.random() < 0.2)
    made: list[str] = []
    for number in range(rng.randint(1, 4)):
        reads = [*rng.sample(given, rng.randint(1, len(given))), *rng.sample(made, min(len(made), rng.randint(0, 2)))]
        rng.shuffle(reads)
        axes = rng.choice([[i], [i], [i], [i, k]])
        results = [tensor(f"t{number}_{one}", axes) for one in range(rng.choice([1, 1, 2]))]
        adds = [name for name in reads if graph.tensor_named(name).axes == (i,)][: len(reads) - 1]
        meta = {"adds": adds[:1]} if rng.random() < 0.2 else {}
        graph.op(f"f{number}", reads, results, whole=whole, pointwise=rng.random() < 0.6, meta=meta)
        made += results
    graph.op("all", rng.sample(made, rng.randint(1, len(made))), [tensor("s", [])])
    last = ["s"]
    for number in range(rng.randint(1, 3)):
        pool = [*made, *given, *last[1:]]
        reads = ["s", *rng.sample(pool, rng.randint(1, min(4, len(pool))))]
        last.append(tensor(f"r{number}", rng.choice([[i], [i], [], [k]])))
        graph.op(f"b{number}", reads, last[-1:], whole=whole, pointwise=rng.random() < 0.5)
    for name in given:
        if graph.tensor_named(name).kind == "param" and rng.random() < 0.7:
            graph.op(f"update_{name}", [name, "s"], [name], pointwise=rng.random() < 0.7)
    graph.op("end", last[-1:], [tensor("y", [], "output")])
    return graph


def phased_machine(rng: random.Random, graph: Graph) -> Machine:
    """Return a machine whose near level holds about what one piece touches; writing far is cheap, or more than making again."""
    rows = next(extent for tensor in graph.tensors for axis, extent in tensor.axes or () if axis == "i")
    size, parts = rng.randint(1, rows), []
    for op in graph.ops:
        tensors = [graph.tensor_named(name) for name in {*op.reads, *op.writes}]
        parts.append(sum(one.size * size // rows if "i" in dict(one.axes or ()) else one.size for one in tensors))
    room = max(1, int(rng.choice(parts) * rng.choice([0.5, 1, 1, 1.5, 2])) + rng.randint(-1, 4))
    near, far = rng.choice([(1, 1), (0, 1), (1, 0)]), (rng.choice([2, 10, 100]), rng.choice([0, 1, 10, 100, 1000]))
    levels = [Level("near", *near, capacity=room), Level("far", *far)]
    if rng.random() < 0.25:
        middle = max(1, int(room * rng.choice([0.5, 2, 4])))
        levels.insert(1, Level("middle", 2, rng.choice([0, 1, 2]), capacity=middle))
    return _managed(rng, graph, levels, line=1)


def odd_form(rng: random.Random, space: TransformSpace) -> tuple[Graph | None, dict[str, int]]:
    """Return a form of a graph, often with smaller last tiles and sums that run backwards, and its tile sizes."""
    sizes = {}
    for axis, extent in space.axes.items():
        if rng.random() < 0.75:
            sizes[axis] = rng.choice([1, rng.randint(1, extent), rng.randint(1, extent), extent - 1, extent // 2 + 1])
    share = rng.choice([0.0, 0.5, 1.0])
    fused = tuple(temp for temp in space.temps if rng.random() < share)
    backwards = rng.choice([0.0, 0.4, 0.4])
    reverse = tuple(op.name for op in space.graph.ops if rng.random() < backwards)
    transform = space.effective(Transform(tuple(sorted(sizes.items())), fused, reverse=reverse))
    return space.transformed(transform), dict(transform.sizes)
