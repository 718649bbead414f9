"""The search for the longest sequence: near to what fits, in few trials, and never one that would take too long."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")
pytest.importorskip("transformers")

from benchmarks.longest_sequence import FULL, LengthSearch, Point

ROOT = Path(__file__).parents[1]


def searched(held, memory, base, seconds=lambda n: n / 1e4, step_seconds=1e9, first=100):
    search = LengthSearch(memory, base, step_seconds, quantum=1)
    length = first
    while length is not None:
        fits = held(length) <= memory
        search.points.append(Point(length, held(length) if fits else None, seconds(length) if fits else None))
        length = search.aim()
    return search


@pytest.mark.parametrize(
    "held",
    [
        lambda n: 500 + 3 * n,
        lambda n: 500 + 3 * n + (n // 64) * 20,  # in steps
        lambda n: 500 + n + int(60 * n**0.5),  # a part that grows more slowly
        lambda n: 500 + 2 * n + n * n // 10**5,  # and one that grows faster
    ],
)
def test_it_comes_near_in_a_few_trials(held):
    memory = 100_000
    search = searched(held, memory, base=500)
    true = max(n for n in range(1, memory) if held(n) <= FULL * memory)
    assert 0.9 * true <= search.longest.length <= true / FULL
    assert len(search.points) <= 6


def test_no_step_takes_too_long_and_what_would_fit_is_predicted():
    search = searched(lambda n: 500 + n, 100_000, 500, seconds=lambda n: (n / 1000) ** 2, step_seconds=9.0)
    assert 2900 <= search.longest.length <= 3000
    assert search.predicted() == pytest.approx(98_000, rel=0.01)


def test_a_first_length_that_is_too_long_is_halved():
    assert searched(lambda n: 500 + 2000 * n, 100_000, 500).longest.length == pytest.approx(49, abs=4)


@pytest.mark.slow
def test_checkpointing_trains_longer_sequences_than_eager(tmp_path):
    output = tmp_path / "longest.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.longest_sequence",
        "--small",
        "--memory",
        "48MiB",
        "--output",
        str(output),
    ]
    subprocess.run([*command, "--variants", "eager,checkpoint"], cwd=ROOT, check=True, timeout=600)
    rows = json.loads(output.read_text())
    longest = {row["variant"]: row["longest"] for row in rows if "longest" in row}
    assert longest["checkpoint"] > longest["eager"] > 128
    assert all(row["peak"] is None or row["peak"] <= 48 * 2**20 for row in rows if "peak" in row)
