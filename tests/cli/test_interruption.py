"""Ctrl-C, sent to the real commands at several moments: they end at once, with status 130, and what was found is kept."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import pebbler as pb
from pebbler.cli.interruption import INTERRUPTED
from pebbler.sweeps.sweep_table import load_table
from quick_cases import quick_only

LONG = "deep-mlp:n=10,hidden=60,layers=4"
NOTHING = "interrupted: nothing had been found yet"
PRESSES = quick_only([3], [1, 3])  # three are one, and two more that must change nothing
PATIENCE = 120  # seconds until a moment comes, on a machine that is busy and has to compile kernels
AT_ONCE = 20  # seconds to end: a few, and as much again for a busy machine; the commands would run for minutes


@dataclass(frozen=True)
class Ended:
    """How an interrupted command has ended."""

    out: str
    err: str


def interrupt(
    folder: Path, *arguments: str, when: str | re.Pattern[str], presses: int = 1, imports: bool = False
) -> Ended:
    """Run `pebbler`, press Ctrl-C when a text shows on its terminal, and return what it printed.

    With `imports` Python names every module as it is imported, so that `when` can be one of them.
    """
    terminal, other = pty.openpty()
    options = ["-X", "importtime"] if imports else []
    with subprocess.Popen(
        [sys.executable, *options, "-m", "pebbler", *arguments],
        stdout=subprocess.PIPE,
        stderr=other,
        cwd=folder,
        env=os.environ | {"COLUMNS": "200", "TERM": "xterm"},
        text=True,
        start_new_session=True,
    ) as process:
        os.close(other)
        try:
            shown = read_until(terminal, when)
            for _ in range(presses):
                process.send_signal(signal.SIGINT)
            shown += read_until(terminal, None)
            out = process.communicate(timeout=AT_ONCE)[0]
        finally:
            process.kill()
            os.close(terminal)
    assert process.returncode == INTERRUPTED, shown[-400:]
    assert "Traceback" not in shown
    assert not list(folder.rglob("*.part"))
    return Ended(out, shown)


def read_until(terminal: int, text: str | re.Pattern[str] | None) -> str:
    """Return what shows until a text does, or one that a pattern matches, or until the program ends."""
    pattern = re.compile(re.escape(text)) if isinstance(text, str) else text
    shown, deadline = b"", time.monotonic() + (PATIENCE if text else AT_ONCE)
    while pattern is None or not pattern.search(shown.decode(errors="replace")):
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{text or 'the end'} did not come: {shown[-400:]!r}"
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            part = b""
        if not part:
            assert text is None, f"ended without {text}: {shown[-400:]!r}"
            break
        shown += part
    return shown.decode()


@pytest.mark.parametrize("module", quick_only(["typer.core"], ["typer.core", "pebbler.game.graph", "numba.core"]))
def test_solve_while_it_is_being_imported(tmp_path, module):
    ended = interrupt(tmp_path, "solve", LONG, "-o", "plan.json", when=module, imports=True)
    found = (tmp_path / "plan.json").exists()  # on a busy machine the text may be read late
    assert found != (NOTHING in ended.err)
    assert bool(ended.out) == found


@pytest.mark.parametrize("presses", PRESSES)
def test_solve_keeps_the_best_plan_so_far(tmp_path, presses):
    ended = interrupt(
        tmp_path, "solve", LONG, "--time-limit", "300", "-o", "p.json", "--report", "r.html", "--json",
        when="best", presses=presses,
    )  # fmt: skip
    answer = json.loads(ended.out)
    plan = pb.Plan.load(tmp_path / "p.json")
    assert pb.check(plan).energy == pytest.approx(answer["energy"])
    assert answer["cut_off"] is plan.meta["cut_off"] is True
    for line in ("interrupted: this is the best plan so far", "wrote p.json", "not written: r.html"):
        assert line in ended.err


@pytest.mark.slow
def test_solve_on_an_explicit_machine_and_to_the_standard_output(tmp_path):
    ended = interrupt(
        tmp_path, "solve", LONG, "--machine", "notes-explicit", "--time-limit", "300", "-o", "-", when="best"
    )
    (tmp_path / "plan.json").write_text(ended.out)
    assert pb.check(pb.Plan.load(tmp_path / "plan.json")).legal


@pytest.mark.slow
def test_solve_while_it_compares(tmp_path):
    ended = interrupt(
        tmp_path, "solve", "mlp:n=20,hidden=1000", "--time-limit", "8", "--compare", "-o", "plan.json", when="comparing"
    )
    assert "program order" in ended.out
    assert pb.check(pb.Plan.load(tmp_path / "plan.json")).legal


def test_chain_in_its_kernels(tmp_path):
    ended = interrupt(tmp_path, "chain", "--length", "100000", "--red", "1000", when="solving the chain")
    assert (ended.out, NOTHING in ended.err) == ("", True)


@pytest.mark.slow
def test_reproduce_keeps_the_experiments_that_were_finished(tmp_path):
    ended = interrupt(tmp_path, "reproduce", "ard", "minibatch", "--out", "notes", when="reproducing minibatch")
    assert "ard (note 003)" in ended.out
    assert "minibatch was not finished" in ended.err
    assert json.loads((tmp_path / "notes" / "ard" / "results.json").read_bytes())["ok"] is True
    assert not (tmp_path / "notes" / "report.html").exists()


def test_reproduce_goes_on_with_a_grid_that_was_stopped(tmp_path):
    ended = interrupt(tmp_path, "reproduce", "accuracy", "--out", "notes", when="accuracy: training")
    assert (ended.out, "the same command continues accuracy from notes/accuracy" in ended.err) == ("", True)
    assert list((tmp_path / "notes" / "accuracy" / "runs" / "training" / "rows").glob("*/*.json"))
    assert not (tmp_path / "notes" / "accuracy" / "results.json").exists()


@pytest.mark.slow
def test_commands_that_have_found_nothing_say_so_and_leave_nothing(tmp_path):
    pb.Plan.in_order(pb.workloads.mlp(), pb.machine("notes")).save(tmp_path / "plan.json")
    large = "mlp:n=2000,hidden=2000"
    for arguments, when in (
        (["trace", large, "-o", "trace.npz"], "accesses"),
        (["report", "plan.json", "-o", "report.html"], "gathering"),
    ):
        ended = interrupt(tmp_path, *arguments, when=when)
        assert (ended.out, NOTHING in ended.err) == ("", True)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_torch_while_it_plans(tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")
    (tmp_path / "steps.py").write_text(
        "import time, torch\n"
        "def small():\n"
        "    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8)))\n"
        "    def step(x):\n"
        "        time.sleep(20)\n"  # so that nothing has been found when the signal comes
        "        loss = model(x).square().mean()\n"
        "        loss.backward()\n"
        "        return loss\n"
        "    return step, (torch.ones(4, 64),)\n"
    )
    ended = interrupt(tmp_path, "torch", "steps.py:small", "--device", "cpu", when="recording")
    assert (ended.out, NOTHING in ended.err) == ("", True)


# A step whose search never ends by itself soon: uneven layers, and half of the memory that they want.
UNEVEN = """
import torch
def uneven():
    widths = [16 + 8 * (7 * i % 11) for i in range(40)]
    model = torch.nn.Sequential(*(torch.nn.Linear(a, b) for a, b in zip(widths, widths[1:])))
    rule = torch.optim.SGD(model.parameters(), lr=0.1)
    def step(x):
        rule.zero_grad()
        loss = model(x).tanh().square().mean()
        loss.backward()
        rule.step()
        return loss
    return step, (torch.ones(64, widths[0]),)
"""


@pytest.mark.slow
@pytest.mark.parametrize("presses", [1, 3])
def test_torch_keeps_the_best_plan_so_far(tmp_path, presses):
    pt = pytest.importorskip("pebbler.torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")
    (tmp_path / "steps.py").write_text(UNEVEN)
    ended = interrupt(
        tmp_path, "torch", "steps.py:uneven", "--device", "cpu", "--budget", "600kB", "--time-limit", "300", "-o", "plan.json",
        "--json", when=": best", presses=presses,
    )  # fmt: skip
    answer, plan = json.loads(ended.out), pt.TorchPlan.load(tmp_path / "plan.json")
    assert answer["cut_off"] is plan.plan.meta["cut_off"] is True
    assert answer["peak"] == plan.peak <= plan.budget
    assert pb.check(plan.plan).legal
    for line in ("interrupted: this is the best plan so far", "wrote plan.json"):
        assert line in ended.err


# Presses Ctrl-C when the command has answered and Python is on its way out.
AFTER_THE_ANSWER = """
import atexit, os, signal, sys
from pebbler.__main__ import main
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.argv[1:] = ["machines"]
main()
"""


def test_it_is_too_late_when_the_answer_is_there():
    done = subprocess.run([sys.executable, "-c", AFTER_THE_ANSWER], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "notes-explicit" in done.stdout


def test_what_is_held_is_only_kept_when_the_command_has_not_answered_yet():
    """Without Ctrl-C the block ends as any other, in whatever thread it runs."""
    from pebbler.cli.interruption import hold, run_command

    kept, ran = [], []

    def command() -> None:
        with hold(lambda: bool(kept.append("kept"))):
            ran.append("work")
        ran.append("answer")

    run_command(command)
    assert (kept, ran) == ([], ["work", "answer"])
    with pytest.raises(SystemExit):
        run_command(lambda: sys.exit(3))


def test_solve_while_its_kernels_are_compiled(tmp_path, monkeypatch):
    """Nothing is found yet, and the processes that compile end with the command."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    ended = interrupt(tmp_path, "solve", LONG, when="compiling kernels")
    assert (ended.out, NOTHING in ended.err) == ("", True)


@pytest.mark.slow
def test_cache_and_demo_leave_nothing_behind_when_they_have_found_nothing(tmp_path):
    np.save(tmp_path / "trace.npy", np.random.default_rng(0).integers(0, 1_000_000, 6_000_000))
    for arguments, when in (
        (["cache", "trace.npy", "--plot", "misses.png"], "reading"),
        (["demo", "--out", "demo"], "the notes"),
    ):
        ended = interrupt(tmp_path, *arguments, when=when)
        assert (ended.out, NOTHING in ended.err) == ("", True)
        assert "resource_tracker" not in ended.err  # nothing but what we say ourselves
    assert not (tmp_path / "misses.png").exists()
    assert not list(tmp_path.glob("demo/*.html"))


@pytest.mark.slow
def test_a_sweep_keeps_what_is_done_and_the_same_command_goes_on(tmp_path):
    long = ("sweep", "chain:length=2..120", "--capacity", "fast=3", "--workers", "1", "-o", "out", "--reports", "0")
    ended = interrupt(tmp_path, *long, "--json", when=re.compile(r"[1-9]\d* of 119 runs"))
    rows = load_table(tmp_path / "out").rows
    assert 1 <= len(rows) < 119
    assert f"interrupted: {len(rows)} of 119 runs are done and kept; the same command continues from there" in ended.err
    assert len(json.loads(ended.out)["rows"]) == len(rows)
    plan = pb.Plan.load(tmp_path / "out" / "plans" / rows[0]["key"][:2] / f"{rows[0]['key']}.json")
    assert pb.check(plan).energy == rows[0]["energy"]
    before = {row["key"]: row["finished"] for row in rows}
    subprocess.run([sys.executable, "-m", "pebbler", *long], cwd=tmp_path, check=True, capture_output=True)
    now = {row["key"]: row["finished"] for row in load_table(tmp_path / "out").rows}
    assert len(now) == 119
    assert {key: now[key] for key in before} == before
