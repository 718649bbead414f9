"""A captured step as a problem of plain data: graphs with costs, a budget and a link. Solving it needs nothing of the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pebbler.game.graph import Graph
from pebbler.run.torch.plan.byte_sizes import shown_bytes
from pebbler.run.torch.plan.host_link import PricedLink
from pebbler.run.torch.plan.phase_search import solve_phases
from pebbler.run.torch.plan.torch_plan import SCALE, Objective, TorchPlan
from pebbler.solver.problem import Impossible, Search

__all__ = ["StepProblem"]


@dataclass(frozen=True)
class StepProblem:
    """One game per phase, the last of which repeats; `link` leads to the host's memory, where values may go."""

    graphs: Sequence[Graph]
    budget: int | None  # bytes, headroom included
    headroom: int
    objective: Objective
    link: PricedLink | None
    fingerprint: str
    device: str
    measured: bool = False  # whether its joules come from an energy counter

    @property
    def capacity(self) -> int | None:
        """Bytes that the plan itself may hold."""
        return None if self.budget is None else self.budget - self.headroom

    def solve(self, time_limit: float, seed: int, report: Callable[[Search], None] | None = None) -> TorchPlan:
        """Return the cheapest plan found; raise `Impossible`, with the least budget that works, when there is none."""
        if self.budget is not None and self.budget <= self.headroom:
            raise Impossible(
                f"the budget of {shown_bytes(self.budget)} is less than the headroom, {shown_bytes(self.headroom)}"
            )
        phases = solve_phases(self.graphs, self.capacity, self.headroom, time_limit, seed, self.link, report)
        joules = "measured" if self.measured else "described"
        about = {"cost_unit": "ns"} if self.objective == "time" else {"joules": joules}
        phases = [replace(phase, meta={**phase.meta, **about}) for phase in phases]
        unplanned = sum(op.cost for op in self.graphs[-1].ops) / SCALE[self.objective]
        overlap = self.link is not None and self.link.overlap
        return TorchPlan(
            phases,
            self.fingerprint,
            self.device,
            self.budget,
            self.headroom,
            self.objective,
            unplanned,
            overlap=overlap,
        )
