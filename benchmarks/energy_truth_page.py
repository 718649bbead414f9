"""Tables and plot of `energy_truth`: errors of every row, and of the ratio of every pair of schedules."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.energy_truth_causes import conditions_table, objective_table, op_table, trade_table
from pebbler.game.machine import measured_device

__all__ = ["pairs", "summarize", "write_page"]

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
Row = dict[str, Any]


def whole(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that were both predicted and measured."""
    return [row for row in rows if row.get("predicted_joules") and row.get("joules")]


def pairs(rows: Sequence[Row]) -> Iterator[tuple[Row, Row, float, float]]:
    """Yield two schedules of one model, and the ratio of their joules as predicted and as measured."""
    for a, b in combinations(whole(rows), 2):
        if a["model"] == b["model"]:
            yield a, b, a["predicted_joules"] / b["predicted_joules"], a["joules"] / b["joules"]


def errors(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    """Return how far rows, and ratios of pairs, are off, as fractions."""
    steps = [abs(row["predicted_joules"] / row["joules"] - 1) for row in whole(rows)]
    return steps, [abs(predicted / measured - 1) for _, _, predicted, measured in pairs(rows)]


def summarize(rows: Sequence[Row]) -> str:
    """Return the errors in a sentence."""
    steps, ratios = errors(rows)
    if not steps:
        return "Nothing was both predicted and measured."
    told = f"{len(steps)} rows: joules off by {statistics.mean(steps):.1%} on average, {max(steps):.1%} at worst."
    if ratios:
        count = f"{len(ratios)} pair{'s' * (len(ratios) != 1)}"
        told += f" {count}: ratio off by {statistics.mean(ratios):.1%} on average, {max(ratios):.1%} at worst."
    return told


def row_table(rows: Sequence[Row]) -> str:
    """Return every row as Markdown."""
    lines = ["| model | schedule | peak GiB | predicted ms | ms | predicted J | J | error | W |", "|" + "---|" * 9]
    for row in rows:
        if "joules" not in row:
            continue

        def cell(key: str, factor: float = 1.0, digits: int = 1, row: Row = row) -> str:
            return "" if row.get(key) is None else f"{factor * row[key]:.{digits}f}"

        off = f"{row['predicted_joules'] / row['joules'] - 1:+.1%}" if row.get("predicted_joules") else ""
        lines.append(
            f"| {row['model']} | {row['schedule']} | {cell('peak_bytes', 2**-30, 2)} | {cell('predicted_seconds', 1e3)} | "
            f"{cell('seconds', 1e3)} | {cell('predicted_joules', 1, 2)} | {cell('joules', 1, 2)} | {off} | {cell('watts', 1, 0)} |"
        )
    return "\n".join(lines)


def model_table(rows: Sequence[Row]) -> str:
    """Return errors by model as Markdown: of rows, and of ratios."""
    lines = ["| model | rows | joules off, mean | worst | pairs | ratio off, mean | worst |", "|" + "---|" * 7]
    for model in dict.fromkeys(row["model"] for row in whole(rows)):
        steps, ratios = errors([row for row in rows if row["model"] == model])
        told = f"| {statistics.mean(ratios):.1%} | {max(ratios):.1%} |" if ratios else "| | |"
        lines.append(
            f"| {model} | {len(steps)} | {statistics.mean(steps):.1%} | {max(steps):.1%} | {len(ratios)} {told}"
        )
    return "\n".join(lines)


def page_text(known: Sequence[dict[str, Any]]) -> str:
    """Return what a page shows: the first file in full, the others as tables."""
    first = known[0]["rows"]
    parts = [f"{known[0].get('about') or _about(known[0])}.", summarize(first)]
    parts += [row_table(first), missing(first), "### By model", model_table(first)]
    parts += ["### Single ops, mixture and step", conditions_table(first)]
    parts += ["### Plans for energy", objective_table(first)]
    parts += ["### Power of ops", op_table(known[0].get("ops", {}))]
    parts += ["### Cost of restoring a byte, on `h200-measured`", trade_table(measured_device("h200-measured"))]
    for one in known[1:]:
        parts += [
            "### Other settings" if one is known[1] else "",
            f"{one['about']}. {summarize(one['rows'])}",
            row_table(one["rows"]),
        ]
    return "\n\n".join(part for part in parts if part)


def _about(known: dict[str, Any]) -> str:
    """Return how it was measured."""
    return (
        f"{known['device']}, torch {known['torch']}: {known['op_seconds']:g} s of measuring single ops per model and kind of "
        f"kernels, the others together, then all ops in a mixture; {known['time_limit']:g} s of planning; steps for at least "
        f"{known['seconds']:g} s"
    )


def missing(rows: Sequence[Row]) -> str:
    """Return what was not measured, by the reason why."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if "error" in row:
            reasons.setdefault(row["error"], []).append(f"{row['model']} {row['schedule']}")
    return "\n".join(f"- {reason}: {', '.join(names)}" for reason, names in reasons.items())


def write_page(known: Sequence[dict[str, Any]], page: Path | None, plot: Path | None) -> None:
    """Print the tables, and put them between the marks of a page; draw the plot."""
    if any(one.get("simulated") for one in known) and page is not None:
        raise SystemExit("these rows are simulated: no page is made of them")
    text = page_text(known)
    print(text)
    if page is not None:
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        _, mark, after = rest.partition(END)
        if not mark:
            raise SystemExit(f"{page}: needs the lines {BEGIN} and {END}")
        page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
    if plot is not None:
        draw(known[0]["rows"], plot, known[0]["device"])


def draw(rows: Sequence[Row], path: Path, device: str) -> None:
    """Draw predicted against measured joules, and the same for ratios."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
    for marker, model in zip("os^vDPX", dict.fromkeys(row["model"] for row in whole(rows)), strict=False):
        mine = [row for row in whole(rows) if row["model"] == model]
        left.plot([r["joules"] for r in mine], [r["predicted_joules"] for r in mine], marker, label=model)
        ratios = [(measured, predicted) for _, _, predicted, measured in pairs(mine)]
        right.plot([m for m, _ in ratios], [p for _, p in ratios], marker)
    for axes, what in ((left, "joules per step"), (right, "ratio of two schedules' joules")):
        low, high = min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1])
        axes.plot([low, high], [low, high], color="gray", linewidth=0.8)
        axes.set(xlabel=f"{what}, measured", ylabel=f"{what}, predicted")
        axes.grid(alpha=0.3)
    figure.suptitle(f"One training step on an {device}, by its energy counter")
    figure.legend(loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(path)
