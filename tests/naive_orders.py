"""All orders of a small graph, each priced by the referee."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pebbler as pb
from pebbler.game.orders import iterate_orders
from pebbler.referee.judgement import check
from pebbler.solver.problem import Problem


def cheapest_order(graph: pb.Graph, machine: pb.Machine, steady: bool) -> float:
    """Return the least energy over all orders that run every op once."""
    names = [op.name for op in graph.ops]
    plans = (
        pb.Plan.in_order(graph, machine, [names[i] for i in order], steady=steady) for order in iterate_orders(graph)
    )
    return min(check(plan).energy for plan in plans)


def orders_with_reruns(graph: pb.Graph, extra: int) -> Iterator[list[int]]:
    """Yield all sequences of ops that run each at least once, with at most `extra` further runs before the last first one."""
    flow = graph.dataflow
    before = flow.before.lists()
    touched = [[*flow.op_reads.row(op).tolist(), *flow.op_writes.row(op).tolist()] for op in range(flow.ops)]
    gone = [{int(flow.value_destroyer[value]) for value in values} for values in touched]
    sequence: list[int] = []

    def go(left: int) -> Iterator[list[int]]:
        ran = set(sequence)
        if len(ran) == flow.ops:
            yield list(sequence)
            return
        for op in range(flow.ops):
            again = op in ran
            possible = left and flow.op_can_rerun[op] and not gone[op] & ran if again else ran.issuperset(before[op])
            if possible:
                sequence.append(op)
                yield from go(left - again)
                sequence.pop()

    return go(extra)


def random_graph(rng: random.Random, ops: int) -> pb.Graph:
    """Return a small program: temps of several sizes, inputs, params, updates in place and through another tensor."""
    graph = pb.Graph("random", unit="pebble")
    known: list[str] = []
    for i in range(rng.randrange(1, 4)):
        graph.tensor(f"s{i}", rng.randrange(0, 4), rng.choice(["input", "param"]))
        known.append(f"s{i}")
    for i in range(ops):
        reads = rng.sample(known, min(len(known), rng.randrange(1, 4)))
        kind = rng.random()
        params = [name for name in known if name.startswith("s") and graph.tensor_named(name).kind == "param"]
        if kind < 0.25 and params:
            target = rng.choice(params)
            reads = [target, *(name for name in reads if name != target)]
            if rng.random() < 0.3:
                # The old value is gone for good, so nothing reads it any more.
                graph.tensor(f"n{i}", graph.tensor_named(target).size, "output", overwrites=target)
                known.remove(target)
                writes = [f"n{i}"]
            else:
                writes = [target]
        else:
            writes = [f"t{i}"]
            graph.tensor(f"t{i}", rng.randrange(0, 4), rng.choice(["temp", "temp", "output"]))
            known.append(f"t{i}")
        graph.op(f"o{i}", reads=reads, writes=writes, cost=rng.choice([0, 0, 1, 7]))
    return graph


def random_machine(rng: random.Random, management: str) -> pb.Machine:
    """Return a small machine with whole prices, mostly higher further down."""
    levels = []
    for i in range(rng.randrange(1, 3)):
        price = (i + 1) * rng.randrange(1, 6)
        levels.append(pb.Level(f"L{i}", price, rng.randrange(0, 9), capacity=rng.randrange(1, 7)))
    levels.append(pb.Level("last", rng.randrange(5, 40), rng.randrange(5, 40)))
    return pb.Machine(
        "small", "pebble", tuple(levels), management=management, operands="any",
        allocator=rng.choice(["own", "reuse"]), line=rng.choice([1, 1, 2]),
    )  # fmt: skip


def rerun_problem(seed: int) -> Problem:
    """Return a small graph on a machine with ranks; every other one such that making large results again may pay."""
    rng = random.Random(seed)
    if seed % 4 == 3:
        return Problem.of(_odd_graph(rng, rng.randint(3, 5)), random_machine(rng, "recency"), steady=False)
    if seed % 2:
        return Problem.of(random_graph(rng, rng.randint(1, 5)), random_machine(rng, "recency"), steady=False)
    graph, known = pb.Graph("again", unit="pebble"), []
    for i in range(rng.randint(1, 2)):
        graph.tensor(f"s{i}", rng.choice([1, 1, 2]), "input")
        known.append(f"s{i}")
    for i in range(rng.randint(4, 5)):
        graph.tensor(f"t{i}", rng.choice([1, 2, 4, 6]), "temp")
        reads = rng.sample(known, min(len(known), rng.choice([1, 2, 2, 3])))
        graph.op(f"o{i}", reads, [f"t{i}"], once=rng.random() < 0.05)
        known.append(f"t{i}")
    first = rng.randint(1, 7)
    levels = pb.Level("L0", 1, rng.choice([0, 1]), capacity=first), pb.Level("L1", 5, 5, capacity=rng.randint(2, 8))
    last = pb.Level("last", rng.choice([9, 30]), 30)
    return Problem.of(graph, pb.Machine("ranks", "pebble", (*levels, last), "recency", "any"), steady=False)


def _odd_graph(rng: random.Random, ops: int) -> pb.Graph:
    """Return a small program with ops that read a tensor twice, make several, run once, or update in place."""
    graph, known = pb.Graph("odd", unit="pebble"), ["w", "s"]
    graph.tensor("w", rng.choice([1, 2, 3]), "param").tensor("s", rng.choice([0, 1, 2]), "input")
    for i in range(ops):
        reads = [rng.choice(known) for _ in range(rng.choice([1, 2, 2, 3]))]
        if rng.random() < 0.15:
            graph.op(f"o{i}", ["w", *(name for name in reads if name != "w")], ["w"], cost=rng.choice([0, 2]))
            continue
        writes = [f"t{i}.{j}" for j in range(rng.choice([1, 1, 2]))]
        for name in writes:
            graph.tensor(name, rng.choice([0, 1, 2, 4, 6]), rng.choice(["temp", "temp", "output"]))
        graph.op(f"o{i}", reads, writes, cost=rng.choice([0, 0, 1]), once=rng.random() < 0.05)
        known += writes
    return graph


def nearest_first(graph: pb.Graph, machine: pb.Machine, by_price: bool, rounds: int) -> list[int]:
    """Return the order that always runs the op that reads at the lowest price per unit, then that with the most recent operands."""
    flow = graph.dataflow
    before = flow.predecessors()
    root = [int(flow.storage[flow.value_tensor[value]]) for value in range(flow.values)]
    size = [tensor.size for tensor in graph.tensors]
    starts = [i for i in range(len(size)) if flow.start_value[i] >= 0]
    stack = [*starts, *(i for i in range(len(size)) if i not in starts)]  # storages, most recent first
    recency = {place: -1 - i if i < len(starts) else -1 - len(size) for i, place in enumerate(stack)}
    recency |= {place: -1 - place for place in starts}

    def price_of(place: int) -> float:
        depth = sum(size[other] for other in stack[: stack.index(place) + 1])
        reach = 0
        for level in machine.level[:-1]:
            reach += level.capacity or 0
            if depth <= reach:
                return level.read
        return machine.level[-1].read

    order: list[int] = []
    for _ in range(rounds):
        order, clock = [], 0
        while len(order) < flow.ops:
            keys = []
            for op in range(flow.ops):
                if op in order or not set(before[op]) <= set(order):
                    continue
                reads = [root[value] for value in flow.op_reads.row(op).tolist()]
                units = sum(size[place] for place in reads)
                paid = sum(size[place] * price_of(place) for place in reads) if by_price else 0.0
                recent = min([clock + 1, *(recency[place] for place in reads)])
                keys.append((paid / units if units else 0.0, -recent, op))
            op = min(keys)[2]
            order.append(op)
            for value in (*flow.op_reads.row(op).tolist(), *flow.op_writes.row(op).tolist()):
                clock += 1
                recency[root[value]] = clock
                stack.remove(root[value])
                stack.insert(0, root[value])
        latest = max(recency.values())
        recency = {place: when - latest - 1 for place, when in recency.items()}
    return order
