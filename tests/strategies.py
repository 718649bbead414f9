"""Random graphs, machines, orders and plans for property tests.

Each is a plain function of a random generator. A case is a seed, drawn by hypothesis: drawing every choice would shrink better,
but is some thirty times slower, and here many cases find more than small ones.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from hypothesis import strategies as st

from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Move, Plan
from pebbler.referee.judgement import check

__all__ = [
    "cache_machines",
    "generators",
    "graphs",
    "programs",
    "random_cache_machine",
    "random_graph",
    "random_machine",
    "random_order",
    "random_plan",
    "random_tilable_graph",
]

generators = st.builds(random.Random, st.integers(0, 2**32 - 1))


@dataclass
class _Draft:
    """A graph in the making: which storage holds which tensor, and who has read it."""

    rng: random.Random
    tensors: dict[str, dict] = field(default_factory=dict)
    ops: list[tuple[str, list[str], list[str]]] = field(default_factory=list)
    storage: dict[str, str] = field(default_factory=dict)  # tensor -> name of its storage
    held: dict[str, str] = field(default_factory=dict)  # storage -> tensor whose value it holds
    unread: set[str] = field(default_factory=set)

    def declare(self, kind: str, overwrites: str | None = None) -> str:
        name = f"t{len(self.tensors)}"
        size = self.rng.randint(0, 4)
        if overwrites is not None:
            size = min(size, self.tensors[self.storage[overwrites]]["size"])
        self.tensors[name] = {"size": size, "kind": kind, "overwrites": overwrites}
        self.storage[name] = self.storage[overwrites] if overwrites else name
        if kind in ("input", "param"):
            self.held[name] = name
        return name

    def append(self, reads: list[str], writes: list[str]) -> None:
        self.ops.append((f"op{len(self.ops)}", reads, writes))
        self.unread -= set(reads)
        for name in writes:
            self.held[self.storage[name]] = name
            self.unread.add(name)

    def keep(self, name: str) -> None:
        """Read a value into an output of its own, so that it matters."""
        self.append([name], [self.declare("output")])


def random_graph(rng: random.Random, most_ops: int = 7, *, closed: bool = False) -> Graph:
    """Return a graph with in-place updates and overwrites; `closed`: every value matters for some param or output."""
    draft = _Draft(rng)
    for _ in range(rng.randint(1, 3)):
        draft.declare(rng.choice(["input", "param"]))
    for _ in range(rng.randint(1, most_ops)):
        alive = sorted(draft.held.values())
        reads = rng.sample(alive, min(len(alive), rng.randint(0, 3)))
        if reads and rng.random() < 0.1:
            reads.append(reads[0])
        writes: list[str] = []
        for _ in range(rng.choice([1, 1, 1, 2])):
            roll, target = rng.random(), rng.choice(alive)
            taken = {draft.storage[name] for name in writes}
            fixed = draft.tensors[draft.held[draft.storage[target]]]["kind"] == "output"
            if roll < 0.6 or draft.storage[target] in taken or fixed:
                writes.append(draft.declare("temp"))
            else:
                old = draft.held[draft.storage[target]]
                if closed and old in draft.unread and old not in reads:
                    draft.keep(old)
                writes.append(old if roll < 0.8 else draft.declare("temp", overwrites=old))
        draft.append(reads, writes)
    final = set(draft.held.values())
    for name in sorted(draft.unread & final):
        kind = draft.tensors[name]["kind"]
        param = draft.tensors[draft.storage[name]]["kind"] == "param"
        if kind == "temp" and (closed or rng.random() < 0.7) and not param:
            draft.tensors[name]["kind"] = "output"
        elif closed and kind == "input" and not param:
            draft.keep(name)
    graph = Graph("random", unit="pebble")
    for name, fields in draft.tensors.items():
        graph.tensor(name, fields["size"], fields["kind"], overwrites=fields["overwrites"])
    for name, reads, writes in draft.ops:
        once = not closed and rng.random() < 0.1
        graph.op(name, reads, writes, cost=rng.choice([0, 1, 2.5]), once=once)
    return graph


def random_tilable_graph(rng: random.Random, most_ops: int = 7) -> Graph:
    """Return a graph whose tensors have axes: sums, pointwise ops, ops that need an axis whole, and params that are updated."""
    extents = {axis: rng.randint(1, 5) for axis in rng.sample("ijk", rng.randint(1, 3))}
    graph = Graph("tilable", unit="float32")

    def declare(kind: str, axes: list[str]) -> str:
        shape = [(axis, extents[axis]) for axis in axes]
        name = f"t{len(graph.tensors)}"
        graph.tensor(name, math.prod(extent for _, extent in shape), kind, axes=shape)
        return name

    def axes_of(name: str) -> list[str]:
        return [axis for axis, _ in graph.tensor_named(name).axes or ()]

    params = [
        declare("param", rng.sample(list(extents), rng.randint(1, len(extents)))) for _ in range(rng.randint(1, 2))
    ]
    alive = [*params, declare("input", rng.sample(list(extents), rng.randint(1, len(extents))))]
    for _ in range(rng.randint(1, most_ops)):
        reads = rng.sample(alive, rng.randint(1, min(3, len(alive))))
        pointwise = rng.random() < 0.4
        known = axes_of(reads[0]) if pointwise else sorted({axis for name in reads for axis in axes_of(name)})
        if pointwise:
            reads = [name for name in reads if axes_of(name) == known]
        axes = known if pointwise or rng.random() < 0.3 else rng.sample(known, rng.randint(0, len(known)))
        whole = [axis for axis in known if not pointwise and rng.random() < 0.1]
        alive.append(declare("temp", axes))
        name = f"op{len(graph.ops)}"
        graph.op(
            name, reads, [alive[-1]], rng.choice([0, 1]), once=rng.random() < 0.1, whole=whole, pointwise=pointwise
        )
    for param in params:
        gradient = declare("temp", axes_of(param))
        graph.op(f"grad_{param}", rng.sample(alive, rng.randint(1, min(3, len(alive)))), [gradient])
        graph.op(f"upd_{param}", [param, gradient], [param], pointwise=True)
    return graph


def random_order(rng: random.Random, graph: Graph, *, war: bool = True) -> list[int]:
    """Return a random legal order of the ops, as numbers."""
    before = [set(row) for row in graph.dataflow.predecessors(war=war)]
    left, order = set(range(len(before))), []
    while left:
        order.append(rng.choice(sorted(op for op in left if not before[op] & left)))
        left.remove(order[-1])
    return order


def random_machine(rng: random.Random, graph: Graph, *, whole: bool = True, monotone: bool = False) -> Machine:
    """Return an explicit machine of one to three levels; prices are whole numbers, or quarters."""
    total = sum(int(size) for size in graph.dataflow.value_size) + 1
    count = rng.choice([1, 2, 2, 3])
    scale = 1 if whole else 0.25
    prices = [(rng.randint(0, 9) * scale, rng.randint(0, 9) * scale) for _ in range(count)]
    if monotone:
        reads, writes = sorted(read for read, _ in prices), sorted(write for _, write in prices)
        prices = list(zip(reads, writes, strict=True))
    levels = []
    for i, (read, write) in enumerate(prices):
        bounded = i < count - 1 or (count == 1 and rng.random() < 0.5)
        levels.append(Level(f"L{i}", read, write, capacity=rng.randint(max(1, total // 3), total) if bounded else None))
    return Machine("random", "pebble", tuple(levels), operands=rng.choice(["fastest", "any"]))


def random_cache_machine(rng: random.Random, management: str) -> Machine:
    """Return an lru or recency machine with small levels."""
    count = rng.randint(1, 3)
    levels = [Level(f"L{i}", rng.randint(0, 9), rng.randint(0, 9), capacity=rng.randint(1, 8)) for i in range(count)]
    return Machine(management, "pebble", (*levels, Level("last", 10, 10)), management, "any")  # type: ignore[arg-type]


def random_plan(rng: random.Random, graph: Graph, machine: Machine, extra: int = 8) -> Plan | None:
    """Return a plan that the referee accepts, found by random copies, drops and recomputations; None if it got stuck."""
    plan = Plan(graph, machine, [], steady=False)
    levels, tensors = machine.names, [tensor.name for tensor in graph.tensors]
    order = [graph.ops[op].name for op in random_order(rng, graph)]
    done: list[str] = []
    moves: list[Move] = []

    def take(move: Move) -> bool:
        judgement = check(Plan(graph, machine, [*moves, move], steady=False))
        if judgement.move is not None or (judgement.error or "").startswith("start"):
            return False
        moves.append(move)
        return True

    def compute(op: str) -> bool:
        slow = machine.operands == "any" and rng.random() < 0.5
        return take(("compute", op, rng.choice(levels)) if slow else ("compute", op))

    while len(done) < len(order) or rng.random() < 0.3:
        if extra > 0 and rng.random() < 0.75:
            extra -= 1
            kind = rng.choice(["copy", "copy", "drop", "again"])
            if kind == "copy":
                any(take(("copy", rng.choice(tensors), *rng.sample(levels, 2))) for _ in range(6 if levels[1:] else 0))
            elif kind == "drop":
                any(take(("drop", rng.choice(tensors), rng.choice(levels))) for _ in range(6))
            elif done:
                any(compute(rng.choice(done)) for _ in range(3))
            continue
        if len(done) == len(order):
            break
        op = graph.op_named(order[len(done)])
        if machine.operands == "fastest":
            for name in op.reads:
                for level in levels[1:]:
                    if take(("copy", name, level, levels[0])):
                        break
        if not compute(op.name) and not take(("compute", op.name)):
            return None
        done.append(op.name)
    plan = Plan(graph, machine, moves, steady=False)
    return plan if check(plan).legal else None


@st.composite
def graphs(draw: st.DrawFn, most_ops: int = 7, closed: bool = False) -> Graph:
    """Random graphs."""
    return random_graph(draw(generators), most_ops, closed=closed)


@st.composite
def cache_machines(draw: st.DrawFn, management: str = "recency") -> Machine:
    """Random machines without moves other than computes."""
    return random_cache_machine(draw(generators), management)


@st.composite
def programs(draw: st.DrawFn) -> tuple[Graph, list[int]]:
    """A random program with in-place updates, and an order of it (program order, sometimes with an op run twice)."""
    graph = Graph("random")
    count = draw(st.integers(1, 3))
    for i in range(count):
        graph.tensor(f"p{i}", draw(st.integers(0, 5)), kind=draw(st.sampled_from(["param", "input"])))
    alive = [f"p{i}" for i in range(count)]
    order: list[int] = []
    for i in range(draw(st.integers(1, 8))):
        reads = draw(st.lists(st.sampled_from(alive), max_size=3))
        if draw(st.booleans()):
            writes = [draw(st.sampled_from(alive))]
        else:
            graph.tensor(f"t{i}", draw(st.integers(0, 5)))
            alive.append(f"t{i}")
            writes = [f"t{i}"]
        graph.op(f"o{i}", reads, writes)
        order += [i] * (2 if draw(st.booleans()) and writes[0] not in reads and writes[0] == f"t{i}" else 1)
    return graph, order
