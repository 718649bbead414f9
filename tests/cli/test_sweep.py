"""`pebbler sweep`: answers, files, exit status, wrong input, and Ctrl-C."""

from __future__ import annotations

import json

import pytest

from pebbler.cli.sweep import _print as print_rows

SMALL = ("sweep", "chain:length=4|6", "--capacity", "fast=3..5", "--workers", "1", "-o", "out")


@pytest.fixture
def columns():
    return 120


def test_a_sweep_lists_runs_does_them_and_then_only_what_is_missing(cli, tmp_path):
    status, out, _ = cli(*SMALL, "--dry-run")
    assert status == 0
    assert "6 runs, 0 done" in out
    assert not (tmp_path / "out").exists()
    status, out, err = cli(*SMALL, "--json", "--reports", "1")
    answer = json.loads(out)
    assert status == 0
    assert [row["capacity"] for row in answer["rows"]] == [3, 4, 5, 3, 4, 5]
    assert "wrote out/table.csv, out/table.json" in err
    assert "index.html" in err
    assert len(list((tmp_path / "out" / "reports").glob("*.html"))) == 1
    status, out, _ = cli(*SMALL, "--dry-run", "--json")
    assert [run["done"] for run in json.loads(out)["runs"]] == [True] * 6
    status, out, _ = cli(*SMALL, "--reports", "0")
    assert status == 0
    assert out.count("optimal") == 6


def test_one_machine_is_named_once_and_its_rows_fit_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    row = {
        "graph": "mlp:n=20,hidden=1000",
        "machine": "notes-explicit",
        "energy": 11_667_000,
        "energy_unit": "pJ",
        "gap": 0.1151,
    }
    rows = [row | {"capacity": capacity, "status": "bounded"} for capacity in (1024, 65536)]
    print_rows(rows)
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "on notes-explicit"
    assert [line.split() for line in lines if "mlp" in line] == [
        ["mlp:n=20,hidden=1000", capacity, "11.667", "µJ", "11.51%", "bounded"] for capacity in ("1,024", "65,536")
    ]
    print_rows([*rows, rows[0] | {"machine": "notes"}])
    assert "notes-explic" in capsys.readouterr().out


def test_a_spec_file_and_failures(cli, tmp_path):
    (tmp_path / "s.toml").write_text('graphs = "chain:length=5"\ntime_limit = 9\n[capacity]\nfast = [1, 3]\n')
    status, out, _ = cli("sweep", "s.toml", "-o", "o", "--workers", "1", "--retries", "0", "--memory", "1MiB")
    assert status == 1
    assert out.count("failed: chain:length=5 on red-blue: it") == 2
    status, out, _ = cli("sweep", "s.toml", "-o", "o", "--workers", "1")
    assert status == 1  # a failure is kept until it is asked for again
    status, out, _ = cli("sweep", "s.toml", "-o", "o", "--workers", "1", "--retry-failed", "--reports", "0")
    assert status == 0
    assert "impossible" in out
    assert "optimal" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chain", "--capacity", "fast"], "expected LEVEL=AMOUNTS"),
        (["chain", "--capacity", "fast=3", "--capacity", "fast=4"], "each level once"),
        (["chain", "--capacity", "fast=3..1"], "is no range"),
        (["chain", "--time-limit", "x"], "expected seconds"),
        (["chain", "--seed", "x"], "--seed"),
        (["chain", "--engine", "ray"], "--engine must be local or dask"),
        (["chain", "--scheduler", "tcp://127.0.0.1:1"], "is for the engine dask"),
        (["chain", "--workers", "0"], "workers must be at least 1"),
        (["chain", "--memory", "50%"], "--memory"),
        (["chain", "--retries", "-1"], "retries must be"),
        (["chain", "--kill-after", "0"], "--kill-after"),
        (["chain", "--reports", "-1"], "--reports"),
        (["a.toml", "chain"], "stands alone"),
        (["a.toml"], "a.toml: cannot be read"),
        (["chain", "-o", "file"], "this is a file"),
        (["chain", "-o", "/proc/nowhere"], "cannot be written"),
        (["nowhere:training"], "cannot be imported"),
    ],
)
def test_wrong_input_is_one_line(cli, tmp_path, arguments, message):
    (tmp_path / "file").write_text("x")
    status, out, err = cli("sweep", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert len(err.splitlines()) <= 2
    assert not (tmp_path / "sweep").exists()
