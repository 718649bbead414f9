"""The page of energy to accuracy, from what `pebbler reproduce accuracy --full` has measured.

    pebbler reproduce accuracy --full --out DIR
    python -m benchmarks.accuracy_page DIR/accuracy/measured.json

keeps the measurements in docs/accuracy.json, and writes the tables and the picture of docs/accuracy.md from them. Without a file,
the page is written again from what is kept. `tests/test_accuracy_page.py` fails when the page and the measurements disagree.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from pebbler.notes import note001_chain
from pebbler.notes.accuracy_grid import Measurements
from pebbler.notes.experiment import Experiment
from pebbler.notes.findings import answers, claims
from pebbler.notes.note004_accuracy import experiment
from pebbler.notes.note_plots import png

__all__ = ["kept_measurements", "page_text", "written"]

DOCS = Path(__file__).parents[1] / "docs"
KEPT, PAGE = DOCS / "accuracy.json", DOCS / "accuracy.md"
PICTURE, SPACING = DOCS / "images" / "accuracy.png", DOCS / "images" / "spacing.png"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def kept_measurements() -> Measurements:
    """Return what the page is made from."""
    return msgspec.json.decode(KEPT.read_bytes(), type=Measurements)


def page_text(found: Experiment, chain: Experiment) -> str:
    """Return what stands between the marks of the page: energy to accuracy, and note 001's claim about spacing."""
    spacing = next(claim for claim in claims(chain) if "spacing reduces" in claim)
    picture = f"![Recomputed nodes by stores and loads: claims, what was played, and what nobody undercuts](images/{SPACING.name})"
    parts = ["## What the notes claim and what is true", *claims(found), "## Answers", *answers(found)]
    return "\n\n".join([*parts, "## Uneven checkpoints (note 001, `pebbler reproduce chain`)", spacing, picture])


def written(page: str, found: Experiment, chain: Experiment) -> str:
    """Return the page with its measured part brought up to date."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"the page needs the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{page_text(found, chain)}\n\n{END}{after}"


def main() -> None:
    """Keep the measurements that are given, and write the page and its pictures."""
    for path in sys.argv[1:]:
        KEPT.write_bytes(Path(path).read_bytes())
    found, chain = experiment(kept_measurements()), note001_chain.run()
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), found, chain), encoding="utf-8")
    PICTURE.write_bytes(png(found.plots[0]))
    SPACING.write_bytes(png(next(plot for plot in chain.plots if plot.name == "uneven-spacing")))


if __name__ == "__main__":
    main()
