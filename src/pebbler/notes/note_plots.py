"""Reproducible plots: PNG files for readers, and SVG for light and dark pages."""

from __future__ import annotations

import io
import re

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogFormatter

from pebbler.notes.experiment import Plot
from pebbler.show.plots import PALETTE

__all__ = ["inline_svg", "png", "svg"]

_MARKERS = "osD^vP"
_DASHES = ("-", "--")
# Stands for the page's own text colour; nothing else is drawn in it.
_INK = "#010203"
_PAPER_INK = "#222222"


def png(plot: Plot) -> bytes:
    """Return the plot as a PNG image on white."""
    return _render(plot, "png", _PAPER_INK)


def svg(plot: Plot) -> bytes:
    """Return the plot as an SVG file on white."""
    return _render(plot, "svg", _PAPER_INK)


def inline_svg(plot: Plot, prefix: str) -> str:
    """Return the plot as an SVG element for a page: transparent, in the page's text colour, its ids prefixed."""
    text = _render(plot, "svg", _INK).decode()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', text)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)


def _render(plot: Plot, kind: str, ink: str) -> bytes:
    inline = ink == _INK  # on a page that may be as narrow as a telephone
    settings = {
        "svg.hashsalt": plot.name,
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 11 if inline else 10,
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), ink),
    }
    with matplotlib.rc_context(settings):
        small = 10.5 if inline else 8
        height = 1.4 + 0.36 * len(plot.series) if plot.kind == "heat" else 3.6
        figure = Figure(figsize=(4.8 if inline and plot.kind != "heat" else 6.4, height), layout="constrained")
        axes = figure.add_subplot()
        _DRAW[plot.kind](axes, plot)
        if not inline:  # a page has it below, in its own words and type
            axes.set_title(plot.title)
        axes.set_xlabel(plot.x_label)
        axes.set_ylabel(plot.y_label)
        axes.spines[["top", "right"]].set_visible(False)
        for label, x in plot.marks:
            axes.axvline(x, color=ink, linewidth=1, linestyle=":")
            axes.annotate(
                label,
                (x, 1),
                xycoords=("data", "axes fraction"),
                xytext=(4, -2),
                textcoords="offset points",
                va="top",
                fontsize=small,
            )
        if len(plot.series) > 1 and plot.kind != "heat":
            above = {"loc": "outside upper left", "ncols": 2}  # beside the lines there is no room on a narrow page
            (figure if inline else axes).legend(frameon=False, fontsize=small, **(above if inline else {}))
        out = io.BytesIO()
        # The date and the library's version would make two runs differ.
        nothing = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        figure.savefig(out, format=kind, metadata=nothing, dpi=150, transparent=inline)
    return out.getvalue()


class _PlainLog(LogFormatter):
    """Labels between powers of ten, where there is room for them, without exponents."""

    def _num_to_string(self, x: float, _low: float, _high: float) -> str:
        return _plain(x, 0)


def _plain(value: float, _position: int) -> str:
    return f"{value:,.6g}" if abs(value) < 1000 else f"{value:,.0f}"


def _lines(axes: Axes, plot: Plot) -> None:
    for i, series in enumerate(plot.series):
        axes.plot(
            series.x,
            series.y,
            label=series.label,
            color=PALETTE[i % len(PALETTE)],
            marker=_MARKERS[i % len(_MARKERS)],
            markersize=4,
            linestyle=_DASHES[i % len(_DASHES)],
        )
    if plot.log_x:
        axes.set_xscale("log", base=2)
        axes.set_xticks(plot.series[0].x)
        axes.minorticks_off()
    if plot.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(_PlainLog(minor_thresholds=(1.5, 0.5)))
    else:
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))


def _bars(axes: Axes, plot: Plot) -> None:
    width = 0.8 / len(plot.series)
    for i, series in enumerate(plot.series):
        places = [k + (i - (len(plot.series) - 1) / 2) * width for k in range(len(series.y))]
        axes.bar(places, series.y, width, label=series.label, color=PALETTE[i % len(PALETTE)])
    axes.set_xticks(range(len(plot.series[0].x)), [str(x) for x in plot.series[0].x])
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    if plot.log_y:
        axes.set_yscale("log")


def _histogram(axes: Axes, plot: Plot) -> None:
    values = [series.y for series in plot.series]
    colours = [PALETTE[i % len(PALETTE)] for i in range(len(values))]
    axes.hist(values, bins=40, stacked=True, color=colours, label=[series.label for series in plot.series])


def _heat(axes: Axes, plot: Plot) -> None:
    """Draw a map in colours of the logarithm, the least framed, the figures in the cells."""
    values = np.array([series.y for series in plot.series], float)
    known = np.log10(np.where(np.isfinite(values), values, np.nan))
    colours = matplotlib.colormaps["cividis_r"]
    image = axes.imshow(known, cmap=colours, aspect="auto", origin="lower")
    for (row, column), value in np.ndenumerate(values):
        never = not np.isfinite(value)
        if never:
            axes.add_patch(
                Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor="#d9d9d9", edgecolor="#8c8c8c", hatch="//")
            )
        red, green, blue, _ = (0.85,) * 4 if never else image.to_rgba(known[row, column])
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        text = "never" if never else _three_digits(value)
        axes.text(column, row, text, ha="center", va="center", fontsize=10, color="#ffffff" if dark else "#000000")
    row, column = np.unravel_index(np.nanargmin(known), known.shape)
    frame = Rectangle((column - 0.46, row - 0.46), 0.92, 0.92, fill=False, edgecolor=PALETTE[1], linewidth=3)
    axes.add_patch(frame)
    axes.set_xticks(range(values.shape[1]), [str(x) for x in plot.series[0].x])
    axes.set_yticks(range(len(values)), [series.label for series in plot.series])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


_DRAW = {"line": _lines, "bar": _bars, "histogram": _histogram, "heat": _heat}
