"""The benchmark of six models, at tiny sizes on a CPU: rows, reasons for missing rows, the table."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

from benchmarks import torch_models  # noqa: E402

ROOT = Path(__file__).parents[1]


def told(tmp_path, **more):
    usual = {"variants": "eager", "steps": 3, "losses": 12, "tiny": True, "lock": tmp_path / "lock"}
    return argparse.Namespace(**usual, **{"until": time.time() + 600, **more})


def test_a_row_has_peak_time_and_losses(tmp_path):
    (row,) = torch_models.Bench("gpt", told(tmp_path)).rows()
    assert row["peak"] > 10_000
    assert row["ms"] > 0
    assert len(row["losses"]) == 12
    assert row["losses"][-1] < row["losses"][0]


def test_what_is_missing_has_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(torch_models, "VARIANTS", "")
    options = told(tmp_path, until=0.0)
    (row,) = torch_models.Bench("gpt", options).rows()
    assert row["error"] == "no time left"
    options = argparse.Namespace(**{**vars(told(tmp_path)), "variants": "pebbler:@torch:0.3"})
    (row,) = torch_models.Bench("gpt", options).rows()
    assert row["error"] == "there is no torch:0.3 to compare with"


def test_the_table_compares_losses_with_eager():
    rows = [
        {"model": "gpt", "variant": "eager", "peak": 2**30, "ms": 1.0, "total_setup": 1.0, "losses": [3.0, 2.0]},
        {"model": "gpt", "variant": "torch:1", "peak": 2**29, "ms": 0.5, "total_setup": 9.0, "losses": [3.0, 2.25]},
        {"model": "gpt", "variant": "pebbler:least", "error": "no time left"},
    ]
    lines = torch_models.show(rows).splitlines()
    assert lines[2].split() == ["gpt", "torch:1", "0.500", "0.50", "9.0", "2.50e-01"]
    assert lines[3].endswith("no time left")


def test_what_was_measured_can_be_shown():
    known = json.loads((ROOT / "benchmarks" / "torch_models.json").read_text(encoding="utf-8"))
    table = torch_models.show(known["rows"])
    least = {row["model"]: row["peak"] for row in known["rows"] if row["variant"] == "pebbler:least"}
    theirs = [row for row in known["rows"] if row["variant"].startswith("torch:") and "peak" in row]
    assert set(least) == set(torch_models.MODELS)
    assert all(least[row["model"]] < row["peak"] for row in theirs)
    assert len(table.splitlines()) == 1 + len(known["rows"])


@pytest.mark.slow
def test_the_command_measures_compiled_models(tmp_path):
    output = tmp_path / "rows.json"
    variants = "eager,torch:1,pebbler:least,pebbler:@torch:1"
    command = [sys.executable, "-m", "benchmarks.torch_models", "--tiny", "--models", "unet", "--variants", variants]
    command += ["--steps", "3", "--losses", "14", "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = {row["variant"]: row for row in json.loads(output.read_text(encoding="utf-8"))["rows"]}
    assert set(rows) == set(variants.split(","))
    assert not any("error" in row for row in rows.values())
    assert rows["pebbler:least"]["peak"] < rows["eager"]["peak"]
    for row in rows.values():
        assert row["losses"] == pytest.approx(rows["eager"]["losses"], rel=0.02)
