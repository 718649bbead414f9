"""Certificates of small problems, and mutants of them: of the certificate, of the graph, and of the machine."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import msgspec

from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.game.machine import machine as named
from pebbler.referee.rows.family import Family
from pebbler.referee.rows.task import Task
from pebbler.referee.rows.tile_range import TileRange
from pebbler.referee.verify import LeafSetting, leaves
from pebbler.solver.bounds.row_program import RowProgram
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.tiling_bound import tiled_bound
from pebbler.workloads import load
from row_attacks import random_form, random_plan, random_task

__all__ = ["Certified", "certified", "cheapest", "mutated", "named_task", "provable", "random_certified"]

Json = Any
JUNK: tuple[Json, ...] = (
    None,
    True,
    -1,
    0,
    1,
    3,
    10**40,
    1.5,
    "",
    "x",
    "1/2",
    "-1",
    "1/0",
    [],
    {},
    [[]],
    {"axis": "i"},
    "9" * 30,
)


@dataclass(frozen=True)
class Certified:
    """A task with a certificate, and the bound that was stated with it."""

    task: Task
    certificate: dict[str, Json]
    bound: float

    @cached_property
    def _text(self) -> bytes:
        return msgspec.json.encode(self.certificate)

    def copied(self) -> dict[str, Json]:
        """Return a copy of the certificate."""
        return msgspec.json.decode(self._text)


def certified(task: Task, work: int = 200, *, as_it_is: bool = False) -> Certified:
    """Return a task with the certificate of its bound, as a file has it."""
    problem = Problem.of(task.graph, task.machine, steady=task.steady)
    found = tiled_bound(problem, work, sizes={} if as_it_is else None)
    return Certified(task, json.loads(json.dumps(found.certificate)), found.energy)


def named_task(workload: str, machine: str, *, steady: bool = True) -> Task:
    """Return a named workload on a named machine."""
    graph = load(workload)
    return Task(graph, named(machine).in_unit(graph.unit), steady)


def random_certified(rng: random.Random) -> Certified:
    """Return a small random task with a certificate."""
    while True:
        task = random_task(rng, rng.choice(["lru", "explicit"]))
        if not task.excluded and task.graph.ops:
            found = certified(task, rng.choice([1, 60, 200]), as_it_is=rng.random() < 0.2)
            if len(json.dumps(found.certificate)) < 20_000:
                return found


def cheapest(rng: random.Random, task: Task, plans: int, *, forms: bool = True) -> float:
    """Return the least energy of some legal plans of a task, infinite if none was found."""
    least = float("inf")
    for number in range(plans):
        form = random_form(rng, task.graph) if number and forms else task.graph
        plan = random_plan(rng, task, form)
        if plan is not None:
            least = min(least, float(plan.energy or 0))
    return least


def provable(task: Task, certificate: dict[str, Json], enough: float) -> float:
    """Return the most that any weights prove with the splits of a certificate, up to so much: the least of its leaves' programs.

    Rows may contradict one another; then a leaf proves anything.
    """
    tiles = TileRange.all_of(task.graph) if certificate["covers"] == "forms" else TileRange.of_sizes(task.graph, {})
    least = float("inf")
    for node, setting in leaves(certificate["tree"], LeafSetting(tiles)):
        family = Family(task, setting.tiles.open, setting.tiles.cut)
        least = min(least, RowProgram(setting.leaf(family, node.get("moment")), enough).bound)
    return least


def mutated(rng: random.Random, one: Certified) -> tuple[str, Task, Json] | None:
    """Return what was changed, and a task and a certificate that do not quite belong together; None where that is no task."""
    kind = rng.choice(["certificate", "certificate", "certificate", "graph", "machine"])
    try:
        if kind == "certificate":
            tree = one.copied()
            for _ in range(rng.choice([1, 1, 2])):
                rng.choice(CHANGES)(rng, tree)
            return kind, one.task, tree
        if kind == "graph":
            return kind, replace(one.task, graph=_other_graph(rng, one.task.graph)), one.certificate
        return kind, _other_machine(rng, one.task), one.certificate
    except InputError:
        return None


def _nodes(node: Json) -> Iterator[dict[str, Json]]:
    if isinstance(node, dict):
        yield node
        for below in node.values():
            yield from _nodes(below)


def _rows(rng: random.Random, certificate: Json) -> list[Json]:
    leaves = [node for node in _nodes(certificate) if isinstance(node.get("weights"), list)]
    return rng.choice(leaves)["weights"] if leaves else []


def _change_weight(rng: random.Random, certificate: Json) -> None:
    rows = [row for row in _rows(rng, certificate) if isinstance(row, list) and row]
    if rows:
        by = rng.choice(["0", "1", "2", "1/2", "1001/1000", "999/1000", "1000000", "1/1000000"])
        row = rng.choice(rows)
        if isinstance(row[-1], str) and row[-1].replace("/", "").isdigit() and "/0" not in row[-1]:
            row[-1] = str(Fraction(row[-1]) * Fraction(by)) if rng.random() < 0.8 else by


def _scale_weights(rng: random.Random, certificate: Json) -> None:
    for row in _rows(rng, certificate):
        if isinstance(row, list) and row and isinstance(row[-1], str) and "/" not in row[-1]:
            row[-1] = f"{row[-1]}/{rng.choice([1, 2, 3])}" if rng.random() < 0.5 else f"{row[-1]}0"


def _drop_row(rng: random.Random, certificate: Json) -> None:
    rows = _rows(rng, certificate)
    if rows:
        del rows[rng.randrange(len(rows))]


def _change_row(rng: random.Random, certificate: Json) -> None:
    rows = [row for row in _rows(rng, certificate) if isinstance(row, list) and len(row) > 1]
    if rows:
        row, other = rng.choice(rows), rng.choice(rows)
        at = rng.randrange(len(row) - 1)
        row[at] = rng.choice([other[0], rng.randrange(4), rng.choice(JUNK), True, "after", "before", "any"])


def _change_split(rng: random.Random, certificate: Json) -> None:
    splits = [node for node in _nodes(certificate) if "axis" in node or "near" in node]
    if splits:
        node = rng.choice(splits)
        name = rng.choice(list(node))
        other = rng.choice(list(node))
        if rng.random() < 0.4:
            node[name], node[other] = node[other], node[name]
        elif rng.random() < 0.3:
            del node[name]
        else:
            node[name] = rng.choice([0, 1, 2, 3, "i", "j", "k", rng.choice(JUNK)])


def _prune(rng: random.Random, certificate: Json) -> None:
    """Put one part of the tree where another was."""
    nodes = list(_nodes(certificate.get("tree")))
    if nodes:
        node, other = rng.choice(nodes), copy.deepcopy(rng.choice(nodes))
        node.clear()
        node.update(other)


def _change_leaf(rng: random.Random, certificate: Json) -> None:
    leaves = [node for node in _nodes(certificate) if "weights" in node]
    if leaves:
        node = rng.choice(leaves)
        node["moment"] = rng.choice([None, 0, 1, 2, 3, 4, 5, rng.choice(JUNK)])
        if rng.random() < 0.5:
            node["weights"] = []


def _change_claim(rng: random.Random, certificate: Json) -> None:
    name, value = rng.choice(
        [("covers", "graph"), ("covers", "forms"), ("bound", 10**12), ("covers", None), ("bound", "x")]
    )
    certificate[name] = value


def _junk(rng: random.Random, certificate: Json) -> None:
    """Put something else at any place."""
    node: Json = certificate
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
        if not keys:
            return
        key = rng.choice(keys)
        if rng.random() < 0.3 or not isinstance(node[key], dict | list):
            node[key] = copy.deepcopy(rng.choice(JUNK))
            return
        node = node[key]


CHANGES: tuple[Callable[[random.Random, Json], None], ...] = (
    _change_weight, _change_weight, _scale_weights, _drop_row, _change_row, _change_split, _change_split, _prune, _change_leaf,
    _change_claim, _junk,
)  # fmt: skip


def _other_graph(rng: random.Random, graph: Graph) -> Graph:
    """Return a graph that differs in an extent, an op, what an op says of itself, or an update."""
    other = Graph(graph.name, unit=graph.unit)
    pick = rng.random()
    axes = sorted({axis for tensor in graph.tensors for axis, _ in tensor.axes or ()})
    grown, by = rng.choice(axes) if axes and pick < 0.3 else None, rng.choice([-1, 1, 1, 2])
    kind = rng.choice(graph.tensors).name if 0.3 <= pick < 0.4 else None
    for tensor in graph.tensors:
        extents = [(axis, extent + by if axis == grown else extent) for axis, extent in tensor.axes or ()]
        size = tensor.size
        if tensor.axes is not None and grown is not None:
            size = 1
            for _, extent in extents:
                size *= extent
        new = rng.choice(["param", "input", "temp", "output"]) if tensor.name == kind else tensor.kind
        other.tensor(
            tensor.name, size, new, axes=extents if tensor.axes is not None else None, overwrites=tensor.overwrites
        )  # type: ignore[arg-type]
    gone = rng.randrange(len(graph.ops)) if 0.4 <= pick < 0.55 else None
    said = rng.randrange(len(graph.ops)) if 0.55 <= pick < 0.8 else None
    for number, op in enumerate(graph.ops):
        if number == gone:
            continue
        told: dict[str, Json] = {"once": op.once, "pointwise": op.pointwise, "whole": list(op.whole)}
        if number == said:
            name = rng.choice(list(told))
            told[name] = (axes[:1] if not told[name] else []) if name == "whole" else not told[name]
        other.op(op.name, list(op.reads), list(op.writes), cost=op.cost, meta=dict(op.meta), **told)
    params = [tensor.name for tensor in other.tensors if tensor.kind == "param"]
    if pick >= 0.8 and params:
        name = rng.choice(params)
        other.op("one more update", [name], [name], pointwise=rng.random() < 0.5)
    assert other.dataflow.ops == len(other.ops)  # or it is no graph, and says so
    return other


def _other_machine(rng: random.Random, task: Task) -> Task:
    """Return a task whose machine differs in a capacity, a price or a rule, or whose step is not steady, or was not."""
    machine = task.machine
    pick, at = rng.random(), rng.randrange(len(machine.level))
    levels, level = list(machine.level), machine.level[at]
    if pick < 0.35 and level.capacity is not None:
        levels[at] = msgspec.structs.replace(
            level, capacity=max(1, level.capacity + rng.choice([-1, 1, level.capacity, 50]))
        )
    elif pick < 0.65:
        prices = {"read": rng.choice([0, 1, 2, level.read / 2, 0.1]), "write": rng.choice([0, 1, level.write, 0.3])}
        levels[at] = msgspec.structs.replace(level, **prices)
    elif pick < 0.75 and len(levels) > 2:
        del levels[at if at < len(levels) - 1 else 0]
    elif pick < 0.85:
        return replace(task, steady=not task.steady)
    rules: dict[str, Json] = {}
    if pick >= 0.85:
        rules = rng.choice(
            [{"allocator": "own"}, {"allocator": "reuse"}, {"management": "explicit"}, {"management": "lru"}, {"results": "over"},
             {"operands": "fastest"}, {"operands": "any"}]
        )  # fmt: skip
    other: Machine = msgspec.structs.replace(machine, level=tuple(levels), **rules)
    return replace(task, machine=other)
