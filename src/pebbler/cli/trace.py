"""`pebbler trace`: the memory accesses of a plan or graph, as a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from pebbler.cli.options import Json, complete_workload

__all__ = ["trace"]


def trace(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="PLAN|GRAPH",
            help="A plan, a graph file or a built-in workload.",
            show_default=False,
            autocompletion=complete_workload,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The trace file to write (NPZ).", show_default=False)],
    allocator: Annotated[
        str | None,
        typer.Option(help="Allocator of addresses, own or reuse; for a plan, that of its machine.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Write the accesses of a plan (or of a graph in program order), unit by unit.

    Example: pebbler trace mlp:n=20,hidden=1000 -o step.npz
    """
    from pebbler.cli.output import emit_json, progress, tell
    from pebbler.cli.written_files import require_apart
    from pebbler.errors import InputError
    from pebbler.files import require_writable
    from pebbler.trace.plan_trace import trace_plan
    from pebbler.trace.traces import Trace
    from pebbler.workloads import load_subject

    if output.suffix.lower() != ".npz":
        raise InputError(f"{output}: a trace file must end in .npz")
    require_apart(subject, output)
    require_writable(output)
    count = 0
    with progress(f"tracing {subject}") as update:

        def counted() -> Iterator[Trace]:
            nonlocal count
            for piece in trace_plan(load_subject(subject), allocator):
                count += len(piece)
                update(f"tracing {subject}: {count:,} accesses", None)
                yield piece

        Trace.save_chunks(output, counted())
    if json:
        emit_json({"accesses": count, "file": str(output)})
    else:
        tell(f"wrote {output}: {count:,} accesses")
