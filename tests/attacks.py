"""Attacks on lower bounds: random tilable graphs and machines, and plans of them that try to cost less than they may.

An attack knows the rules (`tile`, `fuse`, the referee) and nothing of how a bound is derived. It cuts axes, fuses temps, orders the
pieces op by op or tile by tile, forwards and backwards, runs ops again, and climbs down hill from there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from pebbler.errors import InputError
from pebbler.game.dataflow import Dataflow
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import Moves
from pebbler.game.plan import Plan
from pebbler.game.transform import fusable, fuse, tile
from pebbler.referee.judgement import check
from pebbler.solver.paging.demand_paging import demand_plan
from pebbler.solver.paging.paging_solver import solve_paging
from pebbler.solver.problem import Problem, Search
from pebbler.workloads import mlp

__all__ = [
    "cheapest_order",
    "cheapest_placement",
    "orders",
    "random_large_pieces",
    "random_levels",
    "random_pairs",
    "random_products",
    "random_samples",
    "random_step",
    "random_tilable",
    "three_caches",
    "tile_by_tile",
    "transforms",
]


def random_tilable(rng: random.Random, *, most_ops: int = 6, most_extent: int = 24) -> Graph:
    """Return a graph with axes: some run through, some are summed over, some must stay whole."""
    axes = {name: rng.choice([1, 2, 3, rng.randint(4, most_extent)]) for name in ("i", "j", "n")[: rng.randint(1, 3)]}

    def pick(pool: list[str], share: float) -> list[tuple[str, int]]:
        return [(axis, axes[axis]) for axis in pool if rng.random() < share]

    def size(cut: list[tuple[str, int]]) -> int:
        return int(np.prod([extent for _, extent in cut], dtype=np.int64))

    graph = Graph("attack", unit="pebble")
    shape: dict[str, list[tuple[str, int]]] = {}
    for number in range(rng.randint(1, 3)):
        name = f"p{number}"
        shape[name] = pick(list(axes), 0.7)
        graph.tensor(name, size(shape[name]), rng.choice(["param", "param", "input"]), axes=shape[name])
    current = list(shape)
    updated: set[str] = set()
    count = rng.choice([1, 2, rng.randint(2, most_ops)])
    for number in range(count):
        reads = rng.sample(current, min(len(current), rng.randint(1, 3)))
        seen = list(dict.fromkeys(axis for name in reads for axis, _ in shape[name]))
        whole = [axis for axis in seen if rng.random() < 0.12]
        params = [n for n in current if n[0] == "p" and n not in updated and graph.tensor_named(n).kind == "param"]
        if params and number >= count // 2 and rng.random() < 0.5:
            name = rng.choice(params)
            graph.op(f"u{number}", [*dict.fromkeys([name, *reads])], [name], cost=rng.choice([0, 0, 1]), whole=whole)
            updated.add(name)
            continue
        written = []
        for result in range(2 if rng.random() < 0.2 else 1):
            name = f"t{number}_{result}"
            like = rng.choice(reads)
            shape[name] = shape[like] if rng.random() < 0.5 else pick(seen, 0.6)
            last = number == count - 1
            graph.tensor(name, size(shape[name]), "output" if last or rng.random() < 0.1 else "temp", axes=shape[name])
            written.append(name)
        pointwise = len(written) == 1 and any(shape[name] == shape[written[0]] for name in reads) and rng.random() < 0.7
        once = rng.random() < 0.1
        graph.op(f"o{number}", reads, written, cost=rng.choice([0, 0, 2]), once=once, whole=whole, pointwise=pointwise)
        current += written
    return graph


def random_products(rng: random.Random) -> Graph:
    """Return products of tensors with two axes each, with biases, pointwise ops and rows that stay whole, and updates."""
    axes = {name: rng.choice([2, 3, 4, rng.randint(5, 12)]) for name in "ijkm"[: rng.randint(2, 4)]}
    graph = Graph("products", unit="pebble")
    shape: dict[str, tuple[str, ...]] = {}

    def tensor(name: str, cut: tuple[str, ...], kind: str) -> None:
        shape[name] = cut
        sizes = [(axis, axes[axis]) for axis in cut]
        graph.tensor(name, int(np.prod([extent for _, extent in sizes], dtype=np.int64)), kind, axes=sizes)  # type: ignore[arg-type]

    for number in range(rng.randint(2, 4)):
        tensor(f"p{number}", tuple(sorted(rng.sample(list(axes), 2))), rng.choice(["param", "param", "input"]))
    params = [name for name in shape if graph.tensor_named(name).kind == "param"]
    count = rng.choice([1, 1, 2, rng.randint(3, 7)])
    for number in range(count):
        last, result = number == count - 1, f"t{number}"
        left, right = rng.choice(list(shape)), rng.choice(list(shape)[-3:])
        seen = sorted({*shape[left], *shape[right]})
        kind = "output" if last else "temp"
        if rng.random() < 0.3:
            other = [name for name in shape if name != left and set(shape[name]) <= set(shape[left])]
            tensor(result, shape[left], kind)
            whole = [axis for axis in shape[left] if rng.random() < 0.15]
            reads = [left, *rng.sample(other, min(len(other), 1))]
            graph.op(f"o{number}", reads, [result], pointwise=not whole and rng.random() < 0.9, whole=whole)
            continue
        kept = tuple(rng.sample(seen, rng.randint(max(0, len(seen) - 2), min(2, len(seen)))))
        tensor(result, kept, kind)
        bias = [name for name in params if set(shape[name]) <= set(kept) and name not in (left, right)]
        added = bias[:1] if rng.random() < 0.5 else []
        meta = {"adds": added} if added else {}
        graph.op(f"o{number}", [*dict.fromkeys([left, right, *added])], [result], meta=meta, cost=rng.choice([0, 0, 1]))
    for name in params:
        like = [other for other in shape if other not in params and set(shape[other]) == set(shape[name])]
        if rng.random() < 0.7:
            graph.op(f"u{name}", [name, *like[-1:]], [name], pointwise=bool(like) and shape[like[-1]] == shape[name])
    return graph


def random_pairs(rng: random.Random, *, given: bool = False) -> Graph:
    """Return a step that reads all of its parameters, keeps something per row, and updates them when all of it has been read.

    With `given` there is an input, too, that is read along with them.
    """
    rows, columns = rng.randint(3, 9), rng.randint(1, 5)
    graph = Graph("pairs", unit="pebble")
    kept = []
    beside = ["x"] if given else []
    if given:
        graph.tensor("x", columns, "input", axes=[("j", columns)])
    for number in range(rng.choice([1, 1, 2])):
        axes = [("i", rows), *([("j", columns)] if number == 0 or rng.random() < 0.5 else [])]
        graph.tensor(f"p{number}", int(np.prod([extent for _, extent in axes])), "param", axes=axes)
        results = [f"t{number}_{one}" for one in range(rng.choice([1, 1, 1, 2]))]
        for name in results:
            graph.tensor(name, rows, "temp", axes=[("i", rows)])
        graph.op(f"f{number}", [f"p{number}", *beside], results, once=rng.random() < 0.3)
        kept.append((number, axes, results))
    graph.tensor("s", 1, "temp", axes=[])
    graph.op("sum", [name for _, _, results in kept for name in results], ["s"])
    for number, axes, results in kept:
        late = [name for name in results if rng.random() < 0.8]
        if rng.random() < 0.3:
            graph.tensor(f"d{number}", rows, "temp", axes=[("i", rows)])
            graph.op(f"b{number}", ["s", *late], [f"d{number}"])
            late = [f"d{number}"]
        graph.op(f"u{number}", [f"p{number}", "s", *beside, *late], [f"p{number}"], pointwise=len(axes) == 1)
    return graph


def three_caches(rng: random.Random, graph: Graph) -> Machine:
    """Return caches of which the second holds a part of the parameters; all that counts is what is read from the third."""
    params = sum(tensor.size for tensor in graph.tensors if tensor.kind == "param")
    levels = (
        Level("near", 1, rng.choice([0, 0, 1]), capacity=rng.choice([1, 1, 2])),
        Level("middle", rng.choice([1, 1, 2]), 0, capacity=rng.randint(params // 3, max(2, params))),
        Level("far", rng.choice([20, 1000]), rng.choice([0, 0, 20])),
    )
    return Machine("three", graph.unit, levels, "lru", "any", allocator=rng.choice(["own", "reuse"]))


def random_samples(rng: random.Random) -> Graph:
    """Return a step that makes a row for every sample, looks at all of it, uses it again, and ends with what needs all of them."""
    rows, columns = [("b", rng.randint(3, 8))], [("j", rng.randint(2, 6))]
    graph = Graph("samples", unit="pebble")
    given = rng.choice([rows, [*rows, *columns]])
    graph.tensor("x", int(np.prod([extent for _, extent in given])), "input", axes=given)
    graph.tensor("p", columns[0][1], "param", axes=columns)
    graph.tensor("t", rows[0][1] * columns[0][1], "temp", axes=[*rows, *columns])
    graph.op("make", ["x", "p"], ["t"], once=rng.random() < 0.7)
    graph.tensor("s", rows[0][1], "temp", axes=rows)
    graph.op("look", ["t"], ["s"])
    graph.tensor("d", columns[0][1], "temp", axes=columns)
    graph.op("use", ["t", "s"], ["d"])
    graph.op("update", ["p", "d"], ["p"], pointwise=rng.random() < 0.5)
    return graph


def random_step(rng: random.Random) -> Graph:
    """Return a training step of a small network on a mini-batch: activations per sample, gradients summed over all of them."""
    return mlp(n=rng.randint(1, 30), hidden=rng.randint(1, 4), batch=rng.choice([4, 9, 16, 25]))


def random_large_pieces(rng: random.Random) -> tuple[Graph, Machine]:
    """Return a step whose ops touch about as much as fits into the near level, beside parameters that last, and such a machine."""
    rows, columns = rng.randint(2, 7), rng.randint(1, 3)
    axes = [("i", rows), ("j", columns)]
    graph = Graph("large pieces", unit="pebble")
    params = [f"p{number}" for number in range(rng.randint(1, 3))]
    for name in params:
        along = rng.choice([axes, axes[:1], axes[1:], []])
        size = int(np.prod([extent for _, extent in along], dtype=np.int64))
        graph.tensor(name, size if along else rng.randint(1, 6), "param", axes=along or None)
    graph.tensor("x", rows * columns, "input", axes=axes)
    made = ["x"]
    for number in range(rng.randint(2, 5)):
        reads = list(dict.fromkeys([made[-1], rng.choice(made), *rng.sample(params, rng.choice([0, 0, 1]))]))
        graph.tensor(f"t{number}", rows * columns, "temp", axes=axes)
        graph.op(f"o{number}", reads, [f"t{number}"], whole=[axis for axis, _ in axes if rng.random() < 0.3])
        made.append(f"t{number}")
    for name in params:
        if rng.random() < 0.8:
            graph.op(f"u{name}", [name, made[-1]], [name])
    graph.tensor("y", 1, "output")
    graph.op("sum", [made[-1]], ["y"])
    touched = [sum(graph.tensor_named(name).size for name in {*op.reads, *op.writes}) for op in graph.ops]
    room = max(1, int(rng.choice(touched) * rng.uniform(0.6, 1.2)) + rng.randint(-2, 8))
    near, far = rng.choice([1, 2, 5]), rng.choice([6, 10, 30])
    written = rng.choice([(near, far), (far, near), (near, far), (0, 1)])
    levels = (Level("near", near, written[0], capacity=room), Level("far", far, written[1]))
    results = rng.choice(["apart", "apart", "over"])
    return graph, Machine("pieces", graph.unit, levels, "explicit", "any", results=results)  # type: ignore[arg-type]


def random_levels(rng: random.Random, graph: Graph, management: str) -> Machine:
    """Return a machine that is tight for the graph: prices may be equal, zero, or fall with the distance."""
    total = sum(tensor.size for tensor in graph.tensors)
    # What one index of some axis touches: a cache of about that size is where going tile by tile pays.
    axis = rng.choice(sorted({axis for tensor in graph.tensors for axis, _ in tensor.axes or ()}) or [""])
    slices = sum(tensor.size // dict(tensor.axes or ()).get(axis, 1) for tensor in graph.tensors)
    levels = []
    for number in range(rng.choice([1, 1, 2])):
        near = max(1, int(slices * rng.uniform(0.5, 3)))
        exact = sum(
            rng.choice(graph.tensors).size for _ in range(rng.choice([1, 1, 2]))
        )  # just enough for some of them
        capacity = rng.choice([1, near, near, max(1, exact), max(1, exact), rng.randint(1, max(2, total))])
        levels.append(Level(f"l{number}", rng.choice([0, 1, 1, 5]), rng.choice([0, 1, 1, 5]), capacity=capacity))
    levels.append(Level("far", rng.choice([0, 1, 10, 10, 100]), rng.choice([0, 1, 10, 10, 100])))
    line = rng.choice([1, 1, 1, 2, 4]) if management == "lru" else 1
    operands = "any" if management == "lru" or rng.random() < 0.7 else "fastest"
    allocator = rng.choice(["own", "reuse"])
    over = management == "explicit" and operands == "any" and rng.random() < 0.2
    return Machine(
        "attack",
        graph.unit,
        tuple(levels),
        management,  # type: ignore[arg-type]
        operands,  # type: ignore[arg-type]
        results="over" if over else "apart",
        allocator=allocator,  # type: ignore[arg-type]
        line=line,
    )


def transforms(rng: random.Random, graph: Graph, count: int) -> Iterator[tuple[Graph, dict[str, int]]]:
    """Yield the graph, and random fused and tiled forms of it, with their tile sizes."""
    yield graph, {}
    axes = {axis: extent for tensor in graph.tensors for axis, extent in tensor.axes or () if extent > 1}
    for _ in range(count):
        cut = rng.sample(list(axes), 1 if rng.random() < 0.6 else len(axes)) if axes else []
        sizes = {
            axis: rng.choice([1, 2, rng.randint(1, max(1, axes[axis] // 2)), rng.randint(1, axes[axis])])
            for axis in cut
        }
        try:
            made = _fused(rng, graph, rng.choice([0.0, 0.5, 1.0, 1.0]))
            for axis in cut:
                backwards = [op.name for op in made.ops if rng.random() < 0.3] if rng.random() < 0.3 else []
                made = tile(made, axis, sizes[axis], reverse=backwards)
            _ = made.dataflow
        except InputError:
            continue
        if 1 < len(made.ops) <= 200:
            yield made, sizes


def _fused(rng: random.Random, graph: Graph, share: float) -> Graph:
    """Return the graph with a share of what can be fused away gone, one temp after the other."""
    kept: set[str] = set()
    while True:
        temps = [temp for temp in fusable(graph) if temp not in kept]
        if not temps:
            return graph
        temp = rng.choice(temps)
        if rng.random() < share:
            graph = fuse(graph, temp)
        else:
            kept.add(temp)


def orders(rng: random.Random, graph: Graph) -> Iterator[list[int]]:
    """Yield legal orders: program order, tile by tile with the tiles forwards or backwards, and depth first."""
    flow = graph.dataflow
    yield list(range(flow.ops))
    yield tile_by_tile(graph)
    yield tile_by_tile(graph, backwards=True)
    keys = [(rng.random(), number) for number in range(flow.ops)]
    yield _one_by_one(flow, lambda ready, _: min(ready, key=lambda one: keys[one]))
    yield _latest_first(graph)
    yield there_and_back(graph)


def tile_by_tile(graph: Graph, *, backwards: bool = False) -> list[int]:
    """Return the order that runs all that it can of one tile before the next."""
    flow, sign = graph.dataflow, -1 if backwards else 1
    keys: list[tuple[tuple[int, ...], int]] = []
    for number, op in enumerate(graph.ops):
        at = op.meta.get("tile", {}).get("at", {})
        keys.append((tuple(sign * start for start, _ in at.values()), number))
    return _one_by_one(flow, lambda ready, _: min(ready, key=lambda one: keys[one]))


def there_and_back(graph: Graph) -> list[int]:
    """Return the order that goes through the tiles until something needs all of them, and from there back again."""
    at = [next(iter(op.meta.get("tile", {}).get("at", {}).values()), (0, 0))[0] for op in graph.ops]

    def nearest(ready: list[int], order: list[int]) -> int:
        """The nearest tile, and there what is made from what was made last."""
        here = at[order[-1]] if order else 0
        return min(ready, key=lambda one: (abs(at[one] - here), -one))

    return _one_by_one(graph.dataflow, nearest)


def _latest_first(graph: Graph) -> list[int]:
    """Return the order that always runs what became ready last: as deep as it can before it goes wide."""
    flow = graph.dataflow
    waits, after = [len(row) for row in flow.before], flow.after.lists()
    stack = [op for op in range(flow.ops - 1, -1, -1) if waits[op] == 0]
    order = []
    while stack:
        op = stack.pop()
        order.append(op)
        for other in reversed(after[op]):
            waits[other] -= 1
            if waits[other] == 0:
                stack.append(other)
    return order


def _one_by_one(flow: Dataflow, choose: Callable[[list[int], list[int]], int]) -> list[int]:
    """Return the order in which `choose` takes one of the ops that are ready, given the order so far."""
    waits, after = [len(row) for row in flow.before], flow.after.lists()
    ready = [op for op, count in enumerate(waits) if count == 0]
    order: list[int] = []
    while ready:
        op = choose(ready, order)
        ready.remove(op)
        order.append(op)
        for other in after[op]:
            waits[other] -= 1
            if waits[other] == 0:
                ready.append(other)
    return order


def cheapest_order(
    rng: random.Random,
    graph: Graph,
    machine: Machine,
    source: Graph,
    *,
    steady: bool,
    tries: int,
    more: Iterable[list[int]] = (),
) -> Plan:
    """Return the cheapest plan found on caches: the best of some orders, then changed step by step where that is legal."""
    best: Plan | None = None
    energy = float("inf")

    def consider(order: list[int]) -> bool:
        nonlocal best, energy
        plan = Plan(graph, machine, Moves.computes(graph, machine, order), steady=steady, source=source)
        judgement = check(plan)
        if judgement.legal and judgement.energy < energy:
            best, energy = plan, judgement.energy
            return True
        return False

    for order in (*orders(rng, graph), *more):
        consider(order)
    assert best is not None
    for _ in range(tries):
        order = best.moves.order.tolist()
        if rng.random() < 0.3:  # once more
            order.insert(rng.randint(0, len(order)), rng.choice(order))
        else:
            block = rng.randint(1, 3)
            start = rng.randrange(len(order))
            moved = order[start : start + block]
            del order[start : start + block]
            place = rng.randint(0, len(order))
            order[place:place] = moved
        consider(order)
    return best


def cheapest_placement(
    rng: random.Random, graph: Graph, machine: Machine, source: Graph, *, steady: bool, tries: int
) -> Plan | None:
    """Return the cheapest plan found where a plan places everything: by Belady's rule in some orders, and by the paging search."""
    problem = Problem.of(graph, machine, steady=steady)
    found: list[tuple[float, int, Plan]] = []
    for number, order in enumerate(orders(rng, graph)):
        plan = demand_plan(problem, order, "farthest")
        if plan is not None and (judgement := check(plan)).legal:
            found.append((judgement.energy, number, plan))
    if len(graph.ops) <= 12 * tries and found:
        search = Search(problem, 0.1)
        search.offer(min(found)[2].moves, min(found)[2].start)
        solve_paging(search)
        if search.best is not None:
            found.append((search.energy, -1, search.best))
    return min(found)[2] if found else None
