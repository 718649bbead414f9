"""`pebbler chain`: the optimal pebbling of a chain."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pebbler.cli.options import Json, PlanOutput, grouped

if TYPE_CHECKING:
    from pebbler.solver.chain import ChainSolution

__all__ = ["chain"]


@dataclass(frozen=True)
class ChainOptions:
    """The chain to solve."""

    length: Annotated[
        int | None,
        typer.Option(help="Layers: nodes N_0 .. N_LENGTH; 100, or the length of the files.", show_default=False),
    ] = None
    red: Annotated[int, typer.Option(help="Red pebbles: units of fast memory (checkpoints, with --adjoint).")] = 11
    compute: Annotated[float, typer.Option(help="Cost of a forward or backward step.")] = 1.0
    io: Annotated[float, typer.Option(help="Cost of a load or a store, per unit; inf: there is no slow memory.")] = (
        100.0
    )
    sizes: Annotated[
        Path | None, typer.Option(help="CSV with a column size, one row per node, N_0 first.", show_default=False)
    ] = None
    costs: Annotated[
        Path | None,
        typer.Option(help="CSV with columns of forward, backward, store, load, one row per node.", show_default=False),
    ] = None
    adjoint: Annotated[
        bool, typer.Option("--adjoint", help="Backward(i) needs N_i only and tapes its own step, as in revolve.")
    ] = False

    @property
    def from_files(self) -> bool:
        """Whether the chain's nodes differ, as files say."""
        return self.sizes is not None or self.costs is not None


@grouped
def chain(
    options: ChainOptions,
    output: PlanOutput = None,
    compare: Annotated[bool, typer.Option("--compare", help="Show known strategies beside the optimum.")] = False,
    curve: Annotated[
        bool,
        typer.Option("--curve", help="Show the optimum against the red pebbles and against the price of slow memory."),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the optimum against the red pebbles as .png, .svg or .pdf.", show_default=False),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page about the plan (HTML).", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Find the cheapest forward and backward pass over a chain: note 001's game.

    N_0 starts red. Compute(i) needs N_(i-1) red, Backward(i) needs N_i and N_(i+1); a store or load moves a node between fast
    and slow memory. Exit status 0: solved; 2: wrong input; 130: Ctrl-C. `-o -` writes the plan to stdout.

    Example: pebbler chain --length 100 --red 11 --io 100 -o plan.json
    """
    from pebbler.cli.interruption import hold
    from pebbler.cli.output import emit_json, progress
    from pebbler.cli.written_files import (
        WrittenFiles,
        goes_to_stdout,
        require_apart,
        require_json,
        require_page,
        require_plot,
    )
    from pebbler.errors import InputError

    curve = curve or plot is not None
    if options.from_files and (compare or curve):
        raise InputError(
            "--compare, --curve and --plot are for chains whose nodes are alike: leave out --sizes and --costs"
        )
    if options.adjoint and (compare or curve):
        raise InputError("--compare, --curve and --plot are for note 001's game: leave out --adjoint")
    for read in (options.sizes, options.costs):
        require_apart(read, output, plot, report)
    require_json(output, json)
    require_plot(plot)
    require_page(report)
    files = WrittenFiles()
    more: dict[str, Any] = {}
    answers: list[tuple[ChainSolution, dict[str, Any]]] = []

    def show() -> None:
        solved, figures = answers[0]
        files.write(output, lambda path: solved.plan().save(path))
        if json:
            emit_json(figures | {"proof": solved.proof} | more)
        else:
            _show(solved, figures, more, goes_to_stdout(output))

    def keep() -> bool:
        if not answers:
            return False
        show()
        return files.name_kept("the chain's solution without all that was asked for beside it", plot, report)

    with hold(keep), progress("solving the chain"):
        began = time.monotonic()
        solved = _solve(options)
        answers.append((solved, _figures(solved, time.monotonic() - began)))
        if compare:
            more["compare"] = _compare(solved, options)
        if curve:
            more["curve"] = _curve(solved, options)
        files.write(plot, lambda path: _draw(solved, options, more["curve"]["red"], path))
        files.write(report, lambda path: _write_page(solved, path))
    show()
    files.name()


def _write_page(solved: ChainSolution, path: Path) -> None:
    from pebbler.show.report import report

    report(solved.plan(), path)


def _draw(solved: ChainSolution, options: ChainOptions, reds: list[dict[str, Any]], path: Path) -> None:
    from pebbler.show.plots import draw_chain

    draw_chain(reds, path, title=f"chain of length {solved.chain.length}, load or store {options.io:g}")


def _solve(options: ChainOptions) -> ChainSolution:
    from pebbler.errors import InputError, blamed_on
    from pebbler.solver.chain import read_chain, solve_general, solve_uniform

    red, compute, io, adjoint = options.red, options.compute, options.io, options.adjoint
    length = options.length
    if not options.from_files:
        return solve_uniform(100 if length is None else length, red, compute, io, adjoint=adjoint)
    found = read_chain(options.sizes, options.costs, red, compute, io, adjoint=adjoint)
    if length is not None and length != found.length:
        raise InputError(f"--length {length} means {length + 1} nodes, but the files have {found.length + 1}")
    with blamed_on(" and ".join(map(str, filter(None, (options.sizes, options.costs))))):
        return solve_general(found)


def _figures(solved: ChainSolution, seconds: float) -> dict[str, Any]:
    return {
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


def _compare(solved: ChainSolution, options: ChainOptions) -> list[dict[str, Any]]:
    from pebbler.notes.note001_chain import note_program
    from pebbler.solver.chain.strategies import compare_strategies

    length = solved.chain.length
    references = {"note 001's program": note_program(length, options.red)}
    return [asdict(row) for row in compare_strategies(length, options.red, options.compute, options.io, references)]


def _curve(solved: ChainSolution, options: ChainOptions) -> dict[str, Any]:
    from pebbler.solver.chain.cost_curves import default_reds, io_curve, red_curve

    length, red, compute = solved.chain.length, options.red, options.compute
    reds = red_curve(length, default_reds(length, red), compute, options.io)
    prices = io_curve(length, red, compute) if compute > 0 else []
    return {
        "red": [asdict(point) for point in reds],
        "io": [asdict(piece) | {"transfers": piece.transfers} for piece in prices],
    }


def _show(solved: ChainSolution, figures: dict[str, Any], more: dict[str, Any], on_stderr: bool) -> None:
    from pebbler.cli.output import number, say, tell
    from pebbler.cli.output import table as print_table

    table = partial(print_table, stderr=on_stderr)
    chain = solved.chain
    names = {
        "peak_red": "peak checkpoints" if chain.adjoint else "peak red",
        "computes": "forward computes",
    }
    rows = [
        [names.get(name, name), value if isinstance(value, str) else number(value)] for name, value in figures.items()
    ]
    rows.append(["bound from", solved.proof])
    what = "checkpoints" if chain.adjoint else "red pebbles"
    table(f"chain of length {number(chain.length)} with {number(chain.fast)} {what}", ["figure", "value"], rows)
    if "compare" in more:
        table(
            "Strategies, as the referee sees them",
            ["strategy", "energy", "loads", "stores", "peak red", "legal"],
            [
                [
                    row["name"],
                    row["energy"],
                    row["loads"],
                    row["stores"],
                    row["peak_red"],
                    "no" if row["error"] else "yes",
                ]
                for row in more["compare"]
            ],
        )
        for row in more["compare"]:
            if row["error"]:
                (tell if on_stderr else say)(f"{row['name']} breaks the rules at {row['error']}")
    if "curve" in more:
        table(
            "Energy against red pebbles",
            ["red", "energy", "computes", "loads", "stores", "strategy"],
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
