"""A plan: a graph, a machine, the initial placement of values, the moves, and the claims about their cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from pebbler.errors import InputError, quoted
from pebbler.files import int_if_whole, write_bytes
from pebbler.game.amounts import cost_word, energy_text
from pebbler.game.energy_scale import Status
from pebbler.game.file_kinds import read_kind
from pebbler.game.graph import Graph, GraphFile
from pebbler.game.machine import Machine, energy_unit
from pebbler.game.moves import Move, Moves
from pebbler.game.replay import Replay
from pebbler.game.rich_repr import RichRepr

__all__ = ["FORMAT", "SCOPES", "Covers", "Plan", "Status"]

FORMAT: Literal["pebbler-plan-1"] = "pebbler-plan-1"
ProofKind = Literal["certificate", "search"]
Covers = Literal["graph", "forms"]  # plans of the graph as it is, or of every form of it (or of its source)
SCOPES: dict[Covers, str] = {"graph": "the graph as it is", "forms": "every tiling and fusion"}


class ProofFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The JSON form of a proof: which plans the bound holds for, how it is known, and where it comes from.

    `certificate` is data that `pebbler.referee.verify` proves a bound from; where the plan's own bound is higher, that was
    searched for.
    """

    covers: Covers
    words: str = ""
    kind: ProofKind = "search"
    certificate: dict[str, Any] | None = None


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
    proof: ProofFile | str = ""  # words alone do not say what is covered
    source: GraphFile | None = None
    meta: dict[str, Any] = {}

    @property
    def words(self) -> str:
        """The origin of the bound."""
        return self.proof if isinstance(self.proof, str) else self.proof.words

    @property
    def covers(self) -> Covers | None:
        """The set of plans that bound and status refer to; None if the file does not say."""
        return None if isinstance(self.proof, str) else self.proof.covers


@dataclass(frozen=True, repr=False)
class Plan(RichRepr):
    """A schedule for one graph on one machine.

    `energy`, `bound` and `status` are claims of a solver or of a file: `pebbler.check` finds the energy, and
    `pebbler.solver.assessment.assess` the other claims that can be proven again. `proof` names the source of the bound, and
    `covers` the plans for which bound and status hold: those of the graph as it is, or of every tiling and fusion (`forms`); None
    if unknown. `certificate` proves the bound (`pebbler.referee.verify`). `steady=None` takes the default: steady
    when the graph updates params.

    >>> from pebbler.workloads import chain
    >>> from pebbler.game.machine import machine
    >>> plan = Plan(chain(1), machine("red-blue"), [("compute", "c1"), ("compute", "b1")], start={"N0": "fast"})
    >>> plan.steady, len(plan.moves)
    (False, 2)
    """

    graph: Graph
    machine: Machine
    moves: Moves  # any sequence of moves, or of their words, is taken and kept as `Moves`
    start: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    steady: bool | None = None
    energy: float | None = None
    bound: float | None = None
    status: Status | None = None
    proof: str = ""
    source: Graph | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    covers: Covers | None = None
    certificate: Mapping[str, Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "moves", Moves.of(self.graph, self.machine, self.moves))
        if self.steady is None:
            object.__setattr__(self, "steady", self.graph.updates_params)

    @classmethod
    def in_order(cls, graph: Graph, machine: Machine, order: Sequence[str] | None = None, **more: Any) -> Plan:
        """Return the plan that only computes: the ops in the given order, or in program order."""
        numbers = range(len(graph.ops)) if order is None else [graph.op_index(name) for name in order]
        return cls(graph, machine, Moves.computes(graph, machine, numbers), **more)

    def __repr__(self) -> str:
        """Return one line, however long the plan is.

        >>> from pebbler import machine, workloads
        >>> Plan.in_order(workloads.note_mlp(), machine("notes-recency"), energy=11004490, status="heuristic")
        Plan('note-mlp' on 'notes-recency', 15 moves, steady; said to be heuristic, 11.004 µJ)
        """
        said = [str(self.status)] if self.status is not None else []
        said += [energy_text(self.energy, self.energy_unit)] if self.energy is not None else []
        said += [f"bound {energy_text(self.bound, self.energy_unit)}"] if self.bound is not None else []
        steady = "steady" if self.steady else "one step"
        claims = f"; said to be {', '.join(said)}" if said else ""
        return f"Plan({self.graph.name!r} on {self.machine.name!r}, {len(self.moves):,} moves, {steady}{claims})"

    @property
    def gap(self) -> float | None:
        """The largest possible excess over the optimum, as a fraction of the bound; None without a bound."""
        if self.energy is None or self.bound is None:
            return None
        if self.energy <= self.bound:
            return 0.0
        return math.inf if self.bound <= 0 else self.energy / self.bound - 1

    @property
    def energy_unit(self) -> str:
        """The unit of its costs: pJ, plain units for pebbles, or the unit in the plan's `meta`, such as ns for time."""
        said = self.meta.get("cost_unit")
        return said if isinstance(said, str) else energy_unit(self.graph.unit, self.machine)

    @property
    def cost_word(self) -> str:
        """The kind of its costs: `energy` or `time`."""
        return cost_word(self.energy_unit)

    # Names to numbers -------------------------------------------------------------------------------------------------

    def with_moves(self, moves: Iterable[Move | Sequence[str]]) -> Plan:
        """Return the plan with other moves."""
        return replace(self, moves=Moves.of(self.graph, self.machine, moves))

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

    def replay(self) -> Replay:
        """Return the plan played move by move: what each one reads, and which values come to and leave which levels."""
        return Replay(self)

    # Files ------------------------------------------------------------------------------------------------------------

    def to_json(self) -> bytes:
        """Return the plan as JSON text."""
        file = PlanFile(
            FORMAT,
            self.graph.to_file(),
            self.machine,
            self.moves.words(),
            {name: where if isinstance(where, str) else list(where) for name, where in self.start.items()},
            self.steady,
            int_if_whole(self.energy),
            int_if_whole(self.bound),
            self.status,
            self.proof_file(),
            None if self.source is None else self.source.to_file(),
            dict(self.meta),
        )
        return msgspec.json.encode(file)

    def proof_file(self) -> ProofFile | str:
        """Return the origin of the bound, in the notation of files."""
        if self.covers is None:
            return self.proof
        certificate = None if self.certificate is None else dict(self.certificate)
        return ProofFile(self.covers, self.proof, self.proof_kind, certificate)

    @property
    def proof_kind(self) -> ProofKind:
        """Whether the bound is said to follow from the certificate, or from a search."""
        stated = None if self.certificate is None else self.certificate.get("bound")
        return "certificate" if self.bound is not None and stated == self.bound else "search"

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON, whole or not at all."""
        write_bytes(path, self.to_json() + b"\n")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Return the plan in a JSON file; a wrong file is refused with the place and what was expected."""
        file = read_kind(path, PlanFile, FORMAT)
        place = "graph"
        try:
            graph = Graph.from_file(file.graph)
            place = "source"
            source = None if file.source is None else Graph.from_file(file.source)
        except InputError as error:
            raise InputError(f"{path}: {place}: {error}") from None
        try:
            file.machine.in_unit(graph.unit)  # refuses units that do not agree
            moves = Moves.of(graph, file.machine, file.moves)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        return cls(
            graph,
            file.machine,
            moves,
            file.start,
            file.steady,
            int_if_whole(file.energy),
            int_if_whole(file.bound),
            file.status,
            file.words,
            source,
            file.meta,
            file.covers,
            None if isinstance(file.proof, str) else file.proof.certificate,
        )
