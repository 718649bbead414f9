"""Plots for papers in one colour-blind-safe style. The file name extension selects the format."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pebbler.errors import InputError, one_line
from pebbler.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pebbler.game.plan import Plan
    from pebbler.trace.cache_analysis import CacheAnalysis

__all__ = ["PALETTE", "draw_chain", "draw_misses", "draw_steps", "new_figure", "new_figures", "save_figure"]

# Okabe and Ito's colours, which stay apart for colour-blind readers; lines differ by marker and dash as well.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
FORMATS = (".png", ".svg", ".pdf")
_SETTINGS: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "pebbler",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
}


def new_figure(title: str, x_label: str, y_label: str, size: tuple[float, float] = (6.4, 4.0)) -> tuple[Figure, Any]:
    """Return an empty figure in the house style, of a size in inches, and its axes."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        axes.set_prop_cycle(color=PALETTE)
        axes.set_title(one_line(title), parse_math=False)  # it holds names of graphs and files
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
    return figure, axes


def new_figures(count: int, columns: int) -> tuple[Figure, list[Any]]:
    """Return an empty figure of several panels in the house style, and their axes."""
    import matplotlib
    from matplotlib.figure import Figure

    rows = -(-count // columns)
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(3.2 * columns, 0.5 + 2.6 * rows), layout="constrained")
        panels = [figure.add_subplot(rows, columns, i + 1) for i in range(count)]
        for axes in panels:
            axes.set_prop_cycle(color=PALETTE)
    return figure, panels


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as .png, .svg or .pdf, whole or not at all; the same figure gives the same bytes."""
    import matplotlib

    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"{path}: a plot is written as {', '.join(FORMATS)}")
    buffer = io.BytesIO()
    dates = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[suffix]
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(buffer, format=suffix[1:], dpi=160, metadata=dates)
    write_bytes(path, buffer.getvalue())


def draw_misses(found: CacheAnalysis, path: str | Path, title: str, size: tuple[float, float] = (6.4, 4.0)) -> None:
    """Draw the miss ratio against the cache size: LRU at every size, OPT at the sizes analysed."""
    import numpy as np

    across = "cache size (units)" if found.line == 1 else f"cache size (lines of {found.line} units)"
    figure, axes = new_figure(title, across, "miss ratio", size)
    hits = found.profile.cdf()
    sizes = np.arange(1, len(hits))
    changes = np.flatnonzero(np.diff(hits[1:], prepend=-1.0)) if len(sizes) else sizes
    if len(changes):
        axes.step(
            np.append(sizes[changes], len(hits)), 1 - np.append(hits[1:][changes], hits[-1]), where="post", label="LRU"
        )
    if found.opt is not None:
        points: Sequence[tuple[int, int]] = sorted(found.opt.items())
        ratios = [count / found.accesses for _, count in points]
        axes.plot([size for size, _ in points], ratios, "D", color=PALETTE[1], label="OPT (Belady)")
    axes.axhline(found.cold / found.accesses, color="#777777", linestyle=":", label="first touches")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda size, _: f"{size:,.0f}")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    save_figure(figure, path)


def draw_chain(points: Sequence[Mapping[str, Any]], path: str | Path, title: str) -> None:
    """Draw the optimum against the number of red pebbles, one marker per strategy."""
    figure, axes = new_figure(title, "red pebbles (units of fast memory)", "least energy (units)")
    axes.plot([p["red"] for p in points], [p["energy"] for p in points], color="#999999", linewidth=1, zorder=1)
    for i, strategy in enumerate(dict.fromkeys(p["strategy"] for p in points)):
        chosen = [p for p in points if p["strategy"] == strategy]
        axes.plot(
            [p["red"] for p in chosen], [p["energy"] for p in chosen], "osD^"[i % 4], color=PALETTE[i], label=strategy
        )
    axes.set_yscale("log")
    axes.legend(frameon=False)
    save_figure(figure, path)


def draw_steps(plan: Plan, steps: Sequence[tuple[str, float | None]], path: str | Path) -> None:
    """Draw energies on the way to a plan as labelled bars, first step on top, with the plan's lower bound as a line."""
    scale, unit = (1e6, "µJ") if plan.energy_unit == "pJ" else (1.0, plan.energy_unit)
    rows = [(name, energy / scale) for name, energy in steps if energy is not None]
    bound = (plan.bound or 0) / scale
    figure, axes = new_figure(f"{(plan.source or plan.graph).name} on {plan.machine.name}", f"energy ({unit})", "")
    places = range(len(rows), 0, -1)
    axes.barh(list(places), [energy for _, energy in rows], color=PALETTE[0], height=0.62)
    axes.set_yticks(list(places), [name for name, _ in rows])
    for place, (_, energy) in zip(places, rows, strict=True):
        axes.annotate(
            f"{energy:,.4g}", (energy, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9
        )
    if bound:
        axes.axvline(bound, color=PALETTE[1], linestyle="--", label="lower bound")
        axes.legend(frameon=False, loc="lower right")
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.12)
    save_figure(figure, path)
