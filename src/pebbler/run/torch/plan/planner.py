"""Planning a captured step within a budget: capture, costs, and one game per phase, solved and judged like any other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from torch._subclasses.fake_tensor import FakeTensor

from pebbler.errors import InputError, quoted
from pebbler.game.byte_sizes import budget_of, bytes_of, bytes_within
from pebbler.game.graph import Graph
from pebbler.referee.judgement import check
from pebbler.run.torch.capture.captured import Captured, capture
from pebbler.run.torch.capture.phases import Phase
from pebbler.run.torch.cost.costs import Cost, Costs, Device, Link, find_device, nearest_device, roofline
from pebbler.run.torch.cost.profiling import profile_for
from pebbler.run.torch.fuse.fusion import CapturedWithKernels, fuse
from pebbler.run.torch.plan.host_link import MEMORY
from pebbler.run.torch.plan.launch_fusion import plan_launches
from pebbler.run.torch.plan.phase_search import least_units
from pebbler.run.torch.plan.step_problem import StepProblem
from pebbler.run.torch.plan.torch_plan import SCALE, KernelChoice, Objective, TorchPlan
from pebbler.solver.problem import Search
from pebbler.solver.recompute.recompute_problem import program_order_peak

__all__ = [
    "capture_with_costs",
    "default_headroom",
    "least_budget",
    "plan",
    "plan_captured",
    "priced_graph",
    "require_options",
    "step_problem",
]

_SMALL = 4096  # bytes for numbers that kernels wrap in tensors
_MOST_WHOLE = 2**48  # pJ: a step of 281 J; sums of whole costs of a longer one would not be exact for all plans
_GENERATOR = 5056  # bytes of a CPU generator's state, kept for every draw that may be repeated


def plan(
    step: Callable[..., Any],
    args: Sequence[Any],
    *,
    keywords: Mapping[str, Any] | None = None,
    budget: str | int | None = None,
    device: str | Device | None = None,
    objective: Objective = "time",
    kernels: KernelChoice = "exact",
    offload: bool | None = None,
    headroom: str | int | None = None,
    time_limit: float = 30.0,
    seed: int = 0,
    report: Callable[[Search], None] | None = None,
) -> TorchPlan:
    """Return the cheapest plan found for a training step that holds at most `budget` bytes at any time.

    A budget is bytes (`"2GiB"`), or a share of what the step holds without a limit (`"50%"`).

    Costs are measured on the device where the step's tensors are, or, for `device="h200"`, a file of `pebbler calibrate` and the
    like, and for fake tensors, come from a roofline. For `objective="energy"` joules are those of the device's energy counter where
    it has one; `plan.joules_from` says so. With `kernels="compiled"` neighbouring operators are fused and compiled, and the plan is
    made for those kernels. With `offload` values may go to the host's memory and come back: by default on CUDA and for described
    GPUs, not on a CPU. Without a budget the plan is program order with every value freed after its last use. Raises `Impossible`
    with the least budget that works when this one does not. `keywords` are keyword arguments of the step; `report` is called with
    the running search after every change.

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
    require_options(budget, headroom)
    captured, costs = capture_with_costs(
        step, args, keywords=keywords, device=device, objective=objective, kernels=kernels
    )
    return plan_captured(
        captured, costs, budget=budget, objective=objective, offload=offload, headroom=headroom, time_limit=time_limit, seed=seed,
        report=report,
    )  # fmt: skip


def capture_with_costs(
    step: Callable[..., Any],
    args: Sequence[Any],
    *,
    keywords: Mapping[str, Any] | None = None,
    device: str | Device | None = None,
    objective: Objective = "time",
    kernels: KernelChoice = "exact",
) -> tuple[Captured, Costs]:
    """Return a captured step, fused for compiled kernels, and the costs of its ops, measured or described; see `plan`."""
    if kernels not in ("exact", "compiled"):
        raise InputError(f"kernels must be exact or compiled, got {quoted(kernels)}")
    require_options(device=device, objective=objective)
    captured = capture(step, *args, keywords=keywords)
    if kernels == "compiled":
        captured = fuse(captured)
    fake = any(isinstance(x, FakeTensor) for x in (*captured.state.leaves, *captured.state.tensors))
    if device is None and not fake:
        return captured, profile_for(captured, objective)
    return captured, roofline(captured, device or nearest_device(captured.device))


def plan_captured(
    captured: Captured,
    costs: Costs,
    *,
    budget: str | int | None = None,
    objective: Objective = "time",
    offload: bool | None = None,
    headroom: str | int | None = None,
    time_limit: float = 30.0,
    seed: int = 0,
    report: Callable[[Search], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> TorchPlan:
    """Return the cheapest plan found for a captured step with known costs; see `plan`.

    `stop` is asked again and again whether to end with the best plan so far.
    """
    problem = step_problem(captured, costs, budget=budget, objective=objective, offload=offload, headroom=headroom)
    made = replace(problem.solve(time_limit, seed, report, stop), captured=captured)
    if not isinstance(captured, CapturedWithKernels):
        return made
    if costs.price is None:
        return replace(made, kernels="compiled")
    room = check(made.plan).peak[MEMORY] if problem.capacity is None else problem.capacity
    last, launches, launch_peak = plan_launches(captured.phases[-1], made.plan, MEMORY, costs[-1], costs.price, room)
    return replace(
        made, phases=[*made.phases[:-1], last], kernels="compiled", launches=tuple(map(tuple, launches)),
        launch_peak=launch_peak,
    )  # fmt: skip


def step_problem(
    captured: Captured,
    costs: Costs,
    *,
    budget: str | int | None = None,
    objective: Objective = "time",
    offload: bool | None = None,
    headroom: str | int | None = None,
) -> StepProblem:
    """Return a captured step with known costs as a problem of plain data."""
    require_options(budget, headroom, objective=objective)
    if objective == "energy" and any(math.isnan(cost.joules) for row in costs for cost in row):
        raise InputError("these costs have no joules: the device was calibrated without an energy counter")
    graphs = [priced_graph(p, row, objective) for p, row in zip(captured.phases, costs, strict=True)]
    headroom_bytes = default_headroom(captured, costs) if headroom is None else bytes_of(headroom) if headroom else 0
    own = _link(captured, costs)
    whole = max(map(program_order_peak, graphs)) + headroom_bytes
    limit = None if budget is None else bytes_within(budget_of(budget), whole)
    link = own.in_unit(SCALE[objective], objective) if _may_offload(captured, costs, offload) else None
    made = StepProblem(
        graphs, limit, headroom_bytes, objective, link, captured.fingerprint, captured.device, costs.energy is not None
    )
    if objective == "time":
        return made
    last = [priced_graph(captured.phases[-1], costs[-1], "time")]
    timed = replace(made, graphs=last, objective="time", link=link and own.in_unit(SCALE["time"], "time"))
    return replace(made, timed=timed, static_watts=costs.static_watts)


def require_options(
    budget: str | int | None = None,
    headroom: str | int | None = None,
    device: str | Device | None = None,
    objective: str = "time",
) -> None:
    """Refuse options with which no step can be planned, before anything is captured or measured."""
    if budget is not None:
        budget_of(budget)
    if headroom:
        bytes_of(headroom)
    if device is not None:
        find_device(device)
    if objective not in ("time", "energy"):
        raise InputError(f"objective must be time or energy, got {quoted(objective)}")


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
    prices = [(cost.seconds if objective == "time" else cost.joules) * SCALE[objective] for cost in costs]
    whole = sum(prices) < _MOST_WHOLE
    for op, group, cost, price in zip(phase.graph.ops, phase.groups, costs, prices, strict=True):
        scratch = cost.scratch + sum(phase.record.storages[s].bytes for call in group.calls for s in call.statistics)
        writes = op.writes
        if scratch:
            graph.tensor(f"{op.name}.scratch", scratch)
            writes = (*writes, f"{op.name}.scratch")
        units = max(1, round(price)) if whole else price
        meta = op.meta | {"compiled": True} if cost.compiled else op.meta
        graph.op(op.name, op.reads, writes, cost=units, once=op.once, meta=meta)
    return graph


def _link(captured: Captured, costs: Costs) -> Link:
    return costs.link or nearest_device(captured.device).host_link


def _may_offload(captured: Captured, costs: Costs, asked: bool | None) -> bool:
    """Whether values may go to the host: as asked, by default where a link leads to another memory."""
    return (captured.device.startswith("cuda") or _link(captured, costs).overlap) if asked is None else asked


def default_headroom(captured: Captured, costs: Costs) -> int:
    """Return the bytes that the allocator and the random generators may take beyond the tensors."""
    draws = max(sum(group.random for group in phase.groups) for phase in captured.phases)
    if captured.device.startswith("cuda"):
        # A large block is handed out whole when less than 1 MiB of it would remain, and libraries keep workspaces for good.
        return max(64 * 2**20, costs.foreign + 16 * 2**20)
    return _SMALL + (_GENERATOR * (draws + 1) if draws else 0)


def least_budget(
    captured: Captured, costs: Costs, *, offload: bool | None = None, time_limit: float = 10.0
) -> tuple[int, int]:
    """Return a budget below which no plan exists, and the least one for which a plan was found, headroom included.

    The second one works when `plan` is asked for it, with any time limit, seed and objective; more time may find a lower one. With
    `offload` (the default is that of `plan`) the two are the same: what one op needs beside the state and the batch.

    >>> import torch
    >>> weight = torch.ones(3, requires_grad=True)
    >>> captured = capture(lambda x: (x * 2) * weight.detach(), torch.ones(3))
    >>> least_budget(captured, roofline(captured, "cpu"))  # x, weight and twice x, with 4096 of headroom
    (4132, 4132)
    """
    graphs = [priced_graph(p, row, "time") for p, row in zip(captured.phases, costs, strict=True)]
    headroom_bytes = default_headroom(captured, costs)
    away = _may_offload(captured, costs, offload)
    lower, upper = least_units(graphs, time_limit, offload=away)
    return lower + headroom_bytes, upper + headroom_bytes
