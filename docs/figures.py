"""Figures of the README and the docs, from one run of the commands that they name.

`python docs/figures.py` runs the commands (about five minutes), keeps what they printed in `docs/figures.json`, and writes the
figures into the pages. `python docs/figures.py --pages` writes the pages from what is kept. Figures of benchmarks come from the
files that the benchmarks wrote. `tests/test_figures.py` fails when a page and its source disagree.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.energy_truth_page import errors  # noqa: E402
from benchmarks.torch_models_page import Measured  # noqa: E402

__all__ = ["COMMANDS", "LINES", "filled", "kept_figures", "measured_figures"]

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
    (
        "README.md",
        "2,250 published; {chain.compare.note 001's program|int} counted, with too many pebbles | "
        "{chain.energy|int}, proven optimal |",
    ),
    (
        "README.md",
        "| {gpu.torch.peak|GiB} at {gpu.torch.ms|ms} (`torch.compile`, lowest budget) | "
        "{gpu.same.peak|GiB} at {gpu.same.ms|ms}; down to {gpu.least.peak|GiB} |",
    ),
    (
        "README.md",
        "| {models.quickest|3g} to {models.slowest|3g} ms a step | the budget kept, "
        "{models.least|2g} to {models.most|2g} % faster, {models.mean|2g} % on average |",
    ),
    ("README.md", "| {truth.steps|%} off, ratios of schedules {truth.ratios|%} ([five models, {truth.rows|int} rows]"),
    ("README.md", "| {caches.fenwick|2g} times as fast, all cache sizes at once |"),
    ("README.md", "4 x 4 product costs {records.4x4x4.ours|int} (the public record is {records.4x4x4.public|int})"),
    ("README.md", "16 x 16 product {records.16x16x16.ours|int} ({records.16x16x16.public|int})"),
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
    ("docs/truth.md", "off by {truth.steps|%} on average over {truth.rows|int} rows of five models, {truth.worst step|%} at worst"),
    ("docs/truth.md", "off by {truth.ratios|%} on average, {truth.worst ratio|%} at worst, over {truth.pairs|int} pairs"),
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
    "GiB": (r"[\d.]+ GiB", lambda size: f"{size / 2**30:.2f} GiB"),
    "ms": (r"[\d.]+ ms", lambda time: f"{time:.1f} ms"),
    "2g": (r"[\d.]+", lambda number: f"{number:.2g}"),
    "3g": (r"[\d.]+", lambda number: f"{number:.3g}"),
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


def measured_figures() -> dict[str, Any]:
    """Return figures of benchmarks: from the files that they wrote, and from pages that hold their output as printed."""
    gpu = {row["variant"]: row for row in _rows("torch_gpu")}
    known = Measured(_rows("torch_models"))
    pairs = list(known.at_peaks())
    times, gains = (
        [theirs["ms"] for _, theirs in pairs],
        [100 * (theirs["ms"] / ours["ms"] - 1) for ours, theirs in pairs],
    )
    steps, ratios = errors(_rows("energy_truth"))
    printed = (ROOT / "docs" / "caches.md").read_text(encoding="utf-8")
    fenwick = re.search(r"^C Fenwick tree.* ([\d.]+) x as fast$", printed, re.MULTILINE)
    assert fenwick is not None
    table = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")  # tests/test_records.py runs the programs
    rows = re.findall(r"/([\dx]+)\.ir` \| ([\d,]+) \| ([\d,]+) \|", table)
    return {
        "gpu": {"torch": gpu["torch.compile:0.05"], "same": gpu["compiled:7.24GiB"], "least": gpu["compiled:least"]},
        "models": {
            "quickest": min(times), "slowest": max(times),
            "least": min(gains), "most": max(gains), "mean": statistics.mean(gains),
        },
        "truth": {
            "steps": statistics.mean(steps), "worst step": max(steps), "rows": len(steps),
            "ratios": statistics.mean(ratios), "worst ratio": max(ratios), "pairs": len(ratios),
        },
        "caches": {"fenwick": fenwick[1]},
        "records": {
            name: {"public": public.replace(",", ""), "ours": ours.replace(",", "")} for name, public, ours in rows
        },
    }  # fmt: skip


def _rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a benchmark's file."""
    found: list[dict[str, Any]] = json.loads((ROOT / "benchmarks" / f"{name}.json").read_text(encoding="utf-8"))["rows"]
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
    figures = kept_figures() | measured_figures()
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
