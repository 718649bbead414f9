"""`pebbler play`: a page for playing the pebble game by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pebbler.cli.options import Json, complete_machine, complete_workload

__all__ = ["play"]


def play(
    graph: Annotated[
        str | None,
        typer.Argument(
            help="A graph or plan file (JSON) or a built-in workload; without one, puzzles from three nodes to note 001's chain.",
            show_default=False,
            autocompletion=complete_workload,
        ),
    ] = None,
    red: Annotated[
        int | None,
        typer.Option(help="Red pebbles: units of fast memory. The fewest possible unless given.", show_default=False),
    ] = None,
    io: Annotated[
        float | None, typer.Option(help="Cost of a load or a store, per unit; 100 by default.", show_default=False)
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            help="A machine of two levels that gives both (TOML file or built-in).",
            show_default=False,
            autocompletion=complete_machine,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write (HTML).")] = Path("play.html"),
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    json: Json = False,
) -> None:
    """Write a page on which the red-blue pebble game is played by hand, with hints from an optimal plan.

    The page works offline and from a file. Exit status 0: written; 1: the game cannot be played with so few pebbles; 2: wrong
    input.

    Example: pebbler play chain:length=8 --red 4 --io 10 -o play.html
    """
    from pebbler.cli.output import emit_json, number, progress, tell
    from pebbler.cli.written_files import require_apart
    from pebbler.files import require_writable
    from pebbler.show.play import play as write

    if graph is not None:
        require_apart(Path(graph), output)
    require_writable(output)
    with progress("solving the games"):
        made = write(output, graph, red=red, io=io, machine=machine)
    if json:
        levels = [
            {"name": level.name, "title": level.title, "red": level.capacity[0], "optimum": level.optimum}
            for level in made.levels
        ]
        emit_json({"file": str(output), "levels": levels})
    elif graph is not None:
        best = made.levels[0].optimum
        tell("optimum: not found in time" if best is None else f"optimum: {number(best)}")
    tell(f"open {output}")
    if open_page:
        import webbrowser

        webbrowser.open(output.absolute().as_uri())
