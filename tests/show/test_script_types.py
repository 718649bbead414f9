"""The pages' scripts are typed: tsc finds nothing, and the types of the data are those of the dataclasses that they come from."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import types
import typing
from pathlib import Path

import pytest

from pebbler.show.report import capacity_sweep, landscape, page_data, proof_note, saving_steps, step_names, step_reuse

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "src/pebbler/show/report/assets"
DATA = (
    page_data.RowsData, page_data.GraphData, page_data.JudgementData, page_data.ClaimData, page_data.PlanData,
    page_data.ReportData, landscape.Landscape, landscape.Mark, capacity_sweep.CapacityCurve, saving_steps.SavingStep,
    proof_note.ProofNote, step_reuse.StepReuse, step_reuse.Knee, step_names.StepNames,
)  # fmt: skip
SCALARS = {int: "number", float: "number", str: "string", bool: "boolean", type(None): "null"}


def compiler() -> str | None:
    """Return tsc, from the repository's own packages or from the machine."""
    return shutil.which("tsc", path=str(ROOT / "node_modules/.bin")) or shutil.which("tsc")


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
        found[name] = (found[base] if base else {}) | fields
    return found


def in_typescript(hint: object) -> str:
    """Return a Python type as TypeScript writes it."""
    if hint in SCALARS:
        return SCALARS[typing.cast("type", hint)]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
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
    hints = typing.get_type_hints(data)
    expected = {field.name: in_typescript(hints[field.name]) for field in dataclasses.fields(data)}
    found = {name: kind.replace("Graph[]", "GraphData[]") for name, kind in declared()[data.__name__].items()}
    assert found == expected


def test_no_script_is_left_out_of_the_check() -> None:
    config = (ASSETS / "tsconfig.json").read_text(encoding="utf-8")
    assert '"checkJs": true' in config
    assert '"include": ["*.js", "types.d.ts"]' in config
    assert "exclude" not in config
    assert not [path.name for path in ASSETS.glob("*.js") if "@ts-nocheck" in path.read_text(encoding="utf-8")]
