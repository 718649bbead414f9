"""`pebbler graph`: a description of a graph, or the graph in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pebbler.cli.options import GraphName, Json

__all__ = ["graph"]


def graph(
    graph: GraphName,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write the graph as .json, .dot or .svg; -: JSON to stdout.", show_default=False
        ),
    ] = None,
    hazards: Annotated[bool, typer.Option("--hazards", help="List every hazard and why it exists.")] = False,
    json: Json = False,
) -> None:
    """Describe a graph: its tensors, ops, hazards and how many orders are legal.

    Example: pebbler graph note-mlp --hazards
    """
    from pebbler.cli.output import emit_json, number, say, table
    from pebbler.cli.written_files import WrittenFiles, goes_to_stdout, require_apart, require_json
    from pebbler.errors import quoted
    from pebbler.game.summary import summarise
    from pebbler.show.drawing import save_graph
    from pebbler.workloads import load

    require_apart(graph, output)
    require_json(output, json, ".json", ".dot", ".svg", what="a graph")
    loaded = load(graph)
    about = summarise(loaded)
    found = loaded.dataflow.hazards() if hazards else []
    files = WrittenFiles()
    files.write(output, lambda path: loaded.save(path) if goes_to_stdout(path) else save_graph(loaded, path))
    if json:
        reasons = [
            {"kind": h.kind, "before": h.before, "after": h.after, "tensor": h.tensor, "why": h.why()} for h in found
        ]
        emit_json(about.to_dict() | ({"hazards": reasons} if hazards else {}))
    elif not goes_to_stdout(output):
        counts = [[kind, count, number(units)] for kind, (count, units) in about.kinds.items()]
        title = f"{quoted(loaded.name)}: {about.ops:,} ops, {about.tensors:,} tensors"
        table(title, ["kind", "tensors", quoted(loaded.unit)], counts)
        orders = [
            number(count) if count is not None else "too many to count"
            for count in (about.orders, about.orders_without_war)
        ]
        hazard_counts = ", ".join(f"{count:,} {kind}" for kind, count in about.hazards.items())
        table("", ["hazards", "legal orders", "without WAR"], [[hazard_counts, *orders]])
        for hazard in found:
            say(f"{hazard.kind} {hazard.why()}")
    files.name()
