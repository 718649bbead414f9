"""What is held at torch's activation_memory_budget, value by value, and within pebbler's budgets, from rows of `torch_models`.

pytorch issue 197838: a smaller value of the knob can hold more. The issue's model is a Llama of 32 layers; any model of
`torch_models` can be drawn, several in one figure.

    python -m benchmarks.torch_models --models llama32 --losses 12 --output knob.json --variants \\
        torch:1,torch:0.3,torch:0.05,torch:0.15,torch:0.5,pebbler:@torch:0.3,pebbler:@torch:0.15,pebbler:@torch:0.05,pebbler:least
    python -m benchmarks.torch_knob knob.json --plot knob.svg
    python -m benchmarks.torch_knob benchmarks/torch_knob.json benchmarks/torch_models.json --plot docs/images/torch_knob.svg
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.torch_models_page import TITLES, Measured
from pebbler.show.plots import new_figures, save_figure

Points = list[tuple[float, float]]  # what was asked for, GiB held


def knob_points(known: Measured, model: str) -> tuple[Points, Points]:
    """Return what torch holds at every value of its knob, and pebbler at every budget, as a share of torch.compile's peak."""
    theirs = [(float(row["variant"].partition(":")[2]), row["peak"] / 2**30) for row in known.kind("torch", model)]
    whole = known.row(model, "torch:1")
    ours = [
        (knob["peak"] / whole["peak"], row["peak"] / 2**30)
        for row, knob in known.at_peaks()
        if whole is not None and row["model"] == model
    ]
    free = known.row(model, "pebbler:none")
    if free is not None:  # as if it had been asked for what it holds
        ours.append((max(1.0, free["peak"] / whole["peak"]) if whole is not None else 1.0, free["peak"] / 2**30))
    return sorted(theirs), sorted(ours)


def rises(points: Points) -> list[tuple[float, float]]:
    """Return the neighbours among what was asked for where the smaller one holds more, by more than a thousandth."""
    return [(loose, tight) for (tight, more), (loose, less) in pairwise(sorted(points)) if more > 1.001 * less]


def told(known: Measured, model: str) -> list[str]:
    """Return what a model holds, in words."""
    theirs, ours = knob_points(known, model)
    lines = [f"{TITLES[model]}: " + ", ".join(f"{knob:g}: {held:.2f} GiB" for knob, held in reversed(theirs))]
    for who, points in (("activation_memory_budget", theirs), ("pebbler", ours)):
        up = [f"from {loose:.3g} to {tight:.3g}" for loose, tight in rises(points)]
        lines.append(
            f"  {who}: " + (f"less asked for, more held {', '.join(up)}" if up else "less asked for never holds more")
        )
    if ours:
        lines.append("  pebbler: " + ", ".join(f"{share:.2f}: {held:.2f} GiB" for share, held in reversed(ours)))
    least = known.row(model, "pebbler:least")
    return lines if least is None else [*lines, f"  pebbler's least: {least['peak'] / 2**30:.2f} GiB"]


def draw(known: Measured, models: Sequence[str], path: Path) -> None:
    """Draw one panel per model: what is held against the value of the knob."""
    figure, panels = new_figures(len(models), columns=min(3, len(models)))
    for axes, model in zip(panels, models, strict=True):
        theirs, ours = knob_points(known, model)
        axes.set_title(TITLES[model], fontsize=9)
        for points, label, style in (
            (theirs, "activation_memory_budget", "o-"),
            (ours, "pebbler's budget over torch.compile's peak", "s--"),
        ):
            axes.plot([knob for knob, _ in points], [held for _, held in points], style, label=label)
        least = known.row(model, "pebbler:least")
        axes.axhline(
            least["peak"] / 2**30 if least is not None else math.nan, color="gray", ls=":", label="pebbler's least"
        )
        axes.set_ylim(bottom=0)
        axes.set_xlabel("asked for")
        axes.set_ylabel("GiB held")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    save_figure(figure, path)


def main() -> None:
    """Print what is held, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, nargs="+", help="what torch_models has written")
    parser.add_argument("--models", help="which, with commas; all that have two values of the knob otherwise")
    parser.add_argument("--plot", type=Path, help="draw a figure: .svg, .png or .pdf")
    options = parser.parse_args()
    known = Measured([row for path in options.rows for row in json.loads(path.read_text())["rows"]])
    models = (
        options.models.split(",") if options.models else [m for m in known.models if len(known.kind("torch", m)) > 1]
    )
    if not models or not set(models) <= set(known.models):
        raise SystemExit(
            f"{', '.join(map(str, options.rows))}: two values of activation_memory_budget are there of: "
            f"{', '.join(known.models) or 'nothing'}"
        )
    print("\n".join(line for model in models for line in told(known, model)))
    if options.plot is not None:
        draw(known, models, options.plot)


if __name__ == "__main__":
    main()
