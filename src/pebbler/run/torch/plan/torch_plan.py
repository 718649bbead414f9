"""A plan for a training step, and its file: one pebbler plan per phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from pebbler.errors import InputError, one_line
from pebbler.game.byte_sizes import LARGE_UNITS, shown_bytes
from pebbler.game.energy_scale import EnergyScale
from pebbler.game.graph import Graph
from pebbler.game.moves import COMPUTE, DROP, Copy, Moves
from pebbler.game.plan import Plan, PlanFile, Status
from pebbler.referee.judgement import Judgement, check
from pebbler.run.torch.capture.captured import Captured
from pebbler.run.torch.plan.host_link import HOST, MEMORY, predicted_cost
from pebbler.solver.assessment import with_meta
from pebbler.solver.recompute.recompute_problem import program_order_peak

__all__ = ["SCALE", "KernelChoice", "Objective", "TorchPlan"]

Objective = Literal["time", "energy"]
KernelChoice = Literal["exact", "compiled"]  # the step's own kernels, one by one, or fused ones
SCALE = {"time": 1e9, "energy": 1e12}  # costs in a graph are whole nanoseconds or picojoules


@dataclass(frozen=True, repr=False)
class TorchPlan:
    """A plan for a training step: one pebbler plan per phase, the last of which repeats.

    `budget` is the promise, in bytes: state, batch, activations, kernels' scratch and `headroom` together.
    """

    phases: Sequence[Plan]
    fingerprint: str
    device: str
    budget: int | None
    headroom: int
    objective: Objective
    unplanned: float  # seconds (or joules) of the same step without any limit
    kernels: KernelChoice = "exact"  # what it was planned for
    launches: Sequence[Sequence[int]] = ()  # computes of the repeating step that one kernel runs, as positions of moves
    launch_peak: int = 0  # the most bytes held while one of them runs, headroom aside
    overlap: bool = False  # whether copies run beside the computation
    captured: Captured | None = field(default=None, repr=False, compare=False)

    @property
    def plan(self) -> Plan:
        """The plan of the step that repeats."""
        return self.phases[-1]

    @property
    def peak(self) -> int:
        """The most bytes held at once, in any phase, headroom included."""
        return max(self.launch_peak, *(check(phase).peak[MEMORY] for phase in self.phases)) + self.headroom

    @property
    def unplanned_peak(self) -> int:
        """The most bytes that the step holds without a limit: in its own order, every value freed after its last use."""
        return max(program_order_peak(phase.graph) for phase in self.phases) + self.headroom

    @property
    def headline(self) -> str:
        """The effect of the plan on memory and on the cost of a step, such as `10.2 -> 4.0 MiB, +23 % time`."""
        before, after = self.unplanned_peak, self.peak
        unit, name = next(((u, n) for n, u in LARGE_UNITS if before >= u), (1, "bytes"))
        digits = 1 if unit > 1 else 0
        held = f"{before / unit:,.{digits}f} -> {after / unit:,.{digits}f} {name}"
        return f"{held if after < before else held.partition(' -> ')[2]}, {self.more_cost}"

    @property
    def more_cost(self) -> str:
        """The extra cost of a step against no limit, such as `+23 % time`."""
        return f"{_more(self.cost / self.unplanned - 1 if self.unplanned > 0 else 0.0)} {self.objective}"

    def __repr__(self) -> str:
        budget = "no budget" if self.budget is None else f"budget {shown_bytes(self.budget)}"
        return f"TorchPlan({self.headline}, {budget}, {self.status})"

    @property
    def cost(self) -> float:
        """Seconds or joules of one step, as the costs predict.

        Time is that of the moves beside one another: an op waits for what is loaded for it, and memory for what is stored from it.
        Joules, and seconds where nothing overlaps, add up, as `plan.energy` does; static power while the step waits comes on top.
        """
        cost = predicted_cost(self.plan, self.overlap) if self.overlap else self.plan.energy
        waiting = self.plan.meta.get("waiting")
        return (float(cost or 0.0) + (waiting if isinstance(waiting, float) else 0.0)) / SCALE[self.objective]

    @property
    def bound(self) -> float:
        """Seconds or joules that no plan can do without, as far as that is proven."""
        return float(self.plan.bound or 0.0) / SCALE[self.objective]

    @property
    def gap(self) -> float | None:
        """The largest possible excess over the optimum, as a fraction of the bound; None without a bound."""
        return max(0.0, self.cost / self.bound - 1) if self.bound > 0 else None

    @property
    def status(self) -> Status:
        """The status of the cost: `optimal`, `bounded` or `heuristic`."""
        return EnergyScale(0.0).status(self.bound, self.cost)

    @property
    def joules_from(self) -> str | None:
        """The origin of joules: `measured` by an energy counter, or `described`; None for a plan made for time."""
        said = self.plan.meta.get("joules")
        return said if isinstance(said, str) else None

    @property
    def offloaded(self) -> int:
        """Bytes that go to the host in one step."""
        graph = self.plan.graph
        copies = (move for move in self.plan.moves if isinstance(move, Copy))
        return sum(graph.tensor_named(copy.tensor).size for copy in copies if copy.target == HOST)

    @property
    def recomputed(self) -> int:
        """The number of ops that run more than once."""
        order = self.plan.moves.order.tolist()
        return len(order) - len(set(order))

    def covers(self, fingerprint: str) -> bool:
        """Whether it has a plan for every phase of a captured step: one made before there was optimizer state serves later too."""
        return f"-{self.fingerprint}".endswith(f"-{fingerprint}")

    def judge(self) -> list[Judgement]:
        """Return the referee's judgement of every phase."""
        return [check(phase) for phase in self.phases]

    def as_plan(self) -> Plan:
        """Return one plan for files and reports: that of the repeating step, with the other phases in its `meta`."""
        about = {
            "fingerprint": self.fingerprint, "device": self.device, "budget": self.budget, "headroom": self.headroom,
            "objective": self.objective, "unplanned": self.unplanned, "kernels": self.kernels, "overlap": self.overlap,
            "launches": [list(launch) for launch in self.launches], "launch_peak": self.launch_peak,
            "first": [msgspec.json.decode(phase.to_json()) for phase in self.phases[:-1]],
        }  # fmt: skip
        return with_meta(self.plan, {"torch": about})

    def to_json(self) -> bytes:
        """Return the plan as JSON text."""
        return self.as_plan().to_json()

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON, whole or not at all."""
        self.as_plan().save(path)

    @classmethod
    def load(cls, path: str | Path) -> TorchPlan:
        """Return the plan in a JSON file."""
        last = Plan.load(path)
        about = last.meta.get("torch")
        try:
            known = msgspec.convert(about, _TorchMeta)
            first = [_plan_of(msgspec.convert(item, PlanFile)) for item in known.first]
            _check_launches(known.launches, last)
        except (msgspec.ValidationError, InputError) as error:
            raise InputError(f"{path}: meta.torch: not a plan of a PyTorch step: {one_line(str(error))}") from None
        last = replace(last, meta={key: value for key, value in last.meta.items() if key != "torch"})
        return cls(
            [*first, last],
            known.fingerprint,
            known.device,
            known.budget,
            known.headroom,
            known.objective,
            known.unplanned,
            known.kernels,
            tuple(map(tuple, known.launches)),
            known.launch_peak,
            known.overlap,
        )


def _more(share: float) -> str:
    """Return an excess such as 0.228 as text, `+23 %`, with significant digits only.

    >>> [_more(share) for share in (0.228, 0.0312, 0.0002, -0.05)]
    ['+23 %', '+3.1 %', 'no more', '-5.0 %']
    """
    if abs(share) < 0.0005:
        return "no more"
    return f"{100 * share:+.0f} %" if abs(share) >= 0.0995 else f"{100 * share:+.1f} %"


_Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**56)]


class _TorchMeta(msgspec.Struct, forbid_unknown_fields=True):
    fingerprint: str
    device: str
    budget: _Bytes | None
    headroom: _Bytes
    objective: Objective
    unplanned: Annotated[float, msgspec.Meta(ge=0)]
    first: list[Any]
    kernels: KernelChoice = "exact"
    launches: list[list[int]] = []
    launch_peak: _Bytes = 0
    overlap: bool = False


def _check_launches(launches: Sequence[Sequence[int]], plan: Plan) -> None:
    """Refuse launches that are none: each is two computes or more with nothing but drops between them, and none is in two."""
    kind, first_free = plan.moves.kind, 0  # no earlier launch runs a move from there on
    for i, launch in enumerate(sorted(launches, key=tuple)):
        if len(launch) < 2:
            raise InputError(f"launches[{i}]: has {len(launch)} computes; expected two or more")
        for place, position in enumerate(launch):
            if not first_free <= position < len(kind) or kind[position] != COMPUTE:
                raise InputError(f"launches[{i}]: {position} is no move that this launch can run")
            if place and (kind[first_free:position] != DROP).any():
                raise InputError(f"launches[{i}]: there are other moves before {position}, which one kernel cannot run")
            first_free = position + 1


def _plan_of(file: PlanFile) -> Plan:
    graph = Graph.from_file(file.graph)
    return Plan(
        graph, file.machine, Moves.of(graph, file.machine, file.moves), file.start, file.steady, file.energy,
        file.bound, file.status, file.words, None, file.meta, file.covers,
    )  # fmt: skip
