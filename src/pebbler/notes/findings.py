"""The files of an experiment: results.json for programs, findings.md for readers, and the plots."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from pebbler.files import write_bytes, write_json, write_text
from pebbler.notes import note_plots
from pebbler.notes.experiment import Experiment, NoteFigure, Value, show
from pebbler.version import VERSION

__all__ = ["answers", "claims", "finding_files", "markdown", "results", "versions", "write_findings"]

FORMAT = "pebbler-results-1"


def write_findings(experiment: Experiment, folder: Path, seconds: float) -> None:
    """Write an experiment's results.json, findings.md and plots into a folder, each file whole or not at all."""
    for plot in experiment.plots:
        write_bytes(folder / f"{plot.name}.png", note_plots.png(plot))
        write_bytes(folder / f"{plot.name}.svg", note_plots.svg(plot))
    write_text(folder / "findings.md", markdown(experiment))
    write_json(folder / "results.json", results(experiment, seconds))


def finding_files(experiment: Experiment, folder: Path) -> list[Path]:
    """Return the files that `write_findings` writes."""
    plots = [folder / f"{plot.name}.{kind}" for plot in experiment.plots for kind in ("png", "svg")]
    return [folder / "results.json", folder / "findings.md", *plots]


def results(experiment: Experiment, seconds: float) -> dict[str, Any]:
    """Return the contents of results.json. Only `time` and `versions` differ between two runs of the same code."""
    fields = {"format": FORMAT, **msgspec.to_builtins(experiment)}
    fields.pop("plots")
    return {
        **fields,
        "ok": experiment.ok,
        "machine": {"system": platform.system(), "processor": platform.machine()},
        "versions": versions(),
        "time": {"seconds": round(seconds, 3)},
    }


def versions() -> dict[str, str]:
    """Return the versions that the figures depend on, and the commit when this is a checkout.

    >>> sorted(versions())[-3:]
    ['numpy', 'pebbler', 'python']
    """
    found = {"pebbler": VERSION, "python": platform.python_version()}
    found |= {name: version(name) for name in ("numpy", "numba", "matplotlib")}
    commit = _commit()
    return found if commit is None else found | {"commit": commit}


def _commit() -> str | None:
    """Return the commit of this file's own repository; None when it is installed, or there is no git."""
    here = Path(__file__)

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(here.parent), *words], capture_output=True, text=True, check=True, timeout=10
        )
        return done.stdout.strip()

    try:
        # An environment inside somebody else's repository must not give us their commit.
        git("ls-files", "--error-unmatch", here.name)
        return git("rev-parse", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return None


def markdown(experiment: Experiment) -> str:
    """Return the findings page: the question, the table, what changed and why, and the open questions answered."""
    parts = [
        f"# {experiment.name} (note {experiment.note})",
        f"**Question.** {experiment.question}",
        "## What the note claims and what is true",
        *claims(experiment),
        "## Figures",
        _grid(
            ["figure", "published", "measured", "corrected", "match"],
            [(_label(row), *_cells(row)) for row in experiment.rows],
        ),
        "## What changed and why",
        *_changes(experiment.rows),
        "## Open questions",
        *answers(experiment),
    ]
    parts += ["## Plots", *(f"![{' '.join(plot.title.split())}]({plot.name}.svg)" for plot in experiment.plots)]
    config = msgspec.json.format(msgspec.json.encode(experiment.config), indent=1).decode()
    return "\n\n".join([*parts, "## Config", f"```json\n{config}\n```"]) + "\n"


def claims(experiment: Experiment) -> list[str]:
    """Return the claims of the note and the corrections, a paragraph each."""
    return [f"- *{v.claim}* {v.truth} ({v.evidence})" for v in experiment.verdicts]


def answers(experiment: Experiment) -> list[str]:
    """Return the questions with their answers and tables, a paragraph each."""
    parts = []
    for question in experiment.questions:
        parts += [f"### {question.question}", question.answer]
        for one in question.tables:
            parts += [f"*{one.title}*", _grid(one.columns, [[show(value) for value in row] for row in one.rows])]
    return parts


def _label(row: NoteFigure) -> str:
    return f"{row.name} ({row.unit})" if row.unit else row.name


def _cells(row: NoteFigure) -> tuple[str, str, str, str]:
    return show(row.published, row.decimals), show(row.measured), show(row.corrected), "yes" if row.match else "no"


def _changes(rows: Iterable[NoteFigure]) -> list[str]:
    """Return one line per explanation, with the figures that it concerns."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.why:
            reasons.setdefault(row.why, []).append(row.name)
    return [f"- {why} ({', '.join(names)})" for why, names in reasons.items()] or ["Nothing: every figure holds."]


def _grid(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_escape(str(cell)) for cell in line) + " |" for line in lines)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
