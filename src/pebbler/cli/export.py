"""`pebbler export`: a plan for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pebbler.cli.options import Json, PlanFile

if TYPE_CHECKING:
    from pebbler.extras.cells.cell_program import CellProgram

__all__ = ["export"]


def export(
    plan: PlanFile,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A trace (.json) or a table (.csv, .parquet).", show_default=False),
    ] = None,
    ir: Annotated[
        Path | None,
        typer.Option("--ir", help="A program on numbered cells, of single elements (text).", show_default=False),
    ] = None,
    submission: Annotated[
        Path | None,
        typer.Option(
            "--submission",
            help="A folder for such a program of a matrix product, a verifier and a page. The plan may be a program (.ir).",
            show_default=False,
        ),
    ] = None,
    table: Annotated[str, typer.Option(help="Which table: moves, tensors, ops or levels.")] = "moves",
    clock: Annotated[str, typer.Option(help="Time in a trace: move, or energy.")] = "move",
    json: Json = False,
) -> None:
    """Write a plan as a trace for Perfetto or chrome://tracing, as one of its tables, or as a program on numbered cells.

    Example: pebbler export plan.json -o plan.trace.json
    """
    from pebbler.cli.output import emit_json, tell
    from pebbler.cli.written_files import require_apart
    from pebbler.errors import InputError
    from pebbler.files import require_writable, write_bytes
    from pebbler.show.export import export as write

    if output is None and ir is None and submission is None:
        raise InputError(
            "say what to write: -o FILE for a trace or a table, --ir FILE for a program, --submission DIR for a public table"
        )
    require_apart(plan, output, ir)
    files = [path for path in (output, ir) if path is not None]
    for path in files:
        require_writable(path)
    if output is not None:
        write(plan, output, table=table, clock=clock)  # type: ignore[arg-type]
    if ir is not None:
        write_bytes(ir, _program(plan).text().encode())
    submitted = [] if submission is None else _write_submission(plan, submission)
    if json:
        named = {"file": str(files[0])} if len(files) == 1 else {"file": str(output), "ir": str(ir)} if files else {}
        emit_json(named | ({"submission": [str(path) for path in submitted]} if submitted else {}))
        return
    files += submitted
    for path in files:
        tell(f"wrote {path}" + (": open it at ui.perfetto.dev" if path.suffix.lower() == ".json" else ""))


def _program(plan: Path) -> CellProgram:
    from pebbler.errors import InputError
    from pebbler.extras.cells.cell_program import CellProgram
    from pebbler.extras.cells.cell_writer import cell_program
    from pebbler.game.plan import Plan

    if plan.suffix == ".ir":
        return CellProgram.load(plan)
    loaded = Plan.load("/dev/stdin" if str(plan) == "-" else plan)
    try:
        return cell_program(loaded)
    except InputError as error:
        raise InputError(f"{plan}: {error}") from None


def _write_submission(plan: Path, folder: Path) -> list[Path]:
    from pebbler.errors import InputError
    from pebbler.extras.cells.submission import write_submission

    program = _program(plan)
    try:
        return write_submission(program, folder)
    except InputError as error:
        raise InputError(f"{plan}: {error}") from None
