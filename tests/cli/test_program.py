"""`pebbler export --ir`, `pebbler check FILE.ir` and `pebbler solve --resume`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from naive_cells import product_cost
from pebbler.solver import solve


@pytest.fixture
def columns():
    return 150


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    solve("matmul:m=2,n=2,k=2", "grid", time_limit=1).save(path)
    return path


def test_a_plan_is_exported_and_checked(cli, plan: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.ir"
    assert cli("export", plan, "--ir", path)[0] == 0
    status, out, _ = cli("check", path, "--json")
    answer = json.loads(out)
    assert status == 0
    assert answer["energy"] == product_cost(path.read_text(), 2, 2, 2) == json.loads(plan.read_text())["energy"]
    assert (answer["m"], answer["n"], answer["k"], answer["bound"]) == (2, 2, 2, 55)
    assert sum(int(far) * count for far, count in answer["distances"].items()) == answer["energy"]
    assert "no program that multiplies and adds the classical way costs less than 55" in cli("check", path)[1]


def test_a_program_that_computes_something_else(cli, tmp_path: Path) -> None:
    path = tmp_path / "wrong.ir"
    path.write_text("1,2\nadd 1,2\n1\n")
    status, out, _ = cli("check", path, "--json")
    assert (status, json.loads(out)["line"], json.loads(out)["legal"]) == (1, 3, False)
    assert cli("check", path)[0] == 1


def test_what_is_no_program(cli, plan: Path, tmp_path: Path) -> None:
    path = tmp_path / "wrong.ir"
    path.write_text("1,2\nmul 3\n1\n")
    noise = tmp_path / "noise.ir"
    noise.write_bytes(b"\xff\xfe1,2\n")
    empty = tmp_path / "empty.ir"
    empty.write_text("1,2;1,2,3")
    attempts: list[tuple[list[object], str]] = [
        ([path], "line 2: expected add d,s,t"),
        ([noise], "not a text file"),
        ([empty], "no matrix product has 2 inputs and 3 outputs"),
        ([empty, "--size", "1,1"], "--size: expected three whole numbers"),
        ([tmp_path / "no.ir"], f"error: {tmp_path}/no.ir: cannot be read"),
        ([plan, "--size", "2,2,2"], "--size is for programs"),
    ]
    for arguments, message in attempts:
        status, out, err = cli("check", *arguments)
        assert (status, out) == (2, ""), err
        assert message in err
        assert "Traceback" not in err


def test_nothing_to_export(cli, plan: Path) -> None:
    status, _, err = cli("export", plan)
    assert status == 2
    assert "say what to write" in err


def test_solving_goes_on_from_a_plan(cli, plan: Path, tmp_path: Path) -> None:
    question = ("solve", "matmul:m=2,n=2,k=2", "--machine", "grid", "--time-limit", "0", "--resume", plan, "--json")
    status, out, err = cli(*question)
    assert status == 0, err
    assert json.loads(out)["energy"] == json.loads(plan.read_text())["energy"]
    status, _, err = cli("solve", "chain:length=3", "--resume", plan)
    assert status == 2
    assert "is a plan of another graph" in err
