"""The task of a worker for one run of a PyTorch step: plan the step within a budget, and return its time and energy."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Literal

import msgspec

from pebbler.files import decode_json
from pebbler.game.graph import Graph, GraphFile
from pebbler.referee.judgement import check
from pebbler.run.torch.cost.costs import Link
from pebbler.run.torch.plan.host_link import predicted_cost, repriced, waiting_time
from pebbler.run.torch.plan.step_problem import StepProblem
from pebbler.run.torch.plan.torch_plan import SCALE, TorchPlan
from pebbler.solver.problem import Impossible
from pebbler.sweeps.solve_task import TaskResult, peak_memory

__all__ = ["StepData", "StepTask", "solve_step_task"]


class StepData(msgspec.Struct, frozen=True):
    """A step's problem as data, without a budget."""

    graphs: list[bytes]
    headroom: int
    objective: Literal["time", "energy"]
    link: Link | None
    fingerprint: str
    device: str
    measured: bool
    static_watts: float = 0.0

    @classmethod
    def of(cls, problem: StepProblem) -> StepData:
        """Return a problem as data."""
        graphs = [graph.to_json() for graph in problem.graphs]
        return cls(
            graphs, problem.headroom, problem.objective, problem.link, problem.fingerprint, problem.device, problem.measured,
            problem.static_watts,
        )  # fmt: skip

    def last(self) -> StepData:
        """Return the same with the step that repeats alone."""
        return msgspec.structs.replace(self, graphs=self.graphs[-1:])

    def problem(self, budget: int | None) -> StepProblem:
        """Return the problem with a budget."""
        graphs = [Graph.from_file(decode_json(graph, GraphFile, "graph")) for graph in self.graphs]
        return StepProblem(
            graphs, budget, self.headroom, self.objective, self.link, self.fingerprint, self.device, self.measured,
            static_watts=self.static_watts,
        )  # fmt: skip


class StepTask(msgspec.Struct, frozen=True):
    """A step to be planned for one objective, and what its ops cost by the other."""

    step: StepData
    other: StepData | None  # None where its prices are not known
    budget: int | None
    time_limit: float
    seed: int


def solve_step_task(payload: bytes) -> bytes:
    """Plan the step of a task, and return its result."""
    task = msgspec.msgpack.decode(payload, type=StepTask)
    problem = task.step.problem(task.budget)
    if problem.objective == "energy" and task.other is not None:
        problem = replace(problem, timed=task.other.problem(task.budget))
    began = time.monotonic()
    try:
        made = problem.solve(task.time_limit, task.seed)
    except Impossible as error:
        figures: dict[str, Any] = {"status": "impossible", "error": str(error), "seconds": time.monotonic() - began}
        return msgspec.msgpack.encode(TaskResult(figures))
    scale = SCALE[made.objective]
    seconds = time.monotonic() - began
    cost: dict[str, float] = {made.objective: made.cost}
    if task.other is not None:
        cost[task.other.objective] = _cost_by(made, problem, task.other.problem(task.budget))
    figures = {
        "status": made.status, "energy": made.cost * scale, "bound": made.bound * scale, "gap": made.gap,
        "energy_unit": made.plan.energy_unit, "program_order": made.unplanned * scale, "moves": len(made.plan.moves),
        "cut_off": bool(made.plan.meta.get("cut_off")), "peak": made.peak, "step_seconds": cost.get("time"),
        "step_joules": cost.get("energy"), "proof": made.plan.proof, "seconds": seconds, "memory": peak_memory(),
    }  # fmt: skip
    return msgspec.msgpack.encode(TaskResult(figures, made.to_json() + b"\n"))


def _cost_by(made: TorchPlan, problem: StepProblem, other: StepProblem) -> float:
    """Return the cost of the same moves by another objective's prices. Joules include static power while the step waits."""
    again = repriced(made.plan, other.graphs[-1], other.link)
    overlap = other.link is not None and other.link.overlap and len(again.machine.level) > 1
    cost = predicted_cost(again, True) if overlap else check(again).energy
    waiting = waiting_time(made.plan, problem.graphs[-1], problem.link) if other.objective == "energy" else 0.0
    return float(cost) / SCALE[other.objective] + other.static_watts * waiting / SCALE["time"]
