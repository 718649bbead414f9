"""The demo: the plan first, its notes folded behind it, and nothing solved or installed that it does not need."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from pebbler.game.plan import Plan
from pebbler.notes.demo import Demonstration, demonstrate
from pebbler.notes.reproduction import EXPERIMENTS, SWEEPS
from pebbler.referee.judgement import check

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Demonstration:
    return demonstrate(tmp_path_factory.mktemp("demo"))


def test_the_plan_is_saved_legal_and_three_times_cheaper(shown: Demonstration) -> None:
    plan = Plan.load(shown.plan_file)
    assert check(plan).energy == plan.energy == shown.after.energy
    assert shown.times_less > 3
    assert shown.results.largest_difference < 1e-12


def test_the_page_shows_the_player_first_and_folds_the_notes_behind_it(shown: Demonstration) -> None:
    text = shown.page.read_text(encoding="utf-8")
    assert shown.page.name == "report.html"
    places = [text.index(part) for part in ('id="player"', 'id="landscape"', 'id="notes"', "<footer>")]
    assert places == sorted(places)
    behind = text[places[2] : places[3]]
    folded = behind[behind.index("<details>") : behind.rindex("</details>")]
    assert all(f'id="{name}"' in folded for name in EXPERIMENTS if name not in SWEEPS)
    assert "<table" not in behind[: behind.index("<details>")]
    link = re.search(r'five short research notes.*?<a href="([^"]+)">', behind)
    assert link is not None
    assert (shown.page.parent / link[1]).is_file()
    ids = re.findall(r'\sid="([^"]+)"', text.partition('<script type="application/json"')[0])
    assert len(set(ids)) == len(ids)


def test_every_note_is_there_and_only_the_step_is_solved(shown: Demonstration) -> None:
    assert set(shown.experiments) == set(EXPERIMENTS) - set(SWEEPS) == set(EXPERIMENTS) - {"accuracy"}
    assert all(found.ok for found in shown.experiments.values())
    first = shown.experiments["pebble-game"]
    assert f"{shown.after.energy / 1e6:.3f}" in first.questions[0].answer
    assert any("pebbler reproduce" in question.answer for question in first.questions)


def test_make_demo_installs_the_package_alone() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    stamp = re.search(r"^demo: (\S+)$", text, re.MULTILINE)
    assert stamp is not None
    rule = text.partition(f"\n{stamp[1]}:")[2].partition("\n\n")[0]
    assert re.findall(r"--editable (\S+)", rule) == ["."]


def test_only_the_tests_pin_a_pytorch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert extras["torch"] == ["torch>=2.11"]
    assert "torch==2.13.0" in extras["test"]
    assert not any(one.startswith(("torch", "transformers", "playwright")) for one in project["dependencies"])
