"""`pebbler chain`: the optimal pebbling of a chain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pebbler.solver.chain import Chain, ChainSolution

__all__ = ["chain"]


def chain(
    length: Annotated[
        int | None,
        typer.Option(help="Layers: nodes N_0 .. N_LENGTH. 100 unless a file says otherwise.", show_default=False),
    ] = None,
    red: Annotated[int, typer.Option(help="Red pebbles: units of fast memory (checkpoints, with --adjoint).")] = 11,
    compute: Annotated[float, typer.Option(help="Cost of a forward or backward step.")] = 1.0,
    io: Annotated[
        float, typer.Option(help="Cost of a load or a store, per unit; inf: there is no slow memory.")
    ] = 100.0,
    sizes: Annotated[
        Path | None, typer.Option(help="CSV with a column size, one row per node, N_0 first.", show_default=False)
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(help="CSV with columns of forward, backward, store, load, one row per node.", show_default=False),
    ] = None,
    adjoint: Annotated[
        bool, typer.Option("--adjoint", help="Backward(i) needs N_i only and tapes its own step, as in revolve.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the plan (JSON).", show_default=False)
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Show known strategies beside the optimum.")] = False,
    curve: Annotated[
        bool,
        typer.Option("--curve", help="Show the optimum against the red pebbles and against the price of slow memory."),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the optimum against the red pebbles as .png, .svg or .pdf.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find the cheapest forward and backward pass over a chain: note 001's game.

    N_0 starts red. Compute(i) needs N_(i-1) red, Backward(i) needs N_i and N_(i+1); a store or load moves a node between fast
    and slow memory. Exit status 0: solved; 2: wrong input.

    Example: pebbler chain --length 100 --red 11 --io 100 -o plan.json
    """
    import time

    from pebbler.cli.output import emit_json, tell
    from pebbler.errors import InputError
    from pebbler.solver.chain import read_chain, solve_general, solve_uniform

    began = time.monotonic()
    curve = curve or plot is not None
    if sizes is None and costs is None:
        solved = solve_uniform(100 if length is None else length, red, compute, io, adjoint=adjoint)
    else:
        if compare or curve:
            raise InputError(
                "--compare, --curve and --plot are for chains whose nodes are alike: leave out --sizes and --costs"
            )
        general = read_chain(sizes, costs, red, compute, io, adjoint=adjoint)
        if length is not None and length != general.length:
            raise InputError(f"--length {length} means {length + 1} nodes, but the files have {general.length + 1}")
        solved = solve_general(general)
    seconds = time.monotonic() - began
    if adjoint and (compare or curve):
        raise InputError("--compare, --curve and --plot are for note 001's game: leave out --adjoint")
    if output is not None:
        solved.plan().save(output)
    more: dict[str, Any] = {}
    if compare:
        more["compare"] = _compare(solved, red, compute, io)
    if curve:
        more["curve"] = _curve(solved, red, compute, io)
    if plot is not None:
        from pebbler.show.plots import draw_chain

        draw_chain(more["curve"]["red"], plot, title=f"chain of length {solved.chain.length}, load or store {io:g}")
    figures = {
        "energy": solved.energy,
        "bound": solved.bound,
        "status": solved.status,
        "moves": solved.count if solved.count >= 0 else None,
        "computes": solved.computes,
        "loads": solved.loads,
        "stores": solved.stores,
        "peak_red": solved.peak_red,
        "seconds": round(seconds, 3),
    }
    if json:
        emit_json(figures | {"proof": solved.proof} | more)
    else:
        _show(solved, figures, more)
    if output is not None:
        tell(f"wrote {output}")


def _compare(solved: ChainSolution, red: int, compute: float, io: float) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from pebbler.notes.note001_chain import note_program
    from pebbler.solver.chain.strategies import compare_strategies

    length = solved.chain.length
    references = {"note 001's program": note_program(length, red)}
    return [asdict(row) for row in compare_strategies(length, red, compute, io, references)]


def _curve(solved: ChainSolution, red: int, compute: float, io: float) -> dict[str, Any]:
    from dataclasses import asdict

    from pebbler.solver.chain.cost_curves import default_reds, io_curve, red_curve

    length = solved.chain.length
    reds = red_curve(length, default_reds(length, red), compute, io)
    prices = io_curve(length, red, compute) if compute > 0 else []
    return {
        "red": [asdict(point) for point in reds],
        "io": [asdict(piece) | {"transfers": piece.transfers} for piece in prices],
    }


def _show(solved: ChainSolution, figures: dict[str, Any], more: dict[str, Any]) -> None:
    from pebbler.cli.output import number, table

    chain: Chain = solved.chain
    names = {"peak_red": "peak checkpoints" if chain.adjoint else "peak red"}
    rows = [
        [names.get(name, name), value if isinstance(value, str) else number(value)] for name, value in figures.items()
    ]
    rows.append(["bound from", solved.proof])
    what = "checkpoints" if chain.adjoint else "red pebbles"
    table(f"chain of length {number(chain.length)} with {number(chain.fast)} {what}", ["figure", "value"], rows)
    if "compare" in more:
        table(
            "Strategies, as the referee sees them",
            ["strategy", "energy", "loads", "stores", "peak red", "breaks"],
            [
                [row["name"], row["energy"], row["loads"], row["stores"], row["peak_red"], row["error"] or "nothing"]
                for row in more["compare"]
            ],
        )
    if "curve" in more:
        table(
            "Energy against red pebbles",
            ["red", "energy", "computes", "loads", "stores", "lives from"],
            [
                [row["red"], row["energy"], row["computes"], row["loads"], row["stores"], row["strategy"]]
                for row in more["curve"]["red"]
            ],
        )
        table(
            f"Energy against the price of a load or store (io), {number(chain.fast)} red",
            ["io from", "to", "energy", "loads", "stores"],
            [
                [
                    number(row["low"]),
                    "-" if row["high"] == float("inf") else number(row["high"]),
                    f"{number(row['fixed'])} + {row['transfers']} io" if row["transfers"] else number(row["fixed"]),
                    row["loads"],
                    row["stores"],
                ]
                for row in more["curve"]["io"]
            ],
        )
