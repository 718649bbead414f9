"""A captured step as a problem of plain data: graphs with costs, a budget and a link. Solving it needs nothing of the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pebbler.files import int_if_whole
from pebbler.game.energy_scale import EnergyScale
from pebbler.game.graph import Graph
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.run.torch.cost.costs import Link
from pebbler.run.torch.plan.host_link import repriced, waiting_time
from pebbler.run.torch.plan.phase_search import solve_phases
from pebbler.run.torch.plan.torch_plan import SCALE, Objective, TorchPlan
from pebbler.solver.assessment import with_meta
from pebbler.solver.problem import Search

__all__ = ["StepProblem"]

_WAITING = (1.0, 0.5, 0.25)  # of what computing for as long takes: prices at which plans for energy are looked for


@dataclass(frozen=True)
class StepProblem:
    """One game per phase, the last of which repeats; `link` leads to the host's memory, where values may go."""

    graphs: Sequence[Graph]
    budget: int | None  # bytes, headroom included
    headroom: int
    objective: Objective
    link: Link | None
    fingerprint: str
    device: str
    measured: bool = False  # whether its joules come from an energy counter
    timed: StepProblem | None = None  # of a problem in joules: the step that repeats, priced in time
    static_watts: float = 0.0  # drawn while a step waits

    @property
    def capacity(self) -> int | None:
        """Bytes that the plan itself may hold."""
        return None if self.budget is None else self.budget - self.headroom

    def solve(
        self,
        time_limit: float,
        seed: int,
        report: Callable[[Search], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> TorchPlan:
        """Return the cheapest plan found; raise `Impossible`, with the least budget that works, when there is none.

        `report` hears of every change in the search, and `stop` is asked whether to end with the best plan so far.
        """
        if self.timed is None or self.capacity is None:
            phases = self._phases(self.graphs, time_limit, seed, self.link, report, stop)
        else:
            phases = self._solve_for_energy(self.timed, time_limit, seed, report, stop)
        joules = "measured" if self.measured else "described"
        about = {"cost_unit": "ns"} if self.objective == "time" else {"joules": joules}
        phases = [with_meta(phase, about) for phase in phases]
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

    def _phases(
        self,
        graphs: Sequence[Graph],
        seconds: float,
        seed: int,
        link: Link | None,
        report: Callable[[Search], None] | None,
        stop: Callable[[], bool],
    ) -> list[Plan]:
        return solve_phases(graphs, self.capacity, self.headroom, seconds, seed, link, report, stop)

    def _solve_for_energy(
        self,
        timed: StepProblem,
        time_limit: float,
        seed: int,
        report: Callable[[Search], None] | None,
        stop: Callable[[], bool],
    ) -> list[Plan]:
        """Return the plans with the fewest joules, static power while a step waits for copies included.

        What a copy makes a step wait depends on all others, and waiting is cheaper than computing for as long, so no one price of a
        copy is right. Plans for joules are made at several such prices, and that for time, which gets half of the time limit; the
        best one by its joules is taken. `report` hears of the first search, whose costs are joules.
        """
        links = self._possible_links(timed)
        share = time_limit / 2 / len(links)
        phases = self._phases(self.graphs, share, seed, links[0], report, stop)
        found = [phases[-1], *self._phases(timed.graphs, time_limit / 2, seed, timed.link, None, stop)]
        for link in links[1:]:
            found += self._phases(self.graphs[-1:], share, seed, link, None, stop)
        priced = [self._priced(plan, timed, phases[-1].bound, phases[-1].proof) for plan in found]
        best = min(priced, key=_joules)
        if best.status != "optimal" and any(plan.meta.get("cut_off") for plan in found):
            best = with_meta(best, {"cut_off": True})
        return [*phases[:-1], best]

    def _possible_links(self, timed: StepProblem) -> list[Link | None]:
        """Return prices of a copy in joules: fully exposed, and hidden behind ops with waiting priced as computing or less."""
        if self.link is None or timed.link is None:
            return [self.link]
        out, into, watts = timed.link.out, timed.link.into, 1e3 * self.static_watts  # W ns in pJ
        links: list[Link | None] = [
            replace(self.link, out=self.link.out + watts * out, into=self.link.into + watts * into)
        ]
        power = sum(op.cost for op in self.graphs[-1].ops) / max(1, sum(op.cost for op in timed.graphs[-1].ops))
        for part in _WAITING if timed.link.overlap else ():
            links.append(replace(timed.link, out=part * power * out, into=part * power * into))
        return links

    def _priced(self, plan: Plan, timed: StepProblem, bound: float | None, proof: str) -> Plan:
        """Return a plan with its joules, and in `meta` those that it draws while it waits."""
        made = repriced(plan, self.graphs[-1], self.link)
        energy = int_if_whole(check(made).energy)
        waiting = 1e3 * self.static_watts * waiting_time(made, timed.graphs[-1], timed.link)
        lowest = None if bound is None else min(bound, energy)
        status = EnergyScale.of(made.graph, made.machine).status(lowest, energy)
        meta = {key: value for key, value in plan.meta.items() if key != "cost_unit"} | {"waiting": waiting}
        return replace(made, energy=energy, bound=lowest, status=status, proof=proof, meta=meta)


def _joules(plan: Plan) -> float:
    return float(plan.energy or 0.0) + float(plan.meta["waiting"])
