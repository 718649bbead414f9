"""`pebbler demo`: one step before and after, saved and on a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pebbler.cli.options import Json

__all__ = ["demo"]


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the plan, its page and the notes' figures.")] = Path(
        "out/demo"
    ),
    json: Json = False,
) -> None:
    """Plan one training step, and write the plan and a page that plays it, before and after.

    Takes seconds once the kernels are compiled. Exit status 0: all is well; 1: a figure of the notes does not reproduce.

    Example: pebbler demo --out out/demo
    """
    from pebbler.cli.output import emit_json, energy, progress, say, table, tell
    from pebbler.notes.demo import demonstrate

    with progress("demo") as update:
        shown = demonstrate(out, update)
    before, after, bound = shown.before, shown.after, shown.plan.bound
    failed = [f"{name}: {row.name}" for name, found in shown.experiments.items() for row in found.rows if not row.ok]
    files = {"plan": str(shown.plan_file), "page": str(shown.page)}
    if json:
        figures = {"before": before.energy, "after": after.energy, "bound": bound, "failed": failed}
        emit_json(figures | files)
    else:
        unit = shown.plan.energy_unit
        rows = [
            [f"spent in {level}", energy(before.levels[level], unit), energy(after.levels[level], unit)]
            for level in shown.plan.machine.names
            if before.levels[level] or after.levels[level]
        ]
        rows.append(["one training step", energy(before.energy, unit), energy(after.energy, unit)])
        rows.append(["no order or tiling needs less than", "", energy(bound, unit)])
        table(f"The same training step, {shown.times_less:.2f}x cheaper", ["", "program order", "the plan"], rows)
        far = shown.results.largest_difference
        alike = "bit for bit" if shown.results.identical or far == 0 else f"relative differences up to {far:.0e}"
        say(f"Both compute the same: {alike}.")
    for one in failed:
        tell(f"does not reproduce: {one}")
    tell(f"the plan: {shown.plan_file}")
    tell(f"to look at it: open {shown.page}")
    raise typer.Exit(1 if failed else 0)
