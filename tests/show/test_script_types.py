"""The pages' scripts are typed: tsc finds nothing, and the types of the data are those of the dataclasses that they come from."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import types
import typing
from pathlib import Path

import pytest

from pebbler.show.play import hand_levels
from pebbler.show.report import capacity_sweep, landscape, page_data, proof_note, saving_steps, step_names, step_reuse
from pebbler.sweeps.sweep_row import SweepRow

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "src/pebbler/show/report/assets"
DATA = (
    page_data.RowsData, page_data.GraphData, page_data.JudgementData, page_data.ClaimData, page_data.PlanData,
    page_data.ReportData, landscape.Landscape, landscape.Mark, capacity_sweep.CapacityCurve, saving_steps.SavingStep,
    proof_note.ProofNote, step_reuse.StepReuse, step_reuse.Knee, step_names.StepNames,
    step_names.BudgetData, step_names.BudgetPoint, step_names.UnlimitedStep, page_data.BudgetCurve,
    page_data.EarlierPhases, hand_levels.HandLevel, hand_levels.PlayData, SweepRow,
)  # fmt: skip
# Columns that the page of a sweep adds to its rows: the best known plan of each, and links.
MADE_FOR_THE_PAGE = {SweepRow: {"best_energy", "best_bound", "best_key", "plan", "report"}}
SCALARS = {int: "number", float: "number", str: "string", bool: "boolean", type(None): "null"}


def compiler() -> str | None:
    """Return tsc, from the repository's own packages or from the machine."""
    return shutil.which("tsc", path=str(ROOT / "node_modules/.bin")) or shutil.which("tsc")


@pytest.mark.slow
@pytest.mark.skipif(
    compiler() is None, reason="types of scripts need tsc: npm install, or apt-get install node-typescript"
)
def test_tsc_finds_nothing() -> None:
    found = subprocess.run([str(compiler()), "-p", str(ASSETS)], capture_output=True, text=True, check=False)
    assert (found.stdout, found.returncode) == ("", 0)


def declared() -> dict[str, dict[str, str]]:
    """Return the fields of every interface in types.d.ts, those that it extends included."""
    text = (ASSETS / "types.d.ts").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = {}
    for name, base, body in re.findall(
        r"^interface (\w+)(?: extends (\w+))? \{\n(.*?)^\}", text, re.DOTALL | re.MULTILINE
    ):
        fields = dict(re.findall(r"^  (\w+)\??: (.*);$", body, re.MULTILINE))
        found[name] = found.get(base, {}) | fields
    return found


def in_typescript(hint: object) -> str:
    """Return a Python type as TypeScript writes it."""
    if hint in SCALARS:
        return SCALARS[typing.cast("type", hint)]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return " | ".join(f'"{word}"' for word in arguments)
    if origin is list:
        inner = in_typescript(arguments[0])
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if origin is dict:
        return f"Record<{', '.join(map(in_typescript, arguments))}>"
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(in_typescript, arguments))
    return getattr(hint, "__name__", str(hint))


@pytest.mark.parametrize("data", DATA, ids=lambda data: data.__name__)
def test_the_types_of_the_data_are_those_of_the_dataclasses(data: type) -> None:
    # A graph is completed by the scripts before anything else uses it; moves have the same lists wherever they are from.
    renamed = {"GraphData": "Graph", "MovesData": "Moves"}
    expected = {
        name: re.sub(r"\w+", lambda word: renamed.get(word[0], word[0]), in_typescript(hint))
        for name, hint in typing.get_type_hints(data).items()
    }
    found = declared()[data.__name__]
    assert {name: found.get(name) for name in expected} == expected
    assert found.keys() - expected.keys() == MADE_FOR_THE_PAGE.get(data, set())


def test_no_script_is_left_out_of_the_check() -> None:
    config = json.loads((ASSETS / "tsconfig.json").read_text(encoding="utf-8"))
    assert config.keys() == {"compilerOptions", "include"}
    assert config["include"] == ["*.js", "*.d.ts"]


def test_all_strict_options_are_on() -> None:
    options = json.loads((ASSETS / "tsconfig.json").read_text(encoding="utf-8"))["compilerOptions"]
    assert options["checkJs"] is options["strict"] is True
    assert not [name for name, value in options.items() if value is False]


@pytest.mark.parametrize("path", sorted([*ASSETS.glob("*.js"), *ASSETS.glob("*.d.ts")]), ids=lambda path: path.name)
def test_no_script_goes_around_its_types(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"@ts-\w+|\bany\[\]|[{<:,|(] *any\b *[}>,;|)=]", text)
