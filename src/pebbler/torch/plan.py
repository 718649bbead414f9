"""Planning a captured step within a budget: the recomputation game of its graph, solved and judged like any other."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
from torch._subclasses.fake_tensor import FakeTensor

from pebbler.errors import InputError, quoted
from pebbler.graph import Graph
from pebbler.machine import Level, Machine
from pebbler.plan import Plan, PlanFile
from pebbler.referee import Judgement, check
from pebbler.solve import finish
from pebbler.solve.problem import Impossible, Problem, Search
from pebbler.solve.recompute import solve_recompute
from pebbler.solve.recompute.capacity import LeastCapacity, least_capacity
from pebbler.solve.recompute.game import Game
from pebbler.solve.recompute.greedy import fit
from pebbler.solve.recompute.search import Recipe, improve
from pebbler.torch.capture import Captured, Phase, capture
from pebbler.torch.costs import Cost, Costs, Device, profile, roofline

__all__ = ["Objective", "TorchPlan", "bytes_of", "least_budget", "plan", "plan_captured", "shown_bytes"]

Objective = Literal["time", "energy"]
LEVEL = "memory"
_MOST = 2**50  # bytes: more than any device has
_LEAST_SECONDS = 5.0  # spent on what would do when a budget does not
_SMALL = 4096  # bytes for numbers that kernels wrap in tensors
_GENERATOR = 5056  # bytes of a CPU generator's state, kept for every draw that may be repeated
_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


def bytes_of(budget: str | int | float) -> int:
    """Return a budget in bytes.

    >>> bytes_of("6GiB"), bytes_of("1.5 MB"), bytes_of(512)
    (6442450944, 1500000, 512)
    """
    if isinstance(budget, int | float) and not isinstance(budget, bool) and budget > 0:
        return int(budget)
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(budget).lower())
    if match is None or match[2] not in _UNITS or not float(match[1]) > 0:
        raise InputError(f"budget: expected bytes such as 6GiB, 500MB or 1048576, got {quoted(budget)}")
    return int(float(match[1]) * _UNITS[match[2]])


def shown_bytes(count: float) -> str:
    """Return bytes as people read them.

    >>> shown_bytes(6442450944), shown_bytes(1000)
    ('6.00 GiB', '1,000 bytes')
    """
    for name, unit in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= unit:
            return f"{count / unit:,.2f} {name}"
    return f"{count:,.0f} bytes"


@dataclass(frozen=True)
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
    captured: Captured | None = field(default=None, repr=False, compare=False)

    @property
    def plan(self) -> Plan:
        """The plan of the step that repeats."""
        return self.phases[-1]

    @property
    def peak(self) -> int:
        """The most bytes held at once, in any phase, headroom included."""
        return max(check(phase).peak[LEVEL] for phase in self.phases) + self.headroom

    @property
    def cost(self) -> float:
        """Seconds or joules of one step, as the costs predict."""
        return float(self.plan.energy or 0.0) / _SCALE[self.objective]

    @property
    def recomputed(self) -> int:
        """How many ops run more than once."""
        computes = [move[1] for move in self.plan.moves if move[0] == "compute"]
        return len(computes) - len(set(computes))

    def judge(self) -> list[Judgement]:
        """Return what the referee says of every phase."""
        return [check(phase) for phase in self.phases]

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON: the plan of the repeating step, the others beside it in `meta`."""
        about = {
            "fingerprint": self.fingerprint, "device": self.device, "budget": self.budget, "headroom": self.headroom,
            "objective": self.objective, "unplanned": self.unplanned,
            "first": [msgspec.json.decode(phase.to_json()) for phase in self.phases[:-1]],
        }  # fmt: skip
        replace(self.plan, meta={**self.plan.meta, "torch": about}).save(path)

    @classmethod
    def load(cls, path: str | Path) -> TorchPlan:
        """Return the plan in a JSON file."""
        last = Plan.load(path)
        about = last.meta.get("torch")
        try:
            known = msgspec.convert(about, _About)
            first = [_plan_of(msgspec.convert(item, PlanFile)) for item in known.first]
        except msgspec.ValidationError as error:
            raise InputError(f"{path}: meta.torch: not a plan of a PyTorch step: {error}") from None
        last = replace(last, meta={key: value for key, value in last.meta.items() if key != "torch"})
        return cls(
            [*first, last],
            known.fingerprint,
            known.device,
            known.budget,
            known.headroom,
            known.objective,
            known.unplanned,
        )


class _About(msgspec.Struct, forbid_unknown_fields=True):
    fingerprint: str
    device: str
    budget: int | None
    headroom: int
    objective: Objective
    unplanned: float
    first: list[Any]


def _plan_of(file: PlanFile) -> Plan:
    return Plan(
        Graph.from_file(file.graph), file.machine, file.moves, file.start, file.steady, file.energy, file.bound, file.status,
        file.proof, None, file.meta,
    )  # fmt: skip


def plan(
    step: Callable[..., Any],
    args: Sequence[Any],
    *,
    budget: str | int | None = None,
    device: str | Device | None = None,
    objective: Objective = "time",
    headroom: str | int | None = None,
    time_limit: float = 30.0,
    seed: int = 0,
) -> TorchPlan:
    """Return the cheapest plan found for a training step that holds at most `budget` bytes at any time.

    Costs are measured on the device where the step's tensors are, or, for `device="h200"` and the like, and for fake tensors, come
    from a roofline. Without a budget the plan is program order with every value freed after its last use. Raises `Impossible`
    with the least budget that works when this one does not.

    >>> import torch
    >>> model = torch.nn.Linear(4, 2)
    >>> rule = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> def step(x):
    ...     rule.zero_grad()
    ...     loss = model(x).square().mean()
    ...     loss.backward()
    ...     rule.step()
    ...     return loss
    >>> planned = plan(step, [torch.ones(8, 4)], budget="1MB", device="cpu")
    >>> planned.peak < planned.budget, planned.plan.status
    (True, 'optimal')
    """
    captured = capture(step, *args)
    fake = any(isinstance(x, FakeTensor) for x in (*captured.world.leaves, *captured.world.tensors))
    if device is None and not fake:
        costs = profile(captured)
    else:
        costs = roofline(captured, device or ("h200" if captured.device.startswith("cuda") else "cpu"))
    return plan_captured(
        captured, costs, budget=budget, objective=objective, headroom=headroom, time_limit=time_limit, seed=seed
    )


def plan_captured(
    captured: Captured,
    costs: Costs,
    *,
    budget: str | int | None = None,
    objective: Objective = "time",
    headroom: str | int | None = None,
    time_limit: float = 30.0,
    seed: int = 0,
) -> TorchPlan:
    """Return the cheapest plan found for a captured step with known costs; see `plan`."""
    if objective not in ("time", "energy"):
        raise InputError(f"objective must be time or energy, got {quoted(objective)}")
    limit = None if budget is None else bytes_of(budget)
    graphs = [priced_graph(p, row, objective) for p, row in zip(captured.phases, costs, strict=True)]
    spare = _default_headroom(captured) if headroom is None else bytes_of(headroom) if headroom else 0
    capacity = None if limit is None else limit - spare
    if limit is not None and capacity is not None and capacity <= 0:
        raise Impossible(f"the budget of {shown_bytes(limit)} is less than the headroom, {shown_bytes(spare)}")
    # The step that repeats gets the time; the others run once each, and for them any plan that fits will do.
    phases = [_solve(g, capacity, limit, spare, time_limit, seed, hasty=g is not graphs[-1]) for g in graphs]
    unplanned = sum(op.cost for op in graphs[-1].ops) / _SCALE[objective]
    return TorchPlan(phases, captured.fingerprint, captured.device, limit, spare, objective, unplanned, captured)


_SCALE = {"time": 1e9, "energy": 1e12}  # costs in a graph are whole nanoseconds or picojoules


def priced_graph(phase: Phase, costs: Sequence[Cost], objective: Objective) -> Graph:
    """Return a phase's graph with costs, and with each op's scratch memory as a result that nothing reads."""
    sizes: dict[str, int] = {}
    for group, cost in zip(phase.groups, costs, strict=True):
        if cost.results is not None:
            sizes |= dict(zip((phase.storage_names[s] for s in sorted(group.makes)), cost.results, strict=True))
    # A result may turn out larger than its shape says; never smaller, for what the shape says is what others read.
    tensors = [
        msgspec.structs.replace(t, size=max(t.size, sizes.get(t.name, 0)))
        if t.meta.get("device") == phase.device
        else t
        for t in phase.graph.tensors
    ]
    graph = Graph(phase.graph.name, phase.graph.unit, tensors)
    for op, group, cost in zip(phase.graph.ops, phase.groups, costs, strict=True):
        scratch = cost.scratch + sum(phase.record.storages[s].bytes for call in group.calls for s in call.statistics)
        writes = op.writes
        if scratch:
            graph.tensor(f"{op.name}.scratch", scratch)
            writes = (*writes, f"{op.name}.scratch")
        price = cost.seconds if objective == "time" else cost.joules
        whole = max(1, round(price * _SCALE[objective]))
        graph.op(op.name, op.reads, writes, cost=whole, once=op.once, meta=op.meta)
    return graph


def _default_headroom(captured: Captured) -> int:
    """Return what the allocator and the random generators may take beyond the tensors."""
    draws = max(sum(group.random for group in phase.groups) for phase in captured.phases)
    if captured.device.startswith("cuda"):
        # A large block is handed out whole when less than 1 MiB of it would remain, and kernels keep workspaces.
        return 64 * 2**20
    return _SMALL + (_GENERATOR * (draws + 1) if draws else 0)


def least_budget(captured: Captured, costs: Costs, *, time_limit: float = 10.0) -> tuple[int, int]:
    """Return a budget below which no plan exists, and the least one for which a plan was found, headroom included.

    >>> import torch
    >>> weight = torch.ones(3, requires_grad=True)
    >>> captured = capture(lambda x: (x * 2) * weight.detach(), torch.ones(3))
    >>> least_budget(captured, roofline(captured, "cpu"))  # x, weight and twice x, with 4096 to spare
    (4132, 4132)
    """
    graphs = [priced_graph(p, row, "time") for p, row in zip(captured.phases, costs, strict=True)]
    spare = _default_headroom(captured)
    found = [_least(Problem.of(graph, _machine(_MOST)), time_limit / len(graphs)) for graph in graphs]
    return max(least.lower for least in found) + spare, max(least.upper for least in found) + spare


def _least(problem: Problem, seconds: float) -> LeastCapacity:
    """Return the least capacity found by halving: on graphs of hundreds of ops that gets further than trying the bound first."""
    ends = time.monotonic() + seconds
    least = least_capacity(problem, 0.0)
    endless = Game.of(problem)
    best, upper, failed = endless.program, least.upper, least.lower - 1
    while failed + max(1, upper // 200) < upper and time.monotonic() < ends:
        middle = (failed + upper) // 2
        game = Game.of(problem, middle)
        for start in (best, endless.program):
            found = fit(game, start)
            for number in range(3):
                if game.measure(found).fits:
                    break
                found = improve(game, found, Recipe.of(number, problem.seed))
            if game.measure(found).fits:
                best, upper = found, int(endless.measure(found).memory.max())
                break
        else:
            failed = middle
    if upper < least.upper:
        return replace(least, upper=upper, plan=problem.plan(endless.moves(best)))
    return least


class _Enough(Exception):
    """Ends a search as soon as it has a plan."""


def _stop(search: Search) -> None:
    if search.best is not None:
        raise _Enough


def _solve(
    graph: Graph, capacity: int | None, limit: int | None, spare: int, seconds: float, seed: int, hasty: bool
) -> Plan:
    endless = Problem.of(graph, _machine(_MOST), seed=seed)
    if capacity is None:
        game = Game.of(endless)
        capacity = int(game.measure(game.program).memory.max()) if graph.ops else 1
    problem = Problem.of(graph, _machine(capacity), seed=seed)
    search = Search(problem, seconds, _stop if hasty else None)
    why = "none was found in the time given"
    try:
        solve_recompute(search)
    except _Enough:
        pass
    except Impossible as error:
        why = str(error)
    if search.best is not None:
        return finish(search)
    least = _least(endless, max(_LEAST_SECONDS, seconds))
    if least.upper <= capacity:
        return _judged(replace(least.plan, machine=problem.machine))
    raise Impossible(
        f"no plan within {shown_bytes(limit or 0)}: {why}; the least budget that is known to work is {least.upper + spare:,} "
        f"bytes ({shown_bytes(least.upper + spare)}), and less than {least.lower + spare:,} cannot: {least.reason}"
    )


def _judged(plan: Plan) -> Plan:
    judgement = check(plan)
    return replace(plan, energy=judgement.energy, status="heuristic", bound=0)


def _machine(capacity: int) -> Machine:
    return Machine("device", "byte", (Level(LEVEL, 0, 0, capacity=capacity),), operands="fastest")
