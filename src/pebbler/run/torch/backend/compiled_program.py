"""The forward and backward programs of a compiled graph as a plan for the report page, with the model's names.

Read off the graphs that torch's partitioner gives to Inductor, before that. What Inductor computes inside other kernels
(`node_kinds`) is part of the op that reads it, unless several read it. So its peak is near what the program holds, and `held` says
what was measured.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Protocol

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Plan
from pebbler.referee.judgement import require_legal
from pebbler.run.torch.backend.host_operators import SEND
from pebbler.run.torch.backend.kernels.step_arrays import CALL, GIVEN, INLINED, STORED, VIEW
from pebbler.run.torch.backend.node_costs import all_bytes, call_cost, fused_cost
from pebbler.run.torch.backend.node_kinds import node_kind
from pebbler.run.torch.cost.costs import Device
from pebbler.solver.problem import Problem
from pebbler.solver.recompute.recompute_problem import RecomputeProblem

__all__ = [
    "CompiledNode",
    "CompiledProgram",
    "HasProgram",
    "keep_graph",
    "program_plan",
    "programs_of",
    "read_joint",
    "read_split",
]

_NANOSECONDS = 1e9


@dataclass(frozen=True)
class CompiledNode:
    """A node of a program: what it reads, how it is computed, its bytes and time, and where it comes from."""

    name: str
    part: str  # forward or backward
    reads: tuple[str, ...]
    kind: int
    size: int
    seconds: float
    module: str = ""
    call: str = ""
    again: bool = False  # a node of forward that runs in backward
    element: bool = False  # of what a call returns, made together with it
    sent: int = 0  # bytes that it sends to the host
    role: str = ""  # of what is given: parameter or batch
    result: bool = False  # whether it is there at the end


@dataclass
class CompiledProgram:
    """A compiled graph as its last compilation made it; `unlimited` is the same without a budget, nothing computed again."""

    nodes: Sequence[CompiledNode]
    unlimited: Sequence[CompiledNode]
    device: str
    seconds: tuple[float, float]  # of both, as the choices were compared by
    budget: int | None = None
    curve: Sequence[tuple[int, float]] = ()  # peaks and seconds of the choices that there were
    held: int | None = None  # bytes, measured
    trained: list[weakref.ref[Any]] = field(default_factory=list)  # the parameters that it was called with

    def as_plan(self) -> Plan:
        """Return the program as a plan, judged, with what a report shows beside it."""
        plan, free = (program_plan(*one) for one in zip((self.nodes, self.unlimited), self.seconds, strict=True))
        game = RecomputeProblem.of(Problem.of(free.graph, free.machine))
        cost = [op.cost for op in free.graph.ops]
        about = {
            "device": self.device, "budget": self.budget, "headroom": 0, "objective": "time", "kernels": "compiled",
            "unplanned": sum(cost) / _NANOSECONDS, "held": self.held,
            "unlimited": {"held": game.measure(game.program).memory.tolist(), "cost": cost},
            "curve": [{"peak": peak, "cost": seconds * _NANOSECONDS} for peak, seconds in self.curve],
        }  # fmt: skip
        return replace(plan, meta={**plan.meta, "torch": about})


def read_nodes(
    graph: fx.Graph, part: str, device: Device, known: Iterable[str] = (), results: Any = ()
) -> list[CompiledNode]:
    """Return the nodes of a graph; in backward, `known` are those of forward. `results` are its outputs that stay."""
    before, ends = set(known), {node for node in tree_leaves(results) if isinstance(node, fx.Node)}
    found = []
    for node in graph.nodes:
        if node.op == "output":
            continue
        kind = node_kind(node)
        element = node.target is operator.getitem
        value = node.meta.get("val")
        size = all_bytes([value]) if isinstance(value, torch.Tensor) and kind != VIEW and node.target is not SEND else 0
        calls = any(node_kind(user) == CALL for user in node.users if user.op != "output")
        seconds = 0.0
        if kind == CALL:
            seconds = call_cost(node, device, "time")
        elif kind in (INLINED, STORED):
            seconds = fused_cost(node, device.unit_costs("time")[0], calls)
        found.append(
            CompiledNode(
                node.name,
                part,
                tuple(source.name for source in node.all_input_nodes),
                kind,
                size,
                seconds,
                _module(node),
                _call(node),
                part == "backward" and kind != GIVEN and node.name in before,
                element,
                _sent_bytes(node),
                _role(node) if kind == GIVEN else "",
                node in ends,
            )
        )
    return found


def _sent_bytes(node: fx.Node) -> int:
    """Return the number of bytes that a node sends to the host."""
    if node.target is not SEND:
        return 0
    return all_bytes([source.meta.get("val") for source in node.all_input_nodes])


def _module(node: fx.Node) -> str:
    """Return the path of the innermost module that a node comes from; of a node of backward, that of its forward node."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    entries = [entry for entry in stack.values() if isinstance(entry, tuple) and len(entry) == 2]
    kinds = {_plain(str(path)): getattr(kind, "__name__", str(kind).rpartition(".")[2]) for path, kind in entries}
    path = next(reversed(kinds), "")
    first = path.partition(".")[0]
    return f"{kinds[first]} {path}" if first.isdigit() and first in kinds else path


def _plain(path: str) -> str:
    """Return a module's path as people write it.

    >>> _plain("L['self'].h.3"), _plain("L['self']._modules['0']"), _plain("L['model'].blocks[2].fc")
    ('h.3', '0', 'blocks.2.fc')
    """
    names = path.replace("_modules", "").replace("[", ".").translate({ord(c): None for c in "]'\""}).split(".")
    return ".".join(name for name in names[2:] if name and name != "_orig_mod") if names[0] == "L" else path


def _call(node: fx.Node) -> str:
    target: Any = node.target
    return str(target._schema.name.partition("::")[2]) if isinstance(target, torch._ops.OpOverload) else node.name


def _role(node: fx.Node) -> str:
    described = type(node.meta.get("desc")).__name__
    return "parameter" if "Param" in described or "Buffer" in described else "batch"


def program_plan(nodes: Sequence[CompiledNode], seconds: float | None = None) -> Plan:
    """Return a program in its order, every value freed after its last use, as a legal plan on one level of memory.

    Nodes take `seconds` altogether, in the proportions of their own.

    >>> mm = CompiledNode("mm", "forward", ("x", "w"), CALL, 8, 2e-6, "fc", "mm")
    >>> relu = CompiledNode("relu", "forward", ("mm",), INLINED, 8, 1e-6, "act", "relu")
    >>> out = CompiledNode("out", "forward", ("relu",), STORED, 4, 1e-6, "", "sum", result=True)
    >>> given = [CompiledNode(name, "forward", (), GIVEN, 16, 0.0, role="batch") for name in ("x", "w")]
    >>> plan = program_plan([*given, mm, relu, out])
    >>> [(op.name, op.reads, op.cost) for op in plan.graph.ops]  # relu is computed inside out
    [('forward mm', ('arg.x', 'arg.w'), 2000.0), ('forward out', ('forward mm',), 2000.0)]
    """
    total = sum(node.seconds for node in nodes)
    graph = _ProgramWriter(nodes, _NANOSECONDS * (seconds / total if seconds and total else 1.0)).graph()
    machine = Machine("device", "byte", (Level("memory", 0, 0),), operands="fastest")
    problem = Problem.of(graph, machine, steady=False)
    game = RecomputeProblem.of(problem)
    plan = problem.plan(game.moves(game.program))
    plan = Plan(plan.graph, plan.machine, plan.moves, plan.start, False, meta={"cost_unit": "ns"})
    require_legal(plan)
    return plan


class _ProgramWriter:
    """Writes nodes as tensors and ops; names are those of nodes, with their part before them where they are made."""

    def __init__(self, nodes: Sequence[CompiledNode], scale: float) -> None:
        self.nodes, self.scale = nodes, scale
        self.known = {(node.part, node.name) for node in nodes}
        self.readers: dict[tuple[str, str], list[CompiledNode]] = {}
        for node in nodes:
            for source in node.reads:
                self.readers.setdefault(self._key(node.part, source), []).append(node)
        self.waiting = {(node.part, node.name): node for node in nodes}  # whose time is in no op yet
        self.saved = {node.name for node in nodes if node.part == "backward" and node.kind == GIVEN}
        self.away = {source for node in nodes if node.sent for source in node.reads}
        self.places: dict[tuple[str, str], tuple[str, ...]] = {}  # tensors that a node's value is read from

    def _key(self, part: str, name: str) -> tuple[str, str]:
        """Return the node of a name: in backward one of its own, or one of forward."""
        return (part, name) if (part, name) in self.known else ("forward", name)

    def graph(self) -> Graph:
        """Return the graph."""
        made = Graph("compiled step", unit="byte")
        for node in self.nodes:
            key = node.part, node.name
            if node.kind == GIVEN and not node.element:
                saved = self.places.get(("forward", node.name)) if node.part == "backward" else None
                if node.part == "backward" and node.name in self.away:
                    saved = ()  # it comes back by a call of its own
                elif saved is None:
                    given = f"arg.{node.name}" if node.role == "batch" else node.name
                    made.tensor(given, node.size, kind="input", meta={"label": _label(node)})
                    saved = (given,)
                self.places[key] = saved
                continue
            sources = tuple(dict.fromkeys(p for s in node.reads for p in self.places.get(self._key(node.part, s), ())))
            elements = [r for r in self.readers.get(key, []) if r.element]
            if node.element or node.kind == VIEW or not self._written(node, bool(elements)):
                if key not in self.places:
                    self.places[key] = sources
                continue
            writes = []
            for one in elements or [node]:
                name = f"{node.part} {one.name}"
                made.tensor(name, one.size, kind="output" if self._stays(one) else "temp")
                self.places[one.part, one.name] = (name,)
                writes.append(name)
            calls = [node.call] if node.call else []
            meta: dict[str, Any] = {"part": node.part, "module": node.module, "calls": calls}
            meta |= {"again": True} if node.again else {}
            meta |= {"sent": node.sent} if node.sent else {}
            cost = max(1, round(self._seconds(node) * self.scale))
            made.op(f"{node.part} {node.name}", sources, writes, cost=cost, meta=meta)
        return made

    def _seconds(self, node: CompiledNode) -> float:
        """Return the time of an op: its node's, and that of what is computed inside of it and was not counted before."""
        total, rest = 0.0, [self._key(node.part, node.name)]
        while rest:
            key = rest.pop()
            one = self.waiting.pop(key, None)
            if one is not None:
                total += one.seconds
                rest += [self._key(one.part, source) for source in one.reads]
        return total

    def _stays(self, node: CompiledNode) -> bool:
        """Whether a value, or a view of it, is there at the end."""
        rest = [node]
        while rest:
            one = rest.pop()
            if one.result:
                return True
            rest += [r for r in self.readers.get((one.part, one.name), []) if r.kind == VIEW]
        return False

    def _written(self, node: CompiledNode, several: bool) -> bool:
        """Whether a value has memory of its own: it is no expression inside of one reader."""
        if node.kind in (CALL, STORED) or several or self._stays(node) or self._is_saved(node):
            return True
        readers = self._real_readers(node)
        return len(readers) != 1 or readers[0].kind == CALL

    def _is_saved(self, node: CompiledNode) -> bool:
        return node.part == "forward" and node.name in self.saved

    def _real_readers(self, node: CompiledNode) -> list[CompiledNode]:
        """Return the readers of a value, through views too."""
        found: list[CompiledNode] = []
        for reader in self.readers.get((node.part, node.name), []):
            found += self._real_readers(reader) if reader.kind == VIEW else [reader]
        return found


def _label(node: CompiledNode) -> str:
    return f"{node.role} {node.name}" if node.role else node.name


class HasProgram(Protocol):
    """A compiled graph."""

    def program(self) -> CompiledProgram | None: ...


# Compiled graphs that are alive, in the order in which they were made.
_GRAPHS: weakref.WeakValueDictionary[int, HasProgram] = weakref.WeakValueDictionary()
_NUMBERS = count()


def keep_graph(graph: HasProgram) -> None:
    """Remember a compiled graph as long as it lives."""
    _GRAPHS[next(_NUMBERS)] = graph


def read_joint(graph: fx.Graph, device: Device) -> list[CompiledNode]:
    """Return the program of a joint graph without recomputation; nodes that need a gradient of a result are backward."""
    late: set[str] = set()
    for node in graph.nodes:
        if (node.op == "placeholder" and "tangents" in node.name) or any(s.name in late for s in node.all_input_nodes):
            late.add(node.name)
    found = read_nodes(graph, "forward", device, results=graph.output_node().args[0])
    return sorted(
        (replace(node, part="backward") if node.name in late else node for node in found),
        key=lambda node: node.part != "forward",
    )


def read_split(forward: fx.Graph, backward: fx.Graph, outputs: int, device: Device) -> list[CompiledNode]:
    """Return the program of a partitioned graph; `outputs` is the number of forward's results besides saved values."""
    first = read_nodes(forward, "forward", device, results=tree_leaves(forward.output_node().args[0])[:outputs])
    known = [node.name for node in first if node.kind != GIVEN]
    return [*first, *read_nodes(backward, "backward", device, known, backward.output_node().args[0])]


def programs_of(model: Any) -> list[CompiledProgram]:
    """Return the programs of a compiled model's graphs, or of all compiled graphs of the process for a function.

    Raises `InputError` where there are none: the model was not compiled by this backend with a budget, or not called yet.
    """
    own = getattr(model, "_orig_mod", model)
    ids = {id(p) for p in own.parameters()} if isinstance(own, torch.nn.Module) else None
    found = [
        program
        for program in (graph.program() for _, graph in sorted(_GRAPHS.items()))
        if program is not None
        and (ids is None or any(id(ref()) in ids for ref in program.trained if ref() is not None))
    ]
    if not found:
        raise InputError(
            "no program of this model is known: compile it with backend='pebbler' and a budget, and train one step"
        )
    return found
