"""`pebbler export`: a plan for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pebbler.cli.options import Json, PlanFile

__all__ = ["export"]


def export(
    plan: PlanFile,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="A trace (.json) or a table (.csv, .parquet).", show_default=False),
    ],
    table: Annotated[str, typer.Option(help="Which table: moves, tensors, ops or levels.")] = "moves",
    clock: Annotated[str, typer.Option(help="Time in a trace: move, or energy.")] = "move",
    json: Json = False,
) -> None:
    """Write a plan as a trace for Perfetto or chrome://tracing, or one of its tables.

    Example: pebbler export plan.json -o plan.trace.json
    """
    from pebbler.cli.output import emit_json, tell
    from pebbler.files import require_writable
    from pebbler.show.export import export as write

    require_writable(output)
    write(plan, output, table=table, clock=clock)  # type: ignore[arg-type]
    if json:
        emit_json({"file": str(output)})
    else:
        tell(f"wrote {output}" + (": open it at ui.perfetto.dev" if output.suffix.lower() == ".json" else ""))
