"""Large training graphs for the scale benchmark: transformer-like, U-Net-like and layered, forward, backward and updates.

Sizes are 1 to 64 units; costs are about the units that an op touches. Some ops run only once (dropout), and every param is updated
in place as soon as its gradient is there.
"""

from __future__ import annotations

import random

import numpy as np

from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.solver.problem import Problem
from pebbler.solver.recompute.recompute_problem import ENDLESS, RecomputeProblem

__all__ = ["KINDS", "MACHINES", "make_graph", "make_machine", "one_level", "program_peak", "two_levels"]

KINDS = ("transformer", "unet", "layered")
MACHINES = ("two-0.3", "one-0.8", "one-0.5", "any-0.3", "lru-0.3", "recency-0.3")


class _Training:
    """A network built op by op; `finish` appends the backward pass and the updates."""

    def __init__(self, name: str, seed: int) -> None:
        self.graph = Graph(name, unit="pebble")
        self.graph.tensor("x0", 32, kind="input")
        self.rng = random.Random(seed)
        self.sizes = [32]
        self.ops: list[tuple[list[int], int, bool]] = []  # what an op reads, its param (-1: none), whether it runs once
        self.params = 0

    def add(self, reads: list[int], size: int, *, param: bool = False, once: bool = False) -> int:
        """Append a forward op; return the number of its result."""
        number = len(self.sizes)
        self.sizes.append(size)
        own = -1
        if param:
            own = self.params
            self.params += 1
            self.graph.tensor(f"W{own}", self.rng.randint(1, 16), kind="param")
        self.ops.append((reads, own, once))
        self.graph.tensor(f"x{number}", size)
        names = [f"x{i}" for i in reads] + ([f"W{own}"] if param else [])
        cost = size * (4 if param else 1)
        self.graph.op(f"f{number}", names, [f"x{number}"], cost, once=once)
        return number

    def finish(self) -> Graph:
        """Append gradients in reverse, each param updated once its gradient is there."""
        graph, parts = self.graph, [0] * len(self.sizes)
        last = len(self.sizes) - 1
        graph.tensor(f"g{last}_0", 1).op("loss", [f"x{last}"], [f"g{last}_0"], 1)
        parts[last] = 1
        for number in range(last, 0, -1):
            reads, own, _ = self.ops[number - 1]
            gradients = [f"g{number}_{i}" for i in range(parts[number])]
            if not gradients:
                continue
            saved = [f"x{i}" for i in reads] if own >= 0 or len(reads) > 1 else [f"x{number}"]
            weights = [f"W{own}"] if own >= 0 else []
            if own >= 0:
                graph.tensor(f"d{own}", 16)
                graph.op(f"w{number}", [*gradients, f"x{reads[0]}"], [f"d{own}"], 4 * self.sizes[number])
            for i in reads:
                if i == 0:
                    continue
                name = f"g{i}_{parts[i]}"
                graph.tensor(name, self.sizes[i])
                graph.op(f"b{number}_{i}", [*gradients, *saved, *weights], [name], self.sizes[i] * (1 + 3 * (own >= 0)))
                parts[i] += 1
            if own >= 0:
                graph.op(f"u{own}", [f"d{own}", f"W{own}"], [f"W{own}"], 1)
        return graph


def _transformer(ops: int, seed: int) -> Graph:
    net = _Training(f"transformer-{ops}", seed)
    here = 0
    while 3.2 * len(net.ops) < ops:
        norm = net.add([here], 32, param=True)
        q, k, v = (net.add([norm], 32, param=True) for _ in range(3))
        scores = net.add([q, k], 64)
        soft = net.add([scores], 64)
        drop = net.add([soft], 64, once=True)
        mixed = net.add([drop, v], 32)
        out = net.add([mixed], 32, param=True)
        here = net.add([here, out], 32)
        norm = net.add([here], 32, param=True)
        wide = net.add([norm], 64, param=True)
        act = net.add([wide], 64)
        back = net.add([act], 32, param=True)
        here = net.add([here, back], 32)
    return net.finish()


def _unet(ops: int, seed: int) -> Graph:
    net = _Training(f"unet-{ops}", seed)
    depth, here, size, skips = max(2, round(ops / 3.1 / 13)), 0, 64, []
    for _ in range(depth):
        for _ in range(2):
            here = net.add([here], size, param=True)
            here = net.add([here], size)
            here = net.add([here], size)
        skips.append((here, size))
        size = max(4, size - (1 if len(skips) % max(1, depth // 60) == 0 else 0))
    for skip, size in reversed(skips):
        here = net.add(sorted({here, skip}), size)
        for _ in range(2):
            here = net.add([here], size, param=True)
            here = net.add([here], size)
            here = net.add([here], size)
    return net.finish()


def _layered(ops: int, seed: int) -> Graph:
    net = _Training(f"layered-{ops}", seed)
    rng, layer = net.rng, [0]
    while 3.9 * len(net.ops) < ops:
        layer = [
            net.add(
                sorted(rng.sample(layer, min(len(layer), rng.randint(1, 3)))),
                rng.randint(1, 64),
                param=rng.random() < 0.4,
                once=rng.random() < 0.05,
            )
            for _ in range(rng.randint(1, 8))
        ]
    net.add(layer, 1)
    return net.finish()


def make_graph(kind: str, ops: int, seed: int = 0) -> Graph:
    """Return a training graph with about `ops` ops.

    >>> len(make_graph("transformer", 1000).ops) > 800
    True
    """
    return {"transformer": _transformer, "unet": _unet, "layered": _layered}[kind](ops, seed)


def program_peak(graph: Graph) -> int:
    """Return what program order needs at most on one level, without recomputation."""
    endless = Problem.of(graph, Machine("one", graph.unit, (Level("all", 0, 0),)), steady=False)
    game = RecomputeProblem.of(endless, ENDLESS)
    return int(np.max(game.measure(game.program).memory))


def one_level(graph: Graph, share: float) -> Machine:
    """Return a machine of one level that holds a share of program order's peak."""
    return Machine(f"one-{share}", graph.unit, (Level("fast", 0, 0, capacity=int(share * program_peak(graph))),))


def two_levels(graph: Graph, share: float) -> Machine:
    """Return a red-blue machine whose fast level holds a share of program order's peak."""
    levels = (Level("fast", 0, 0, capacity=int(share * program_peak(graph))), Level("slow", 100, 100))
    return Machine(f"two-{share}", graph.unit, levels)


def make_machine(name: str, graph: Graph) -> Machine:
    """Return one of `MACHINES` for a graph; the number is the share of program order's peak that is fast.

    `one` and `two` have so many levels, all operands in the fastest; `any`, `lru` and `recency` have a twentieth of the share in
    a level above, prices 1, 10 and 100, operands anywhere, or caches.
    """
    kind, share = name.split("-")
    if kind in ("one", "two"):
        return (one_level if kind == "one" else two_levels)(graph, float(share))
    room = int(float(share) * program_peak(graph))
    levels = (
        Level("l1", 1, 1, capacity=max(1, room // 20)),
        Level("l2", 10, 10, capacity=room),
        Level("far", 100, 100),
    )
    if kind == "any":
        return Machine(name, graph.unit, levels, operands="any")
    return Machine(name, graph.unit, levels, management="lru" if kind == "lru" else "recency")
