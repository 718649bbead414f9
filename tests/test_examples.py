"""The examples run, and say what they are there to say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "first_plan": [
        "program order: 11.004 µJ",
        "best order:    10.764 µJ, optimal",
        "bit for bit: True",
        "move 7: upd_W2",
    ],
    "own_graph": [
        "step_V must follow grad_h",
        " 9,000 floats: 1.719 µJ",
        "12,450 floats: 0.070 µJ",
        "copied ['x', 'x']",
        "12,600 floats: 0.064 µJ",
    ],
    "cache_of_my_code": ["by rows:    12,096 accesses to 256 lines"],
    "train_in_budget": ["peak ", "losses ["],
    "accelerate_in_budget": ["loss "],
    "lightning_in_budget": ["loss "],
    "hf_trainer_in_budget": ["loss ", "8 steps"],
}
# Two compile C++, one of them for most of a minute, the others import for long.
SLOW = ["hf_trainer_in_budget", "lightning_in_budget", "accelerate_in_budget", "train_in_budget"]


def examples():
    """Return the examples, those that take long marked so."""
    paths = sorted(EXAMPLES.glob("*.py"))
    return [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else []) for path in paths]


@pytest.mark.parametrize("path", examples())
def test_an_example_runs(path, tmp_path):
    assert path.stem in SAYS, "say here what the new example must print"
    if "import torch" in path.read_text(encoding="utf-8"):
        pytest.importorskip("torch")
    ran = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip()
    assert [words for words in SAYS[path.stem] if words not in ran.stdout] == [], ran.stdout


def test_the_notebook_runs_from_top_to_bottom(tmp_path, monkeypatch):
    """Without Jupyter: its cells are plain Python, and what a cell ends with is what would be shown."""
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((EXAMPLES / "first_plan.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5
    assert all(not cell.get("outputs") for cell in notebook["cells"])  # outputs are the reader's
    names: dict[str, object] = {}
    for cell in cells:
        exec(compile(cell.replace("time_limit=10", "time_limit=1"), "cell", "exec"), names)
    assert (tmp_path / "plan.html").exists()
