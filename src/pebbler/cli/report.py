"""`pebbler report`: one page about plans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pebbler.cli.options import Json

__all__ = ["report"]


def report(
    plans: Annotated[list[Path], typer.Argument(metavar="PLAN...", help="Plan files (JSON).", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write (HTML).")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="The page's heading.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Write one self-contained page: why the plan is cheaper, memory over time, player, reuse distances, miss curve.

    The page works offline and from a file. Program order joins the plans for comparison.

    Example: pebbler report plan.json other.json -o report.html
    """
    from pebbler.cli.output import emit_json, progress, tell
    from pebbler.cli.written_files import require_apart
    from pebbler.files import require_writable
    from pebbler.notes.reference_orders import marked_orders
    from pebbler.show.report import report as write

    for plan_file in plans:
        require_apart(plan_file, output)
    require_writable(output)
    with progress("gathering what the page shows"):
        data = write(list(plans), output, title=title, references=marked_orders())
    found = [
        {
            "name": plan.name,
            "legal": plan.judgement.legal,
            "energy": plan.judgement.energy if plan.judgement.legal else None,
            "bound": plan.bound,
            "status": plan.status,
            "unverified": plan.claims.unverified,
            "void": plan.claims.void,
        }
        | ({"error": plan.judgement.error} if plan.judgement.error else {})
        for plan in data.plans
    ]
    if json:
        emit_json({"file": str(output), "plans": found})
        return
    for plan in data.plans:
        if plan.judgement.error:
            tell(f"{plan.name} is illegal: {plan.judgement.error}")
        for wrong in plan.claims.void:
            tell(f"{plan.name}: void: {wrong}")
    tell(f"open {output}")
