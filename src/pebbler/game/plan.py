"""A plan: a graph, a machine, where things start, the moves, and what is known about them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from pebbler.errors import InputError, quoted
from pebbler.files import read_bytes, read_json, write_bytes
from pebbler.game.graph import Graph, GraphFile
from pebbler.game.machine import Machine, energy_unit
from pebbler.workloads import load

__all__ = [
    "COMPUTE",
    "COPY",
    "DROP",
    "FORMAT",
    "KINDS",
    "EncodedMoves",
    "Move",
    "Plan",
    "Status",
    "load_subject",
    "whole",
]

FORMAT: Literal["pebbler-plan-1"] = "pebbler-plan-1"
Status = Literal["optimal", "bounded", "heuristic"]
Move = tuple[str, ...]
COMPUTE, COPY, DROP = 0, 1, 2
KINDS = ("compute", "copy", "drop")
_SHAPES = {
    "compute": '["compute", op] or ["compute", op, level]',
    "copy": '["copy", tensor, from, to]',
    "drop": '["drop", tensor, level]',
}


class PlanFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The JSON form of a plan."""

    format: Literal["pebbler-plan-1"]
    graph: GraphFile
    machine: Machine
    moves: list[tuple[str, ...]]
    start: dict[str, str | list[str]] = {}
    steady: bool | None = None
    energy: float | None = None
    bound: float | None = None
    status: Status | None = None
    proof: str = ""
    source: GraphFile | None = None
    meta: dict[str, Any] = {}


@dataclass(frozen=True)
class EncodedMoves:
    """Moves as flat arrays: what kind, which op or tensor, and the levels."""

    kind: npt.NDArray[np.int8]
    subject: npt.NDArray[np.int64]  # op of a compute, tensor of a copy or drop
    level: npt.NDArray[np.int8]  # where a compute's results go, where a copy comes from, where a drop happens
    to: npt.NDArray[np.int8]  # where a copy goes


@dataclass(frozen=True)
class Plan:
    """A schedule for one graph on one machine.

    `energy`, `bound` and `status` are claims until `pebbler.check` has judged the plan; `proof` says where the bound comes
    from. `steady=None` takes the default: steady when the graph updates params.

    >>> from pebbler.workloads import chain
    >>> from pebbler.game.machine import machine
    >>> plan = Plan(chain(1), machine("red-blue"), [("compute", "c1"), ("compute", "b1")], start={"N0": "fast"})
    >>> plan.steady, len(plan.moves)
    (False, 2)
    """

    graph: Graph
    machine: Machine
    moves: Sequence[Move]
    start: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    steady: bool | None = None
    energy: float | None = None
    bound: float | None = None
    status: Status | None = None
    proof: str = ""
    source: Graph | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.steady is None:
            object.__setattr__(self, "steady", self.graph.updates_params)

    @classmethod
    def in_order(cls, graph: Graph, machine: Machine, order: Sequence[str] | None = None, **more: Any) -> Plan:
        """Return the plan that only computes: the ops in the given order, or in program order."""
        names = [op.name for op in graph.ops] if order is None else order
        return cls(graph, machine, [("compute", name) for name in names], **more)

    @property
    def gap(self) -> float | None:
        """How far the energy may be above the optimum, as a fraction of it; None when no bound is known."""
        if self.energy is None or self.bound is None:
            return None
        if self.energy <= self.bound:
            return 0.0
        return math.inf if self.bound <= 0 else self.energy / self.bound - 1

    @property
    def energy_unit(self) -> str:
        """What its costs are counted in: pJ, plain units for pebbles, or what the plan's `meta` says, such as ns for time."""
        said = self.meta.get("cost_unit")
        return said if isinstance(said, str) else energy_unit(self.graph.unit)

    # Names to numbers -------------------------------------------------------------------------------------------------

    def start_levels(self) -> dict[int, list[int]]:
        """Return the levels where each start value is, by tensor number; the slowest unless the plan says otherwise."""
        slowest = len(self.machine.level) - 1
        flow = self.graph.dataflow
        levels = {int(tensor): [slowest] for tensor in np.flatnonzero(flow.start_value >= 0)}
        for name, where in self.start.items():
            names = [where] if isinstance(where, str) else list(where)
            try:
                tensor = self.graph.tensor_index(name)
                numbers = sorted({self.machine.level_index(level) for level in names})
            except InputError as error:
                raise InputError(f"start: {error}") from None
            if tensor not in levels:
                kind = self.graph.tensors[tensor].kind
                raise InputError(f"start: {quoted(name)} is of kind {kind}; only inputs and params exist at the start")
            if not names:
                raise InputError(f"start: {quoted(name)} must be in at least one level")
            levels[tensor] = numbers
        return levels

    def encode(self) -> EncodedMoves:
        """Return the moves as flat arrays, or say which one names something that does not exist."""
        count = len(self.moves)
        ops = {op.name: i for i, op in enumerate(self.graph.ops)}
        tensors = {tensor.name: i for i, tensor in enumerate(self.graph.tensors)}
        levels = {level.name: i for i, level in enumerate(self.machine.level)}
        kind, subject, level, to = [0] * count, [0] * count, [0] * count, [0] * count
        for i, move in enumerate(self.moves):
            try:
                what = move[0]
                if what == "compute" and len(move) <= 3:
                    subject[i] = ops[move[1]]
                    level[i] = levels[move[2]] if len(move) == 3 else 0
                elif what == "copy" and len(move) == 4:
                    kind[i], subject[i], level[i], to[i] = COPY, tensors[move[1]], levels[move[2]], levels[move[3]]
                elif what == "drop" and len(move) == 3:
                    kind[i], subject[i], level[i] = DROP, tensors[move[1]], levels[move[2]]
                else:
                    raise IndexError
            except (IndexError, KeyError, TypeError):
                raise self._move_error(i) from None
        return EncodedMoves(
            np.array(kind, np.int8), np.array(subject, np.int64), np.array(level, np.int8), np.array(to, np.int8)
        )

    def _move_error(self, i: int) -> InputError:
        move = self.moves[i]
        place = f"moves[{i}]"
        words = [word if isinstance(word, str) else repr(word) for word in move[:5]]
        got = f"got [{', '.join(map(quoted, words))}{', ...' if len(move) > 5 else ''}]"
        if len(move) == 0 or move[0] not in _SHAPES:
            return InputError(f"{place}: expected one of {', '.join(_SHAPES.values())}; {got}")
        lengths = {"compute": (2, 3), "copy": (4,), "drop": (3,)}[move[0]]
        if len(move) in lengths and all(isinstance(word, str) for word in move):
            try:
                self.graph.op_index(move[1]) if move[0] == "compute" else self.graph.tensor_index(move[1])
                for name in move[2:]:
                    self.machine.level_index(name)
            except InputError as error:
                return InputError(f"{place}: {error}")
        return InputError(f"{place}: expected {_SHAPES[move[0]]}; {got}")

    # Files ------------------------------------------------------------------------------------------------------------

    def to_json(self) -> bytes:
        """Return the plan as JSON text."""
        file = PlanFile(
            FORMAT,
            self.graph.to_file(),
            self.machine,
            [tuple(move) for move in self.moves],
            {name: where if isinstance(where, str) else list(where) for name, where in self.start.items()},
            self.steady,
            whole(self.energy),
            whole(self.bound),
            self.status,
            self.proof,
            None if self.source is None else self.source.to_file(),
            dict(self.meta),
        )
        return msgspec.json.encode(file)

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON, whole or not at all."""
        write_bytes(path, self.to_json() + b"\n")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Return the plan in a JSON file; a wrong file is refused with the place and what was expected."""
        file = read_json(path, PlanFile)
        place = "graph"
        try:
            graph = Graph.from_file(file.graph)
            place = "source"
            source = None if file.source is None else Graph.from_file(file.source)
        except InputError as error:
            raise InputError(f"{path}: {place}: {error}") from None
        return cls(
            graph,
            file.machine,
            file.moves,
            file.start,
            file.steady,
            whole(file.energy),
            whole(file.bound),
            file.status,
            file.proof,
            source,
            file.meta,
        )


def load_subject(name: str | Path) -> Plan | Graph:
    """Return the plan or graph in a JSON file, told apart by its format, or a built-in workload by its spec.

    >>> load_subject("chain:length=3")
    Graph('chain:length=3', unit='pebble', 8 tensors, 7 ops)
    """
    if Path(name).is_file() and FORMAT.encode() in read_bytes(name)[:200]:
        return Plan.load(name)
    return load(name)


def whole(number: float | None) -> float | None:
    """Return a whole number as an int, so that files and tables say 336, not 336.0."""
    return int(number) if number is not None and math.isfinite(number) and number == int(number) else number
