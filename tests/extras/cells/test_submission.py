"""Submissions: three files, of which one checks another with nothing but the standard library."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from naive_cells import product_cost
from pebbler.cli import app
from pebbler.errors import InputError
from pebbler.extras.cells.cell_program import CellProgram
from pebbler.extras.cells.product_verifier import verify

RECORDS = Path(__file__).parents[3] / "examples" / "records"


def run(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-S", "-I", str(file)], capture_output=True, text=True, check=False)


def test_a_submission_verifies_itself_and_refuses_another_program(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["export", str(RECORDS / "3x3x3.ir"), "--submission", str(tmp_path / "new"), "--json"]
    )
    assert done.exit_code == 0, done.output
    program, verifier, page = map(Path, json.loads(done.stdout)["submission"])
    cost = product_cost(program.read_text(), 3, 3, 3)
    assert run(verifier).stdout.endswith(f"cost {cost}\n")
    assert f"| all | {27 + 18 + 9 + program.read_text().count('copy')} | {cost} |" in page.read_text()
    program.write_text(program.read_text() + "\n")
    assert run(verifier).returncode == 1
    assert "SHA-256" in run(verifier).stdout


def test_programs_of_anything_else_are_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.ir"
    wrong.write_text("1,2\nadd 1,1,2\n1\n")
    done = CliRunner().invoke(app, ["export", str(wrong), "--submission", str(tmp_path / "new")])
    assert isinstance(done.exception, InputError)
    assert str(wrong) in str(done.exception)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2;mul 3,1,2;mul 3,3,1;3", "degree"),
        ("1,2;mul 3,1,1;3", "not element"),
        ("1,2;mul 0,1,2;1", "no cell"),
        ("1,1;mul 1,1,1;1", "numbers of inputs"),
        ("1,2;div 1,1,2;1", "no instruction"),
        ("1,2;mul 3,1,2;add 4,3,3;output 4,4,3;4", "no instruction"),  # a subtraction whose reads would be free
        ("1,2;mul 3,1,4;3", "holds nothing"),
        ("1,2;mul 3,1,2;4", "not element"),
        ("1,2", "no program"),
        ("", "no program"),
    ],
)
def test_the_verifier_refuses(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verify(text, (1, 1, 1))


def test_products_that_multiply_less_are_products() -> None:
    """A program need not be classical: (a + b) (c + d) - ... with subtractions, here 2 (x y) as x (y + y)."""
    assert verify("1,2;add 3,2,2;mul 4,1,3;mul 5,1,2;sub 4,4,5;4", (1, 1, 1))["sub"] == 5
    assert CellProgram.parse("1,2;add 3,2,2;mul 4,1,3;mul 5,1,2;sub 4,4,5;4").matching_sizes() == (1, 1, 1)


def test_the_verifier_and_the_second_interpreter_judge_changed_programs_alike() -> None:
    """A word of a program is changed: it may still compute the product, for another cost, or computes something else."""
    rng, right = random.Random(5), 0
    text = (RECORDS / "3x3x3.ir").read_text()
    lines = text.split("\n")
    for _ in range(400):
        at = rng.randrange(len(lines) - 1)
        words = re.split(r"([ ,])", lines[at])
        some = [i for i, word in enumerate(words) if word.isdigit()]
        kinds = [i for i, word in enumerate(words) if word in ("add", "mul", "sub")]
        if kinds and rng.random() < 0.2:
            words[kinds[0]] = rng.choice(["add", "mul", "sub"])
        else:
            words[rng.choice(some)] = str(rng.randint(1, 40))
        changed = "\n".join([*lines[:at], "".join(words), *lines[at + 1 :]])
        try:
            found: int | None = sum(verify(changed, (3, 3, 3)).values())
        except ValueError:
            found = None
        try:
            wanted: int | None = product_cost(changed, 3, 3, 3)
        except (AssertionError, KeyError, ValueError):
            wanted = None
        assert found == wanted, changed
        right += found is not None
    assert 5 < right < 200
