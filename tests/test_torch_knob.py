"""What is held at torch's knob: where less asked for holds more, and the figure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from benchmarks import torch_knob
from benchmarks.torch_models_page import Measured

ROOT = Path(__file__).parents[1]
HELD = {
    "torch:1": 8, "torch:0.3": 4, "torch:0.05": 6, "pebbler:none": 8, "pebbler:@torch:0.3": 3.9,
    "pebbler:@torch:0.05": 5.9, "pebbler:least": 2,
}  # fmt: skip
ROWS = [{"model": "llama32", "variant": name, "peak": int(held * 2**30)} for name, held in HELD.items()]


def test_points_are_what_was_asked_for_and_what_was_held():
    theirs, ours = torch_knob.knob_points(Measured(ROWS), "llama32")
    assert theirs == [(0.05, 6.0), (0.3, 4.0), (1.0, 8.0)]
    assert [share for share, _ in ours] == [0.5, 0.75, 1.0]
    assert [held for _, held in ours] == pytest.approx([3.9, 5.9, 8.0])


def test_a_smaller_value_that_holds_more_is_told():
    assert torch_knob.rises([(0.05, 6.0), (0.3, 4.0), (1.0, 8.0)]) == [(0.3, 0.05)]
    assert torch_knob.rises([(0.05, 4.001), (0.3, 4.0), (1.0, 8.0)]) == []  # an allocator's rounding
    lines = torch_knob.told(Measured(ROWS), "llama32")
    assert lines[1] == "  activation_memory_budget: less asked for, more held from 0.3 to 0.05"
    assert lines[2] == "  pebbler: less asked for never holds more"
    assert lines[-1] == "  pebbler's least: 2.00 GiB"


def test_the_command_prints_and_draws(tmp_path):
    rows, plot = tmp_path / "rows.json", tmp_path / "knob.svg"
    rows.write_text(json.dumps({"rows": [*ROWS, {"model": "gpt", "variant": "torch:1", "error": "no time left"}]}))
    command = [sys.executable, "-m", "benchmarks.torch_knob", str(rows), "--plot", str(plot)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("HF Llama, 32 x 1024: 1: 8.00 GiB, 0.3: 4.00 GiB, 0.05: 6.00 GiB")
    assert "activation_memory_budget" in plot.read_text()
    wrong = subprocess.run([*command, "--models", "vit"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "Traceback" not in wrong.stderr
