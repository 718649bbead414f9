"""`pebbler torch`: plan a PyTorch training step within a budget."""

from __future__ import annotations

from typing import Annotated

import typer

from pebbler.cli.options import Json, PlanOutput

__all__ = ["torch"]


def torch(
    step: Annotated[
        str, typer.Argument(help="module:function; the function returns (step, args).", show_default=False)
    ],
    budget: Annotated[
        str | None, typer.Option(help="Bytes, such as 2GiB; none: only free early.", show_default=False)
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="Price ops for this device (h200, a100, cpu) instead of measuring them.", show_default=False),
    ] = None,
    objective: Annotated[str, typer.Option(help="time or energy.")] = "time",
    kernels: Annotated[
        str, typer.Option(help="exact: the step's own kernels, same bits; compiled: fused ones, faster.")
    ] = "exact",
    offload: Annotated[
        bool | None,
        typer.Option(
            "--offload/--no-offload",
            help="Let values go to the host's memory; by default on a GPU only.",
            show_default=False,
        ),
    ] = None,
    headroom: Annotated[str | None, typer.Option(help="Bytes kept free for the allocator.", show_default=False)] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds for the search.")] = 30.0,
    output: PlanOutput = None,
    json: Json = False,
) -> None:
    """Plan a PyTorch training step so that it never holds more than a budget, and say what that costs.

    The named function takes nothing and returns the step and its arguments, as in examples/train_in_budget.py. Needs
    PyTorch, the extra "torch". Exit status 1: no plan keeps the budget, and the message says which would do.

    Example: pebbler torch examples.train_in_budget:training --budget 4MiB -o plan.json
    """
    from pebbler.cli.output import emit_json, progress, table, tell
    from pebbler.run.torch.plan.byte_sizes import shown_bytes
    from pebbler.torch import load_step, plan

    function, args = load_step(step)
    with progress(f"planning {step}"):
        made = plan(
            function, args, budget=budget, device=device, objective=objective, kernels=kernels, offload=offload,  # type: ignore[arg-type]
            headroom=headroom, time_limit=time_limit,
        )  # fmt: skip
    if output is not None:
        made.save(output)
    figures = {
        "budget": made.budget, "peak": made.peak, "headroom": made.headroom, "cost": made.cost, "unplanned": made.unplanned,
        "objective": made.objective, "kernels": made.kernels, "recomputed": made.recomputed, "offloaded": made.offloaded,
        "ops": len(made.plan.graph.ops),
        "status": made.status, "gap": made.gap, "fingerprint": made.fingerprint,
    }  # fmt: skip
    if json:
        emit_json(figures)
        return
    unit = "s" if made.objective == "time" else "J"
    table(
        f"{step}: {made.status}",
        ["figure", "value"],
        [
            ["budget", "none" if made.budget is None else shown_bytes(made.budget)],
            ["peak, headroom included", shown_bytes(made.peak)],
            [f"predicted {made.objective} of one step", f"{made.cost:.4g} {unit}"],
            ["the same without a limit", f"{made.unplanned:.4g} {unit}"],
            ["ops, and runs again", f"{len(made.plan.graph.ops):,}, {made.recomputed:,}"],
            ["to the host's memory", shown_bytes(made.offloaded)],
        ],
    )
    if output is not None:
        tell(f"wrote {output}")
