"""`pebbler cache`: cache misses of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pebbler.cli.options import Json, complete_machine

if TYPE_CHECKING:
    from pebbler.game.machine import Machine
    from pebbler.trace.cache_analysis import CacheAnalysis

__all__ = ["cache"]


def cache(
    trace: Annotated[
        Path, typer.Argument(help="A trace: NPZ, or a plain address list (.npy, .csv, .txt).", show_default=False)
    ],
    sizes: Annotated[
        str | None,
        typer.Option(
            "--sizes", help="Cache sizes in lines, as 64,16384,65536; powers of four by default.", show_default=False
        ),
    ] = None,
    line: Annotated[
        int | None, typer.Option(help="Units of memory per cache line; the machine's, or 1.", show_default=False)
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            help="Price the trace on this machine's levels by the lru rule. Addresses are in its unit unless the file gives bytes.",
            show_default=False,
            autocompletion=complete_machine,
        ),
    ] = None,
    steady: Annotated[bool, typer.Option("--steady", help="Price the trace as one round of an endless loop.")] = False,
    opt: Annotated[
        bool,
        typer.Option("--opt/--no-opt", help="Also compute Belady's optimum, which needs the whole trace in memory."),
    ] = True,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the miss curve as .png, .svg or .pdf.", show_default=False)
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page with these figures (HTML).", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Measure a trace: reuse distances, LRU and OPT misses, write-backs and energy, by tensor and op.

    Example: pebbler cache step.npz --sizes 64,16384,65536 --machine notes --steady
    """
    from pebbler.cli.output import emit_json, progress
    from pebbler.cli.written_files import WrittenFiles, require_apart, require_page, require_plot
    from pebbler.game.machine import machine as find_machine
    from pebbler.show.cache_page import save_cache_page
    from pebbler.show.plots import draw_misses
    from pebbler.trace.cache_analysis import analyse, parse_sizes

    require_apart(trace, plot, report)
    require_plot(plot)
    require_page(report)
    files = WrittenFiles()
    priced = None if machine is None else find_machine(machine)
    with progress(f"reading {trace}"):
        found = analyse(trace, parse_sizes(sizes), line=line, opt=opt, machine=priced, steady=steady)
        files.write(plot, lambda path: draw_misses(found, path, title=trace.name))
        files.write(report, lambda path: save_cache_page(found, path, trace.name, priced))
    if json:
        emit_json(found.to_dict())
    else:
        _print(found, trace, priced)
    files.name()


def _print(found: CacheAnalysis, trace: Path, priced: Machine | None) -> None:
    from pebbler.cli.output import energy, number, table
    from pebbler.game.machine import energy_unit

    rows = [
        ["accesses", number(found.accesses)],
        ["different lines", number(found.distinct)],
        ["mean LRU distance", number(found.mean_distance)],
        ["ARD (since last write)", number(found.ard)],
        ["DMD (sum of square roots)", number(found.dmd)],
    ]
    if found.energy is not None and priced is not None:
        rows.append([f"energy on {priced.name}", energy(found.energy, energy_unit(priced.unit, priced))])
    table(str(trace), ["figure", "value"], rows)
    table("Misses", ["lines", "LRU", "LRU ratio", "OPT", "write-backs"], found.miss_rows)
    middle, largest = found.middle, max(found.lru)
    for what, most in found.largest_shares(8):
        heads = [what, "accesses", f"misses at {middle:,}", f"at {largest:,}"]
        table("", heads, [[n, s.accesses, s.misses[middle], s.misses[largest]] for n, s in most])
