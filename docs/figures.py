"""Figures of the README and the docs, from one run of the commands that they name.

`python docs/figures.py` runs the commands (about five minutes), keeps what they printed in `docs/figures.json`, and writes the
figures into the pages. `python docs/figures.py --pages` writes the pages from what is kept. `tests/test_figures.py` fails when a
page and the kept output disagree.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["COMMANDS", "LINES", "filled", "kept_figures"]

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "figures.json"

# The picture of the first command is drawn from the same run. OUT is a folder that is thrown away.
COMMANDS = {
    "step": "solve mlp:n=20,hidden=1000 --compare --time-limit 120 --plot docs/images/steps.png",
    "explicit": "solve mlp:n=20,hidden=1000 --machine notes-explicit --time-limit 60",
    "recency": "solve note-mlp --machine notes-recency",
    "chain": "chain --length 100 --red 11 --compare",
    "demo": "demo --out OUT/demo",
}

# What stands between braces is NAME|FORMAT or NAME/NAME|FORMAT, a name being a command and the path of a figure in its output.
_LADDER = {
    "program order": "{step.compare.program order|µJ} | 100 %",
    "note 000, optimal": "{step.compare.note 000, optimal|µJ} | {step.compare.note 000, optimal/step.compare.program order|%}",
    "best whole-tensor order": (
        "{step.compare.best whole-tensor order|µJ} | {step.compare.best whole-tensor order/step.compare.program order|%}"
    ),
    "+ fusion": "{step.compare.+ fusion|µJ} | {step.compare.+ fusion/step.compare.program order|%}",
    "+ tiling, every sweep forwards": "{step.compare.+ tiling|µJ} | {step.compare.+ tiling/step.compare.program order|%}",
    "+ reversed sweep": (
        "{step.compare.+ reversed sweep|µJ} | {step.compare.+ reversed sweep/step.compare.program order|%}"
    ),
    "+ recomputation": "**{step.energy|µJ}** | **{step.energy/step.compare.program order|%}**",
    "lower bound, for every order and tiling": "{step.bound|µJ} | {step.bound/step.compare.program order|%}",
}
LINES: list[tuple[str, str]] = [
    *(("README.md", f"| {name} | {figures} |") for name, figures in _LADDER.items()),
    ("README.md", "{explicit.energy|µJ}, bound {explicit.bound|3}"),
    ("README.md", "{recency.energy|int} pJ, sampled"),
    ("README.md", "with too many pebbles | {chain.energy|int}, proven optimal |"),
    ("README.md", "{step.program_order_energy/step.energy|x} cheaper"),
    *(
        ("docs/notes.md", f"| {name} | {{step.compare.{key}|µJ}}, {{step.compare.{key}/step.compare.program order|.%}} |")
        for name, key in [
            ("program order", "program order"), ("note 000, optimal", "note 000, optimal"),
            ("best whole-tensor order", "best whole-tensor order"), ("+ fusion", "+ fusion"), ("+ tiling", "+ tiling"),
            ("+ reversed sweep", "+ reversed sweep"), ("+ recomputation", "+ recomputation"), ("bound", "bound"),
        ]
    ),
    (
        "docs/explanation/energy-models.md",
        "| `note-mlp --machine notes-recency` | {recency.program_order_energy|µJ} | {recency.energy|µJ} | {recency.bound|µJ} |",
    ),
    (
        "docs/explanation/energy-models.md",
        "| `mlp:n=20,hidden=1000 --machine notes` | {step.program_order_energy|µJ} | {step.energy|µJ} | {step.bound|µJ} |",
    ),
    (
        "docs/explanation/energy-models.md",
        "| `mlp:n=20,hidden=1000 --machine notes-explicit` | {explicit.program_order_energy|µJ} | {explicit.energy|µJ} | "
        "{explicit.bound|µJ} |",
    ),
    ("docs/comparison.md", "| LRU caches, pebbler | {step.energy|µJ} (bound {step.bound|3}) |"),
    ("docs/comparison.md", "| explicit memory, pebbler | {explicit.energy|µJ} (bound {explicit.bound|3}) |"),
    ("docs/comparison.md", "| the note's program | {chain.compare.note 001's program|int} |"),
    ("docs/comparison.md", "| stored checkpoint every 10 | {chain.compare.stored checkpoint every 10|int} |"),
    ("docs/comparison.md", "| binomial (revolve) | {chain.compare.binomial (revolve)|int} |"),
    ("docs/comparison.md", "| optimal | {chain.energy|int} |"),
    ("docs/tutorial.md", "{step.energy|µJ}, {step.program_order_energy/step.energy|x} cheaper than program"),
    ("docs/tutorial.md", "`bounded` by {step.bound|µJ}"),
    ("docs/report.md", "about {demo.page_bytes|MB} for the notes' step"),
    ("docs/report.md", "to the plan: {demo.before|3} to {demo.after|µJ}; no plan costs less than {demo.bound|3}"),
]  # fmt: skip

_FORMATS: dict[str, tuple[str, Callable[[float], str]]] = {
    "µJ": (r"[\d.]+ µJ", lambda pj: f"{pj / 1e6:.3f} µJ"),
    "3": (r"[\d.]+", lambda pj: f"{pj / 1e6:.3f}"),
    "%": (r"[\d.]+ %", lambda share: f"{100 * share:.1f} %"),
    ".%": (r"[\d.]+%", lambda share: f"{100 * share:.1f}%"),
    "x": (r"[\d.]+x", lambda ratio: f"{ratio:.2f}x"),
    "MB": (r"[\d.]+ MB", lambda size: f"{size / 1e6:.1f} MB"),
    "int": (r"[\d,]+", lambda number: f"{number:,.0f}"),
}


def filled(template: str, figures: dict[str, Any]) -> tuple[re.Pattern[str], str]:
    """Return what a line with figures looks like, whatever they are, and the line with the figures that were kept."""
    pattern, text = "", ""
    for i, part in enumerate(re.split(r"\{([^}]*)\}", template)):
        if i % 2 == 0:
            pattern, text = pattern + re.escape(part), text + part
            continue
        names, form = part.rsplit("|", 1)
        above, _, below = names.partition("/")
        value = _figure(figures, above) / (_figure(figures, below) if below else 1)
        pattern, text = pattern + _FORMATS[form][0], text + _FORMATS[form][1](value)
    return re.compile(pattern), text


def _figure(figures: dict[str, Any], name: str) -> float:
    """Return a figure by its path; a list of rows is looked up by the rows' names."""
    command, *path = name.split(".", 2)
    found: Any = figures[command]
    for key in path:
        found = found[key] if isinstance(found, dict) else next(row["energy"] for row in found if row["name"] == key)
    return float(found)


def kept_figures() -> dict[str, Any]:
    """Return what the commands printed when they were last run."""
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def _run() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, command in COMMANDS.items():
            words = [sys.executable, "-m", "pebbler", *command.replace("OUT", folder).split(), "--json"]
            print(f"pebbler {command}", flush=True)
            done = subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE)
            figures[name] = {"command": f"pebbler {command} --json", **json.loads(done.stdout)}
        page = Path(figures["demo"].pop("page"))
        figures["demo"].pop("plan")  # a path of this machine
        figures["demo"]["page_bytes"] = page.stat().st_size
    for found in figures.values():
        found.pop("seconds", None)
    return figures


def main() -> None:
    """Run the commands unless told not to, and bring the pages up to date."""
    if "--pages" not in sys.argv[1:]:
        KEPT.write_text(json.dumps(_run(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    figures = kept_figures()
    for file, template in LINES:
        page = ROOT / file
        pattern, text = filled(template, figures)
        before = page.read_text(encoding="utf-8")
        after, found = pattern.subn(text.replace("\\", r"\\"), before)
        if found != 1:
            raise SystemExit(f"{file}: expected one place like {text!r}, found {found}")
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"{file}: {text}")


if __name__ == "__main__":
    main()
