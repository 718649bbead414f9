"""A folder of plans, verified at once."""

from __future__ import annotations

import json

import pytest
from benchmarks import verify_all

import pebbler as pb


@pytest.fixture(scope="module")
def plan():
    return pb.solve(pb.workloads.mlp(n=4, hidden=8), pb.machine("notes"), time_limit=3)


def test_a_folder_of_plans_is_verified(plan, tmp_path, capsys):
    assert plan.certificate is not None
    plan.save(tmp_path / "good.json")
    bare = json.loads((tmp_path / "good.json").read_text())
    del bare["proof"]["certificate"]
    (tmp_path / "bare.json").write_text(json.dumps(bare))
    assert verify_all.main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["file", "bare.json", "good.json", "2"]
    assert lines[1].endswith("no certificate")
    assert lines[3].startswith("2 files: 1 verified, 1 without a certificate, 0 wrong")


def test_plans_of_a_sweep_are_found(plan, tmp_path, capsys):
    (tmp_path / "plans" / "ab").mkdir(parents=True)
    (tmp_path / "row.json").write_text("{}")
    plan.save(tmp_path / "plans" / "ab" / "abcd.json")
    assert verify_all.main([str(tmp_path)]) == 0
    assert "1 files: 1 verified" in capsys.readouterr().out


def test_what_proves_nothing_is_named_and_makes_the_status_1(plan, tmp_path, capsys):
    plan.save(tmp_path / "plan.json")
    words = json.loads((tmp_path / "plan.json").read_text())
    words["proof"]["certificate"]["tree"] = {"axis": "no such axis"}
    (tmp_path / "plan.json").write_text(json.dumps(words))
    (tmp_path / "other.json").write_text("[]")
    assert verify_all.main([str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert "the certificate proves nothing: axis 'no such axis' cannot be split" in text
    assert "2 files: 0 verified, 0 without a certificate, 2 wrong" in text
