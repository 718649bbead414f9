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
MEASURED = FIGURES.measured_figures()


@pytest.mark.parametrize(("file", "template"), FIGURES.LINES)
def test_a_page_has_the_figure_that_the_command_printed(file: str, template: str) -> None:
    pattern, text = FIGURES.filled(template, KEPT | MEASURED)
    assert pattern.findall((ROOT / file).read_text(encoding="utf-8")) == [text]


def test_the_table_of_a_gpu_has_the_rows_of_its_file() -> None:
    page = (ROOT / "docs" / "torch.md").read_text(encoding="utf-8")
    table = page.partition("| variant | budget GiB |")[2].partition("\n\n")[0].splitlines()[2:]
    shown = [tuple(cell.strip() for cell in line.split("|")[-3:-1]) for line in table]
    rows = json.loads((ROOT / "benchmarks" / "torch_gpu.json").read_text(encoding="utf-8"))["rows"]
    assert shown == [(f"{row['peak'] / 2**30:.2f}", f"{row['ms']:.1f}") for row in rows]


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
