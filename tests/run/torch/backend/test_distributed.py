"""The backend in two processes: DDP, FSDP2, tensor parallel layers, checkpoints of the user's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "distributed_training.py"


def run_ranks(folder, names):
    """Run checks in two processes, and return what each rank found, by name."""
    ranks = []
    for rank in range(2):
        with (folder / f"said.{rank}").open("w") as said:
            command = [sys.executable, "-W", "ignore", str(SCRIPT), str(rank), str(folder), *names]
            ranks.append(subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT))
    try:
        codes = [process.wait(timeout=500) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert codes == [0, 0], "\n".join((folder / f"said.{rank}").read_text()[-3000:] for rank in range(2))
    return {name: [json.loads((folder / f"{name}.{rank}.json").read_text()) for rank in range(2)] for name in names}


def assert_alike(ranks, apart=True):
    """Losses and weights are those of eager training on both ranks, and budgets were measured and kept."""
    for found in ranks:
        assert found["loss"] < 1e-6
        assert found["numbers"] < 1e-6
        assert found["peaks"][0] <= found["limits"][0]
    if not apart:
        assert ranks[0]["sum"] == ranks[1]["sum"]


@pytest.mark.slow
def test_ddp_splits_at_its_buckets_and_every_rank_keeps_its_own_budget(tmp_path):
    ranks = run_ranks(tmp_path, ["ddp_outside"])["ddp_outside"]
    assert_alike(ranks, apart=False)
    assert [rank["graphs"] for rank in ranks] == [2, 2]
    assert max(ranks[0]["places"]) == 0
    assert max(ranks[1]["places"]) > 0  # compiled again, bucket by bucket


@pytest.mark.slow
def test_collectives_run_once_where_their_neighbours_run_again(tmp_path):
    ranks = run_ranks(tmp_path, ["tensor_parallel"])["tensor_parallel"]
    assert_alike(ranks)
    for rank in ranks:
        assert rank["may_run_again"] == 0
        assert not rank["nothing_saved_is_legal"]
        assert rank["computed_again"] == 3
        assert rank["collectives"] == 3 + 2  # one per block, and one per gradient of a block's input that is wanted


@pytest.mark.slow
def test_every_other_way_to_train_in_two_processes(tmp_path):
    names = [
        "ddp_inside",
        "fsdp_whole",
        "fsdp_each",
        "checkpoint_inside",
        "checkpoint_wrapper",
        "checkpoint_around",
        "checkpoint_old",
    ]
    found = run_ranks(tmp_path, [*names, "refused", "fsdp_in_backward", "ddp_in_backward"])
    for name in names:
        assert_alike(found[name], apart=name != "fsdp_whole")
    assert max(found["ddp_inside"][1]["places"]) > 0
    assert "the least budget that is known to work is" in found["refused"][0]["says"]
    assert not found["refused"][1]["says"]
    for rank in range(2):
        assert found["fsdp_in_backward"][rank]["same"]
        assert "DDP" in found["ddp_in_backward"][rank]["says"]
