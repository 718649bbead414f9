"""The runs of a PyTorch step: captured and priced once, here, and carried to workers as graphs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from math import isnan
from typing import Any, Literal

import msgspec

from pebbler.errors import InputError, quoted
from pebbler.run.torch.capture.captured import capture
from pebbler.run.torch.capture.step_loading import load_step
from pebbler.run.torch.cost.costs import find_device, nearest_device, roofline
from pebbler.run.torch.plan.planner import step_problem
from pebbler.run.torch.plan.step_problem import StepProblem
from pebbler.solver.recompute.recompute_problem import program_order_peak
from pebbler.sweeps.step_task import StepData, StepTask
from pebbler.sweeps.sweep_spec import RunOptions, SweepSpec
from pebbler.sweeps.swept_graphs import SweptGraph
from pebbler.sweeps.swept_run import SweptRun
from pebbler.sweeps.value_ranges import Amount, amounts_of

__all__ = ["step_runs"]


def step_runs(graph: SweptGraph, spec: SweepSpec) -> Iterator[SweptRun]:
    """Yield the runs of a step: budgets x options.

    Ops are priced by the description of a device, by default of the one where the step's tensors are: measured times would
    be others every time, and no run could be gone on with.
    """
    assert graph.step is not None
    if spec.time_limit is None or spec.quick:
        raise InputError(f"{quoted(graph.name)}: PyTorch steps are planned within a time limit: leave out quick")
    step, arguments = load_step(graph.step)
    captured = capture(step, *arguments)
    device = find_device(spec.device) if spec.device else nearest_device(captured.device)
    costs = roofline(captured, device)
    asked = {options.objective for options in spec.options()}
    without_joules = any(isnan(cost.joules) for row in costs for cost in row)  # calibrated without an energy counter
    problems: dict[str, StepProblem] = {
        objective: step_problem(captured, costs, objective=objective, offload=spec.offload)
        for objective in ("time", "energy")
        if objective in asked or objective == "time" or not without_joules
    }
    data = {objective: StepData.of(problem) for objective, problem in problems.items()}
    peak = max(map(program_order_peak, problems["time"].graphs)) + problems["time"].headroom
    budgets: list[Amount | None] = [None] if spec.budget is None else [*amounts_of(spec.budget, "budget")]
    for budget in budgets:
        for options in spec.options():
            limit = None if budget is None else budget.units("byte", peak)
            yield _step_run(graph, device.name, data, options, None if budget is None else budget.share, limit)


def _step_run(
    graph: SweptGraph,
    device: str,
    data: dict[str, StepData],
    options: RunOptions,
    share: float | None,
    limit: int | None,
) -> SweptRun:
    other: Literal["time", "energy"] = "energy" if options.objective == "time" else "time"
    assert options.time_limit is not None
    last = data[other].last() if other in data else None
    task = StepTask(data[options.objective], last, limit, options.time_limit, options.seed)
    columns: dict[str, Any] = {
        "graph": graph.name, "unit": "byte", "machine": device, "level": "memory", "capacity": limit, "share": share,
        "capacities": "" if limit is None else f"memory={limit}", "objective": options.objective, "seed": options.seed,
        "time_limit": options.time_limit,
    }  # fmt: skip
    columns["family"] = hashlib.sha256(msgspec.msgpack.encode(data[options.objective])).hexdigest()[:32]
    return SweptRun(columns, "pebbler.sweeps.step_task:solve_step_task", task, options.time_limit)
