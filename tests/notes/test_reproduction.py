"""What `reproduce` writes: the same bytes every time, whole files only, and one page that needs nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from pebbler.cli.reproduce import reproduce as command
from pebbler.notes import note003_ard
from pebbler.notes.experiment import ClaimVerdict, Experiment, NoteTable, Plot, Question, Series, compare
from pebbler.notes.findings import markdown, write_findings
from pebbler.notes.note_plots import inline_svg, png
from pebbler.notes.notes_page import page
from pebbler.notes.reproduction import EXPERIMENTS, experiment_task, reproduce

RUN = "from pebbler.notes.reproduction import reproduce; reproduce(['ard', 'minibatch'], {out!r})"
DIE = (
    "import os, signal; real, count = os.replace, [0]\n"
    "def replace(a, b):\n"
    "    count[0] += 1\n"
    "    os.kill(os.getpid(), signal.SIGKILL) if count[0] == {at} else real(a, b)\n"
    "os.replace = replace\n"
)
NASTY = "<script>alert('|')</script> & \"W1\""


def run_apart(code: str, **environment: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True
    )
    return done.returncode


def stable(path: Path) -> dict:
    fields = json.loads(path.read_bytes())
    assert fields.pop("time")["seconds"] > 0
    assert fields.pop("versions")["numpy"]
    return fields


def sample(**changes: object) -> Experiment:
    experiment = Experiment(
        name="sample",
        note="999",
        question=NASTY,
        config={"name": NASTY},
        seeds=(1,),
        rows=(compare(NASTY, 1.25, "1.2", wrong=True, corrected=2, why=NASTY), compare("fine", 3, "3")),
        verdicts=(ClaimVerdict(claim=NASTY, truth="t", evidence="e"),),
        questions=(
            Question(
                question=NASTY, answer="a", tables=(NoteTable(title="t", columns=("a|b",), rows=((NASTY,), (None,))),)
            ),
        ),
        plots=(
            Plot(
                name="p", title="$W_1$ & <b>", x_label="x", y_label="y", series=(Series(label="a", x=(1, 2), y=(3, 4)),)
            ),
        ),
    )
    return msgspec.structs.replace(experiment, **changes)


@pytest.mark.slow
def test_two_runs_give_the_same_files(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    assert run_apart(RUN.format(out=str(a)), PYTHONHASHSEED="7", NUMBA_NUM_THREADS="2", OMP_NUM_THREADS="2") == 0
    reproduce(["ard", "minibatch"], b)
    names = sorted(str(path.relative_to(a)) for path in a.rglob("*") if path.is_file())
    assert names == sorted(str(path.relative_to(b)) for path in b.rglob("*") if path.is_file())
    assert {"report.html", "ard/results.json", "ard/findings.md", "minibatch/hit-rates.png"} <= set(names)
    for name in names:
        if name.endswith("results.json"):
            assert stable(a / name) == stable(b / name)
        else:
            assert (a / name).read_bytes() == (b / name).read_bytes(), name


@pytest.mark.parametrize("at", [2, 6])
def test_killed_in_the_middle_of_a_write_leaves_no_half_file(tmp_path, at):
    code = (
        DIE.format(at=at) + f"from pebbler.notes.reproduction import reproduce; reproduce(['ard'], {str(tmp_path)!r})"
    )
    killed = run_apart(code)
    assert killed == -9
    assert len(list(tmp_path.rglob("*.part"))) == 1
    for path in tmp_path.rglob("*"):
        if path.suffix == ".json":
            json.loads(path.read_bytes())
    found = reproduce(["ard"], tmp_path)
    assert found["ard"].ok
    assert list(tmp_path.rglob("*.part")) == []
    assert stable(tmp_path / "ard" / "results.json")["ok"] is True


def test_page_is_self_contained_and_escapes_everything():
    text = page([sample(), sample(name="other")])
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert not re.search(r'(?:src|href)\s*=\s*"(?!#)', re.sub(r'xmlns(:\w+)?="[^"]*"', "", text))
    assert "prefers-color-scheme" in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert "note is wrong" in text


def test_the_page_shows_what_was_measured_as_exactly_as_what_was_published():
    """0.965 stood beside 0.96, and was called reproduced."""
    text = page([sample(rows=(compare("accuracy", 0.9652, "0.965"), compare("distance", 17976.4028, "17,976")))])
    cells = re.findall(r'<td class="n">([^<]*)</td>', text)
    assert cells[:2] == ["0.965", "0.965"]
    assert cells[3:5] == ["17,976", "17,976.40"]


def test_findings_escape_table_bars():
    text = markdown(sample())
    assert "a\\|b" in text
    assert "alert('\\|')" in text


def test_plots_are_images(tmp_path):
    plot = sample().plots[0]
    assert png(plot).startswith(b"\x89PNG")
    assert inline_svg(plot, "a").startswith("<svg")
    write_findings(sample(), tmp_path, 1.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["findings.md", "p.png", "p.svg", "results.json"]


app = typer.Typer()
app.command()(command)


def test_command_prints_the_rows_as_json_and_nothing_else(tmp_path):
    result = CliRunner().invoke(app, ["ard", "--json", "--out", str(tmp_path)])
    assert result.exit_code == 0
    rows = json.loads(result.stdout)["experiments"]["ard"]["rows"]
    assert {"name", "published", "measured", "match"} <= set(rows[0])
    assert all(set(row) <= {"name", "published", "measured", "match", "corrected"} for row in rows)
    assert any(row["measured"] == 17976.402757373715 for row in rows)
    assert "report.html" in result.stderr


def test_command_fits_eighty_columns_and_fails_when_a_figure_does(tmp_path, monkeypatch):
    real = note003_ard.run()
    wrong = msgspec.structs.replace(real, rows=(*real.rows, compare("made up", 1, "2")))
    monkeypatch.setattr(note003_ard, "run", lambda: wrong)
    result = CliRunner().invoke(app, ["ard", "--out", str(tmp_path)], env={"COLUMNS": "80"})
    assert result.exit_code == 1
    assert "made up" in result.stderr
    table = result.stdout.split("Claim:")[0]
    assert max(len(line.rstrip()) for line in table.splitlines()) <= 80


def test_every_experiment_has_its_module_and_every_note_its_experiment():
    modules = {path.stem for path in Path(note003_ard.__file__).parent.glob("note0*.py")}
    assert set(EXPERIMENTS.values()) <= modules
    assert {module[:7] for module in EXPERIMENTS.values()} == {module[:7] for module in modules}


@pytest.mark.parametrize("name", ["ard", "chain"])
def test_an_experiment_comes_back_whole_from_its_process(name):
    here = import_module(f"pebbler.notes.{EXPERIMENTS[name]}").run()
    there, seconds = msgspec.msgpack.decode(experiment_task(name.encode()), type=tuple[Experiment, float])
    assert msgspec.json.encode(there) == msgspec.json.encode(here)
    assert seconds > 0
