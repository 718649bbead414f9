"""Figures of the README and the docs: those that the commands printed when they were last run, wherever they stand."""

from __future__ import annotations

import importlib.util
import json
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def load() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("figures", ROOT / "docs" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FIGURES = load()
KEPT = FIGURES.kept_figures()


@pytest.mark.parametrize(("file", "template"), FIGURES.LINES)
def test_a_page_has_the_figure_that_the_command_printed(file: str, template: str) -> None:
    pattern, text = FIGURES.filled(template, KEPT)
    assert pattern.findall((ROOT / file).read_text(encoding="utf-8")) == [text]


def test_every_command_was_kept_as_it_is_now() -> None:
    assert {name: found["command"] for name, found in KEPT.items()} == {
        name: f"pebbler {command} --json" for name, command in FIGURES.COMMANDS.items()
    }


def test_kept_figures_agree_with_each_other() -> None:
    step, demo = KEPT["step"], KEPT["demo"]
    assert step["program_order_energy"] == demo["before"] == step["compare"][0]["energy"]
    assert step["bound"] <= step["energy"] <= demo["after"]
    assert demo["bound"] <= step["energy"]
    assert "/" not in json.dumps(demo | {"command": ""})  # no path of the machine that ran it


def test_a_figure_that_is_off_is_seen() -> None:
    pattern, text = FIGURES.filled("| + fusion | {step.compare.+ fusion|µJ} |", KEPT)
    assert pattern.fullmatch("| + fusion | 1.234 µJ |")
    assert text != "| + fusion | 1.234 µJ |"
