"""`pebbler torch`: plan a PyTorch training step within a budget."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pebbler.cli.options import Json, PlanOutput

if TYPE_CHECKING:
    from pebbler.solver.problem import Search
    from pebbler.torch import TorchPlan

__all__ = ["torch"]

_GRACE = 2.0  # seconds in which planning may end with what it has: a plan of every phase, judged


def torch(
    step: Annotated[
        str,
        typer.Argument(
            help="module:function or file.py:function; the function returns (step, args).", show_default=False
        ),
    ],
    budget: Annotated[
        str | None,
        typer.Option(
            help="Bytes, such as 2GiB, or a share, such as 50%; without it, values are only freed early.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="Price ops for h200, a100, cpu or a calibrated file; do not measure.", show_default=False),
    ] = None,
    objective: Annotated[str, typer.Option(help="time or energy.")] = "time",
    kernels: Annotated[
        str, typer.Option(help="exact: the step's own kernels, same bits; compiled: fused kernels, faster.")
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
    report: Annotated[Path | None, typer.Option(help="Write a page about the plan (HTML).", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Plan a PyTorch training step that never holds more than a budget, and print the extra time.

    The named function takes nothing and returns the step and its arguments, as in examples/train_in_budget.py. Needs
    PyTorch, the extra "torch". Exit status 1: no plan keeps the budget, and the message says which would do;
    130: Ctrl-C, and the best plan so far, where there is one, is printed and saved.

    Example: pebbler torch examples.train_in_budget:training --budget 4MiB -o plan.json --report step.html
    """
    from pebbler.cli.interruption import hold
    from pebbler.cli.written_files import WrittenFiles, goes_to_stdout, require_apart, require_json, require_page
    from pebbler.game.byte_sizes import budget_of

    require_json(output, json)
    require_page(report)
    require_apart(None, output, report)
    if budget is not None:
        budget_of(budget)  # before PyTorch is loaded and the step captured, which takes long
    files, work = WrittenFiles(), _Planning(step, time_limit)

    def show(made: TorchPlan) -> None:
        files.write(output, made.save)
        (_print_json if json else _print_table)(step, made, goes_to_stdout(output))

    def keep() -> bool:
        if work.found is None:
            return False
        show(work.found)
        return files.name_kept("the best plan so far", report)

    with hold(keep, work.stopped.set, grace=_GRACE):
        made = work.run(budget, headroom, device, objective, kernels, offload)
        if report is not None and not work.stopped.is_set():
            files.write(report, lambda path: _write_page(step, made, path))
    show(made)
    files.name()


class _Planning:
    """A step being planned, which Ctrl-C may stop."""

    def __init__(self, step: str, time_limit: float) -> None:
        self.step, self.time_limit = step, time_limit
        self.found: TorchPlan | None = None
        self.stopped = threading.Event()

    def run(
        self,
        budget: str | None,
        headroom: str | None,
        device: str | None,
        objective: Any,
        kernels: Any,
        offload: bool | None,
    ) -> TorchPlan:
        """Capture, price and plan the step, and show how it goes."""
        from pebbler.cli.output import progress
        from pebbler.run.torch.plan.planner import capture_with_costs, plan_captured, require_options
        from pebbler.run.torch.plan.torch_plan import SCALE
        from pebbler.torch import load_step

        require_options(budget, headroom, device, objective)
        compiling = ", and compiling its kernels" if kernels == "compiled" else ""
        with progress(f"recording {self.step}{compiling}") as update:

            def tell(search: Search) -> None:
                best = f"best {_cost(search.energy / SCALE[objective], objective)}"
                update(f"planning {self.step}: {'no plan yet' if search.best is None else best}", search.fraction)

            function, args = load_step(self.step)
            captured, costs = capture_with_costs(function, args, device=device, objective=objective, kernels=kernels)
            self.found = plan_captured(
                captured, costs, budget=budget, objective=objective, offload=offload, headroom=headroom,
                time_limit=self.time_limit, report=tell, stop=self.stopped.is_set,
            )  # fmt: skip
        return self.found


def _write_page(step: str, made: TorchPlan, path: Path) -> None:
    from pebbler.show.report import report as write

    write(made, path, names=["plan"], title=step)


def _print_json(step: str, made: TorchPlan, on_stderr: bool) -> None:
    from pebbler.cli.output import emit_json

    figures = {
        "headline": made.headline, "budget": made.budget, "peak": made.peak, "unplanned_peak": made.unplanned_peak,
        "headroom": made.headroom, "cost": made.cost, "unplanned": made.unplanned,
        "objective": made.objective, "joules": made.joules_from, "kernels": made.kernels,
        "recomputed": made.recomputed, "offloaded": made.offloaded,
        "ops": len(made.plan.graph.ops),
        "status": made.status, "gap": made.gap, "fingerprint": made.fingerprint,
    }  # fmt: skip
    emit_json(figures | ({"cut_off": True} if made.plan.meta.get("cut_off") else {}))


def _print_table(step: str, made: TorchPlan, on_stderr: bool) -> None:
    from pebbler.cli.output import table
    from pebbler.game.byte_sizes import shown_bytes

    table(
        f"{step}: {made.headline}",
        ["figure", "value"],
        [
            ["budget", "none" if made.budget is None else shown_bytes(made.budget)],
            ["peak, headroom included", shown_bytes(made.peak)],
            ["the same without a limit", shown_bytes(made.unplanned_peak)],
            [f"predicted {made.objective} of one step{_source(made)}", _cost(made.cost, made.objective)],
            ["the same without a limit", _cost(made.unplanned, made.objective)],
            ["proven", _proven(made)],
            ["ops", f"{len(made.plan.graph.ops):,} ops, {made.recomputed:,} recomputed"],
            ["to the host's memory", shown_bytes(made.offloaded)],
        ],
        stderr=on_stderr,
    )


def _proven(made: TorchPlan) -> str:
    """Return the proven statement about the cost: optimality, or the largest possible gap."""
    known = made.status if made.gap is None or made.status == "optimal" else f"at most {made.gap:.1%} above the optimum"
    return f"{known}{', cut off' if made.plan.meta.get('cut_off') else ''}"


def _source(made: TorchPlan) -> str:
    return "" if made.joules_from is None else f", joules {made.joules_from}"


def _cost(cost: float, objective: str) -> str:
    return f"{cost:.4g} {'s' if objective == 'time' else 'J'}"
