"""Attacks on rows: played plans of random forms that come as near as they can to breaking an inequality.

An attack plays a plan, counts what it does in the setting of a random leaf, and holds every row of the leaf against the counters.
Then it picks a row and changes the plan step by step so that less and less is left of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

import msgspec
import numpy as np

from attacks import (
    random_large_pieces,
    random_levels,
    random_pairs,
    random_products,
    random_samples,
    random_step,
    random_tilable,
    three_caches,
    transforms,
)
from odd_graphs import odd_graph, odd_machine, phased_graph, phased_machine
from ordered_plans import nested_order
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import Compute, Copy, Drop, Move, Moves
from pebbler.game.plan import Plan
from pebbler.game.tile_meta import origin, tile_of
from pebbler.referee.counters import Played
from pebbler.referee.judgement import check
from pebbler.referee.parts import Parts, parts_of
from pebbler.referee.rows.family import Family
from pebbler.referee.rows.leaf import Leaf, Near
from pebbler.referee.rows.row import Counter, Number, Row
from pebbler.referee.rows.table import rows_of
from pebbler.referee.rows.task import Task
from pebbler.referee.rows.tile_range import AxisRange, TileRange
from rerun_plans import Attacked, Runtime, changed, random_orders, with_reruns

__all__ = [
    "Held",
    "attack",
    "faults",
    "held",
    "legal",
    "random_form",
    "random_leaves",
    "random_plan",
    "random_task",
    "read_rows_start",
    "remade_start",
]

MOST_PIECES = 80


@dataclass(frozen=True)
class Held:
    """A row, held against the counters of a played plan: how much is left of it, negative where it is broken."""

    plan: Plan
    leaf: Leaf
    row: Row
    counts: dict[Counter, Number]
    slack: Number

    def __str__(self) -> str:
        terms = {
            counter: (factor, self.counts[counter])
            for counter, factor in self.row.terms.items()
            if counter in self.counts
        }
        return f"{self.row.key}: {self.slack + self.row.least} is below {self.row.least}; {terms}"


def rows_of_scores(rng: random.Random) -> Graph:
    """Return scores of queries and keys, an op on whole rows of them, and what it needs besides."""
    extents = {"t": rng.randint(3, 6), "j": rng.randint(2, 6), "k": rng.randint(1, 4), "h": rng.choice([1, 1, 2])}
    batch = "h" if extents["h"] > 1 else ""
    graph = Graph("rows of scores", unit="pebble")

    def tensor(name: str, axes: str, kind: str) -> None:
        shape = [(axis, extents[axis]) for axis in axes if extents[axis] > 1]
        graph.tensor(name, prod(extent for _, extent in shape), kind, axes=shape)  # type: ignore[arg-type]

    tensor("q", batch + "tk", "input")
    if rng.random() < 0.4:
        tensor("x", batch + "jk", "input")
        tensor("keys", batch + "jk", "temp")
        graph.op("make_keys", ["x"], ["keys"], once=True)
    else:
        tensor("keys", batch + "jk", rng.choice(["param", "input"]))
    tensor("scores", batch + "tj", "temp")
    graph.op("make_scores", ["q", "keys"], ["scores"])
    tensor("weight", batch + "tj" if rng.random() < 0.5 else batch + "t", "output")
    graph.op("rows", ["scores"], ["weight"], whole=["j"] if extents["j"] > 1 else [])
    if rng.random() < 0.4:
        tensor("more", batch + "tk", "output")
        graph.op("again", ["keys", "weight"], ["more"], whole=["j"])
    if graph.tensor_named("keys").kind == "param" and rng.random() < 0.5:
        graph.op("update", ["keys"], ["keys"], pointwise=True)
    return graph


def read_rows(rng: random.Random) -> Graph:
    """Return an op that makes whole rows, an op that reads them with an operand, and one that adds them up."""
    extents = {"t": rng.randint(2, 6), "j": rng.randint(2, 5), "k": rng.randint(1, 3), "h": rng.choice([1, 1, 2])}
    ones = rng.random() < 0.3  # whether axes of a single index are named
    batch = "h" if extents["h"] > 1 or ones else ""
    graph = Graph("read rows", unit="pebble")

    def tensor(name: str, axes: str, kind: str) -> str:
        shape = [(axis, extents[axis]) for axis in axes if extents[axis] > 1 or ones]
        graph.tensor(name, prod(extent for _, extent in shape), kind, axes=shape)  # type: ignore[arg-type]
        return kind

    def chance(of: float) -> bool:
        return rng.random() < of

    given = tensor("scores", ("" if chance(0.2) else batch) + "tj", rng.choice(["input", "input", "param"]))
    tensor("weight", batch + "tj", "temp")
    graph.op("rows", ["scores"], ["weight"], whole=["j"], once=chance(0.2))
    operand = ""
    if chance(0.7):
        made = chance(0.4)
        operand = tensor("v", batch + "jk", "temp" if made else rng.choice(["param", "input"]))
        if made:
            tensor("x", batch + "jk", "input")
            graph.op("make", ["x"], ["v"], once=True)
        tensor("mix", batch + rng.choice(["tk", "tk", "t"]), "output")
        graph.op("mix", rng.sample(["weight", "v"], 2), ["mix"])
    summed = not operand or chance(0.7)
    if summed:
        tensor("q", batch + rng.choice(["tk", "tk", "t"]), "input")
        total = tensor("total", batch + rng.choice(["jk", "jk", "j"]), rng.choice(["output", "temp"]))
        graph.op("add", rng.sample(["weight", "q"], 2), ["total"])
        if total == "temp":
            tensor("end", "", "output")
            graph.op("end", ["total"], ["end"])
    if operand == "param" and chance(0.5):
        graph.op("update", ["v", *(["total"] if summed and chance(0.5) else [])], ["v"], pointwise=True)
    if given == "param" and chance(0.5):
        graph.op("change", ["scores", *(["weight"] if chance(0.5) else [])], ["scores"])
    return graph


def few_touches(rng: random.Random) -> Graph:
    """Return ops that read the same few tensors in different orders."""
    extents = [("i", rng.randint(2, 5)), ("j", rng.randint(1, 3))]
    graph = Graph("touches", unit="pebble")

    def tensor(name: str, kind: str) -> None:
        axes = rng.choice([extents, extents, extents[:1], extents[1:]])
        graph.tensor(name, prod(extent for _, extent in axes), kind, axes=axes)  # type: ignore[arg-type]

    given = [f"p{number}" for number in range(rng.randint(1, 3))]
    for name in given:
        tensor(name, rng.choice(["param", "input"]))
    made: list[str] = []
    for number in range(rng.randint(2, 5)):
        reads = rng.sample([*given, *made[-2:]], min(len(given) + len(made[-2:]), rng.randint(1, 3)))
        tensor(f"t{number}", "temp")
        axes = {name: graph.tensor_named(name).axes for name in [*reads, f"t{number}"]}
        pointwise = any(axes[name] == axes[f"t{number}"] for name in reads) and rng.random() < 0.4
        graph.op(f"o{number}", reads, [f"t{number}"], once=rng.random() < 0.2, pointwise=pointwise)
        made.append(f"t{number}")
    graph.tensor("y", 1, "output", axes=[])
    graph.op("end", rng.sample(made, min(len(made), 2)), ["y"])
    for name in given:
        if graph.tensor_named(name).kind == "param" and rng.random() < 0.6:
            graph.op(f"u{name}", [name, "y"], [name])
    return graph


def one_product(rng: random.Random) -> Graph:
    """Return a product of two matrices, perhaps one that is made once, and another that reads what the first has made."""
    extents = {axis: rng.randint(2, 6) for axis in "ijk"}
    graph = Graph("one product", unit="pebble")

    def tensor(name: str, axes: str, kind: str) -> None:
        graph.tensor(name, prod(extents[axis] for axis in axes), kind, axes=[(axis, extents[axis]) for axis in axes])  # type: ignore[arg-type]

    second, made = rng.random() < 0.4, rng.random() < 0.4
    tensor("a", "ik", "input")
    tensor("b", "jk", "temp" if made else "param")
    tensor("c", "ij", "temp" if second else "output")
    if made:
        tensor("p", "", "param")
        graph.op("make", ["p"], ["b"], once=rng.random() < 0.8)
    graph.op("mul", ["b", "a"], ["c"])
    if second:
        tensor("d", "jk", "output" if made else "temp")
        graph.op("back", ["c", "a"], ["d"])
        if not made:
            graph.op("step", ["b", "d"], ["b"])
    return graph


def shared_operand(rng: random.Random) -> Graph:
    """Return two products that read the same matrix, as those of a layer and of its gradient do."""
    extents = {axis: rng.randint(2, 4) for axis in "ijkm"}
    graph = Graph("shared operand", unit="pebble")

    def tensor(name: str, axes: str, kind: str) -> None:
        graph.tensor(name, prod(extents[axis] for axis in axes), kind, axes=[(axis, extents[axis]) for axis in axes])  # type: ignore[arg-type]

    tensor("a", "ik", rng.choice(["input", "param"]))
    for name, (other, result) in (
        ("first", ("jk", "ij")),
        ("second", rng.choice([("im", "km"), ("km", "im"), ("jk", "ij")])),
    ):
        tensor(f"{name}_side", other, rng.choice(["input", "param"]))
        tensor(f"{name}_made", result, "output")
        reads = rng.choice([[f"{name}_side", "a"], ["a", f"{name}_side"]])
        graph.op(name, reads, [f"{name}_made"], once=rng.random() < 0.2)
    return graph


def whole_rows(rng: random.Random) -> Graph:
    """Return an op whose result may be fused into one that needs an axis whole, and operands that lack that axis."""
    i, k = ("i", rng.randint(2, 5)), ("k", rng.randint(2, 4))
    graph = Graph("whole rows", unit="pebble")

    def tensor(name: str, axes: list[tuple[str, int]], kind: str) -> None:
        graph.tensor(name, prod(extent for _, extent in axes), kind, axes=axes)  # type: ignore[arg-type]

    tensor("x", [i, k], "input")
    tensor("w", [rng.choice([i, k])], "param")
    tensor("t", [i, k], "temp")
    tensor("u", [i, k], "temp")
    tensor("y", [rng.choice([i, k])], "output")
    graph.op("make", ["x", "w"], ["t"], once=rng.random() < 0.3)
    graph.op("point", rng.choice([["t"], ["t", "x"], ["t", "w"]]), ["u"], whole=[rng.choice("ik")], pointwise=True)
    graph.op("sum", ["u"], ["y"])
    if rng.random() < 0.5:
        graph.op("update", ["w", *(["y"] if rng.random() < 0.5 else [])], ["w"])
    return graph


def late_sums(rng: random.Random) -> Graph:
    """Return a step that looks at every sample, and then sums over samples what it computes from them: gradients, for example."""
    extents = {"b": rng.randint(2, 5), "h": rng.randint(1, 3), "n": rng.randint(1, 3)}
    graph = Graph("late sums", unit="pebble")

    def tensor(name: str, axes: str, kind: str = "temp") -> None:
        shape = [(axis, extents[axis]) for axis in axes if extents[axis] > 1]
        graph.tensor(name, prod(extent for _, extent in shape), kind, axes=shape)  # type: ignore[arg-type]

    def chance(of: float) -> bool:
        return rng.random() < of

    tensor("x", rng.choice(["b", "bn"]), "input")
    tensor("w", rng.choice(["h", "hn", "n"]), "param")
    tensor("a", "hb")
    graph.op("make", ["w", "x"], ["a"], once=chance(0.2), meta={"adds": ["w"]} if chance(0.1) else {})
    seen = "a"
    if chance(0.5):
        tensor("r", "hb")
        graph.op("point", ["a"], ["r"], pointwise=chance(0.5))
        seen = rng.choice("ar")
    tensor("s", rng.choice(["b", "b", "b", "hb", ""]))
    graph.op("look", [seen, *(["w"] if chance(0.3) else [])], ["s"])
    term = rng.choice(["a", "d", "d", seen])
    if term == "d":
        tensor("d", rng.choice(["hb", "hb", "b"]))
        reads = rng.sample(["a", "s", *(["w"] if chance(0.3) else []), *(["r"] if seen == "r" else [])], 2)
        graph.op("back", list(dict.fromkeys([*reads, "s"])), ["d"], pointwise=chance(0.3), once=chance(0.1))
    results = ["g"]
    tensor("g", rng.choice(["hn", "h", "n", ""]), rng.choice(["temp", "temp", "output"]))
    if chance(0.15):
        tensor("g2", rng.choice(["h", "hb"]), "output")
        results.append("g2")
    graph.op(
        "total",
        list(dict.fromkeys([term, *rng.sample(["x", "s", "a"], rng.randint(0, 2))])),
        results,
        whole=[axis for axis in "hn" if chance(0.1) and extents[axis] > 1],
        meta={"adds": [term]} if chance(0.05) else {},
    )
    if chance(0.8):
        graph.op("update", ["w", "g"], ["w"], pointwise=chance(0.5))
    return graph


def remade_rows(rng: random.Random) -> Graph:
    """Return a step that reads a parameter row by row, looks at all that comes of it, and updates row by row by what it needs of
    that.
    """
    i, j = ("i", rng.randint(2, 6)), ("j", rng.randint(1, 6))
    graph = Graph("remade rows", unit="pebble")

    def tensor(name: str, axes: list[tuple[str, int]], kind: str = "temp") -> str:
        graph.tensor(name, prod(extent for _, extent in axes), kind, axes=axes)  # type: ignore[arg-type]
        return name

    def chance(of: float) -> bool:
        return rng.random() < of

    given = [tensor("x", [j], "input")] if chance(0.7) else []
    given += [tensor("c", [i], rng.choice(["param", "input"]))] if chance(0.5) else []
    reads = rng.sample([tensor("p", [i, j], "param"), *given], 1 + len(given))
    seen = [tensor("q", [i])]
    results = [*seen, *([tensor("q2", [i])] if chance(0.2) else [])]
    whole = ["j"] if chance(0.2) and j[1] > 1 else []
    graph.op("f", reads, results, whole=whole, meta={"adds": ["c"]} if "c" in given and chance(0.4) else {})
    if chance(0.5):
        graph.op("point", ["q"], [tensor("r", [i])], pointwise=True)
        seen.append("r")
    graph.op("all", [rng.choice(seen)], [tensor("s", [])])
    beside = "s"
    if chance(0.5):
        beside = tensor("e", [i])
        graph.op("back", [tensor("w", [i], "param"), "s"], ["e"], pointwise=True)
    last = tensor("d", [i])
    graph.op("b", rng.sample([beside, "q"], 2), ["d"], pointwise=chance(0.6))
    if chance(0.3):
        last = tensor("d2", [i])
        graph.op("more", ["d"], ["d2"], pointwise=True)
    if chance(0.6):
        graph.op("grad", [last, *(["x"] if "x" in given else [])], [tensor("g", [i, j])])
        last = "g"
    graph.op("u", rng.sample(["p", last], 2), ["p"], pointwise=True)
    return graph


def tight_machine(rng: random.Random, graph: Graph, management: str) -> Machine:
    """Return a machine whose near levels hold about what a piece or two touch."""
    touched = [sum(graph.tensor_named(name).size for name in {*op.reads, *op.writes}) for op in graph.ops]
    room = max(
        1, int(rng.choice(touched) / rng.choice([1, 1, 2, 3, 5, 10]) * rng.uniform(0.4, 1.3)) + rng.randint(-1, 2)
    )
    levels = [Level("near", rng.choice([0, 1]), rng.choice([0, 1]), capacity=room)]
    if rng.random() < 0.4:
        levels.append(
            Level(
                "middle", rng.choice([2, 8]), rng.choice([0, 2]), capacity=max(1, int(room * rng.choice([0.5, 2, 4])))
            )
        )
    levels.append(Level("far", rng.choice([10, 100]), rng.choice([0, 10, 100])))
    line = rng.choice([1, 1, 1, 2]) if management == "lru" else 1
    return Machine(
        "tight", graph.unit, tuple(levels), management, "any", allocator=rng.choice(["own", "reuse"]), line=line
    )  # type: ignore[arg-type]


KINDS = (
    odd_graph, odd_graph, phased_graph, random_tilable, random_products, random_pairs, lambda rng: random_pairs(rng, given=True),
    random_samples, rows_of_scores, few_touches, one_product, shared_operand, whole_rows, random_step,
    late_sums,
)  # fmt: skip


def random_task(rng: random.Random, management: str) -> Task:
    """Return a small graph on a machine that is tight for it."""
    if management == "explicit" and rng.random() < 0.15:
        graph, machine = random_large_pieces(rng)
    else:
        graph = rng.choice(KINDS)(rng)
        machine = _machine(rng, graph, management)
    if management == "explicit" and machine.operands == "any" and rng.random() < 0.15:
        machine = msgspec.structs.replace(machine, results="over")
    return Task(graph, machine.in_unit(graph.unit), rng.random() < 0.6)


def _machine(rng: random.Random, graph: Graph, management: str) -> Machine:
    has_rows = any(axis == "i" for tensor in graph.tensors for axis, _ in tensor.axes or ())
    while True:
        pick = rng.random()
        if pick < 0.3:
            machine = random_levels(rng, graph, management)
        elif pick < 0.5 and graph.name == "pairs" and management == "lru":
            machine = three_caches(rng, graph)
        elif pick < 0.6 and has_rows:
            machine = phased_machine(rng, graph)
        elif pick < 0.8:
            machine = odd_machine(rng, graph)
        else:
            machine = tight_machine(rng, graph, management)
        if machine.management == management:
            return msgspec.structs.replace(machine, unit=graph.unit)


def random_form(rng: random.Random, graph: Graph) -> Graph:
    """Return a random form of a graph, or the graph itself."""
    forms = (form for form, sizes in transforms(rng, graph, 2) if form is not graph and len(form.ops) <= MOST_PIECES)
    return next(forms, graph)


def random_plan(rng: random.Random, task: Task, form: Graph) -> Plan | None:
    """Return a legal plan of a form, often with ops that run again."""
    pick = rng.random()
    order = nested_order(form, rng) if pick < 0.25 else [*random_orders(rng, form, int(pick > 0.5))][-1]
    if rng.random() < 0.5:
        order = with_reruns(rng, form, order)
    if task.caches:
        plan = Plan(
            form, task.machine, Moves.computes(form, task.machine, order), steady=task.steady, source=task.graph
        )
    else:
        near = rng.choice([0.0, 0.5, 1.0])
        params = [tensor.name for tensor in form.tensors if tensor.kind == "param" and rng.random() < near]
        start = {name: rng.randrange(len(task.machine.level)) for name in params}
        found = Runtime(rng, Attacked(form, task.machine, task.steady, task.graph), order, start).played()
        if found is None:
            return None
        plan = found
    return legal(plan)


def legal(plan: Plan) -> Plan | None:
    """Return a plan with the energy that the referee finds, if it is legal."""
    judgement = check(plan)
    return replace(plan, energy=judgement.energy) if judgement.legal else None


def changed_plan(rng: random.Random, plan: Plan) -> Plan | None:
    """Return a legal plan that differs in a move or a few from one; None where the change is not legal."""
    if plan.machine.management != "explicit":
        order = changed(rng, plan.graph, plan.moves.order.tolist())
        moves, start = Moves.computes(plan.graph, plan.machine, order), dict(plan.start)
    else:
        listed, start = _changed_moves(rng, plan)
        moves = Moves.of(plan.graph, plan.machine, listed)
    found = Plan(plan.graph, plan.machine, moves, start, plan.steady, source=plan.source)
    return legal(found) if len(moves) else None


def _changed_moves(rng: random.Random, plan: Plan) -> tuple[list[Move], dict[str, object]]:
    moves, start, names = list(plan.moves), dict(plan.start), plan.machine.names
    pick, at, tensor = rng.random(), rng.randrange(len(moves)), rng.choice(plan.graph.tensors).name
    one = moves[at]
    if pick < 0.2:
        del moves[at]
    elif pick < 0.4:
        del moves[at]
        moves.insert(min(len(moves), max(0, at + rng.choice([-3, -2, -1, 1, 2, 3]))), one)
    elif pick < 0.55 and isinstance(one, Compute):
        moves[at] = Compute(one.op, rng.choice(names))
    elif pick < 0.7 and len(names) > 1:
        source, target = rng.sample(names, 2)
        moves[at:at] = [Copy(tensor, source, target), *([Drop(tensor, source)] if rng.random() < 0.5 else [])]
    elif pick < 0.8:
        moves.insert(at, Drop(tensor, rng.choice(names)))
    elif pick < 0.9:
        runs = [move for move in moves if isinstance(move, Compute)]
        moves.insert(at, Compute(rng.choice(runs).op, rng.choice(names)))
    else:
        params = [tensor.name for tensor in plan.graph.tensors if tensor.kind == "param"]
        if params and plan.steady:
            start[rng.choice(params)] = rng.sample(names, rng.randint(1, len(names)))
    return moves, start


def random_leaves(rng: random.Random, task: Task, played: Played, most: int = 3) -> Iterator[Leaf]:
    """Yield leaves that a plan is in: of its own tile sizes and wider ranges, without a moment and with some."""
    exact = TileRange.of_sizes(task.graph, played.pieces.sizes)
    for tiles in (exact, _wider(rng, exact)):
        family = Family(task, tiles.open, tiles.cut)
        yield Leaf(family, tiles)
        made = [value for value in range(family.flow.values) if family.flow.value_maker[value] >= 0]
        for value in rng.sample(made, min(len(made), most)):
            moment = family.moment(value)
            if moment.after:
                leaf = Leaf(family, tiles, moment)
                yield leaf
                if task.caches and task.steady:
                    near = (Near(level, played.few(leaf, level)) for level in range(len(task.reach)))
                    yield Leaf(family, tiles, moment, tuple(near))


def _wider(rng: random.Random, tiles: TileRange) -> TileRange:
    found = {}
    for axis, one in tiles.ranges.items():
        least = rng.choice([1, one.least, one.least, rng.randint(1, one.least)])
        most = rng.choice([one.extent, one.most, one.most, rng.randint(one.most, one.extent)])
        found[axis] = AxisRange(one.extent, least, most)
    return TileRange(found, tiles.loose)


def held(played: Played, leaf: Leaf, rows: list[Row], parts: Parts) -> list[Held]:
    """Return every row of a leaf, held against the counters of a plan."""
    counts = played.count(leaf, parts)
    _hold_price(played.plan, leaf, counts)
    assert all(number >= 0 for number in counts.values()), "a counter is below 0"
    found = []
    for row in rows:
        total: Number = sum(counts[counter] * factor for counter, factor in row.terms.items() if counter in counts)
        found.append(Held(played.plan, leaf, row, counts, total - row.least))
    return found


def _hold_price(plan: Plan, leaf: Leaf, counts: dict[Counter, Number]) -> None:
    """The counters together cost no more than the plan does."""
    assert plan.energy is not None, "the referee has not been asked"
    energy, total = plan.energy, sum(leaf.price(counter) * float(number) for counter, number in counts.items())
    assert total <= energy * (1 + 1e-9) + 1e-9, f"counters cost {total}, the plan {energy}"


def faults(one: Held) -> Iterator[str]:
    """Yield the faults that this plan finds in a row: its constant stronger by one or by a tenth, terms forgotten or overstated."""
    terms: dict[tuple[str, str], Number] = {}
    for counter, factor in one.row.terms.items():
        if counter in one.counts:
            kind = (counter[0], "forgotten" if factor > 0 else "overstated")
            terms[kind] = terms.get(kind, 0) + abs(factor) * one.counts[counter]
    if one.slack < 1:
        yield "one more"
    if 10 * one.slack < abs(one.row.least):
        yield "a tenth more"
    for (name, fault), amount in terms.items():
        if one.slack < (amount if fault == "forgotten" else Fraction(amount) / 10):
            yield f"{name} {fault}"


def random_start(rng: random.Random, management: str) -> tuple[Task, Plan | None]:
    """Return a task and a plan of one of its forms, if one was found."""
    task = random_task(rng, management)
    return task, random_plan(rng, task, random_form(rng, task.graph))


def read_rows_start(rng: random.Random, management: str) -> tuple[Task, Plan | None]:
    """The same of ops that make and read whole rows, on machines that are tight for them."""
    graph = read_rows(rng)
    machine = msgspec.structs.replace(tight_machine(rng, graph, management), unit=graph.unit)
    task = Task(graph, machine, rng.random() < 0.6)
    return task, random_plan(rng, task, random_form(rng, graph))


def remade_start(rng: random.Random, management: str) -> tuple[Task, Plan | None]:
    """The same of steps that read a parameter, and make again what they made from it just before its update."""
    graph = remade_rows(rng)
    steady, allocator, line = rng.random() < 0.7, rng.choice(["own", "reuse"]), rng.choice([1, 1, 1, 2])
    for _ in range(5):  # where the sums of f are cut it cannot run again
        form = random_form(rng, graph)
        tile = max(tensor.size for tensor in form.tensors if origin(tensor) == "p")
        levels = [Level("near", 1, 1, capacity=max(1, tile + rng.randint(-1, 8)))]
        levels += [Level("middle", 3, 2, capacity=rng.randint(1, 20))] if rng.random() < 0.3 else []
        machine = Machine(
            "tight", "pebble", (*levels, Level("far", 10, 10)), management, "any", allocator=allocator, line=line
        )  # type: ignore[arg-type]
        moves = Moves.computes(form, machine, _remade_order(rng, form))
        plan = Plan(form, machine, moves, steady=steady, source=graph)
        if (found := legal(plan)) is not None:
            break
    return Task(graph, machine, steady), found


def _remade_order(rng: random.Random, form: Graph) -> list[int]:
    """Return an order that goes back over the rows, and often makes what a row needs again before it is needed, or too late."""
    rows = [(tile.at.get("i", (-1, 0))[0] if (tile := tile_of(op)) is not None else -1) for op in form.ops]
    parts = [{part.split("[")[0] for part in op.name.split("+")} for op in form.ops]
    summed = max(number for number, names in enumerate(parts) if "all" in names)
    order, late = list(range(summed + 1)), range(summed + 1, len(rows))
    for row in sorted({rows[op] for op in late}, reverse=rng.random() < 0.8):
        again = [op for op in order[: summed + 1] if "f" in parts[op] and rows[op] == row]
        for op in (op for op in late if rows[op] == row):
            often = 0.2 if "u" in parts[op] else 0.7 if parts[op] & {"b", "back"} else 0.0
            order += [*(again if rng.random() < often else ()), op]
    return order


def attack(
    seed: int,
    management: str,
    climbs: int = 20,
    start: Callable[[random.Random, str], tuple[Task, Plan | None]] = random_start,
) -> Iterator[Held]:
    """Yield rows as they are held against plans that come nearer and nearer to breaking one of them."""
    rng = random.Random(seed)
    task, plan = start(rng, management)
    if plan is None:
        return
    played = Played(plan)
    for leaf in random_leaves(rng, task, played):
        rows, parts = rows_of(leaf), parts_of(played.pieces, leaf, np.random.default_rng(rng.randrange(2**32)))
        assert len({row.key for row in rows}) == len(rows), "two rows have one key"
        found = held(played, leaf, rows, parts)
        yield from found
        if found:
            yield from _climb(rng, played, found, rows, parts, climbs)


def _climb(
    rng: random.Random, played: Played, found: list[Held], rows: list[Row], parts: Parts, climbs: int
) -> Iterator[Held]:
    leaf = found[0].leaf
    target = rng.choice(sorted({row.name for row in rows}))
    place = rng.choice([number for number, row in enumerate(rows) if row.name == target])
    best, plan = found[place].slack, played.plan
    for _ in range(climbs):
        other = changed_plan(rng, plan)
        if other is None:
            continue
        again = Played(other, played.pieces)
        if any(again.few(leaf, near.level) != near.few for near in leaf.near):
            continue
        found = held(again, leaf, rows, parts)
        yield from found
        if found[place].slack <= best:
            best, plan = found[place].slack, other
