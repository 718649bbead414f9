"""The table of predicted and measured joules: errors, ratios of pairs, and a page that only real rows get into."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import energy_truth_page as truth

ROOT = Path(__file__).parents[1]


def row(model, schedule, predicted, joules, **more):
    return {
        "model": model,
        "schedule": schedule,
        "predicted_joules": predicted,
        "joules": joules,
        "seconds": 0.1,
    } | more


ROWS = [
    row("a", "eager", 11.0, 10.0),
    row("a", "compiled:0.5", 9.0, 10.0),
    row("a", "energy:0.5", 8.1, 9.0, predicted_seconds=0.06, op_energy={"static_watts": 100.0}),
    row("b", "eager", 20.0, 20.0),
    row("b", "torch.compile", None, 15.0),
    {"model": "b", "schedule": "compiled:0.5", "error": "Impossible: no"},
]


def test_errors_are_those_of_rows_and_of_pairs_within_a_model():
    steps, ratios = truth.errors(ROWS)
    assert steps == pytest.approx([0.1, 0.1, 0.1, 0.0])
    assert ratios == pytest.approx([11 / 9 - 1, 11 / 8.1 / (10 / 9) - 1, 0.0])
    assert truth.summarize(ROWS).startswith("4 rows: joules off by 7.5% on average, 10.0% at worst. 3 pairs:")
    assert "Nothing" in truth.summarize(ROWS[4:])


def test_plans_for_energy_stand_beside_plans_for_time():
    assert "| a | 0.5 | 10.00, 100.0 | 9.00, 100.0 | 8.10, 60.0 | 12.10 |" in truth.objective_table(
        ROWS
    )  # 40 ms of 100 W more
    assert truth.objective_table(ROWS[:2]) == "None was measured."


def test_the_page_keeps_what_stands_around_the_tables(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{truth.BEGIN}\nold\n{truth.END}\nafter\n")
    known = {"device": "GPU", "rows": ROWS}
    for _ in range(2):  # writing twice changes nothing
        truth.write_page([known], page, tmp_path / "plot.svg")
        text = page.read_text()
        assert text.startswith("before\n")
        assert text.endswith("\nafter\n")
        assert "old" not in text
        assert text.count("| a | eager |") == 1
    assert (tmp_path / "plot.svg").stat().st_size > 1000
    with pytest.raises(SystemExit, match="simulated"):
        truth.write_page([known | {"simulated": True}], page, None)
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="needs the lines"):
        truth.write_page([known], page, None)


def test_the_page_shows_what_the_file_of_measurements_says(capsys):
    names = ("energy_truth", "energy_truth_run1", "energy_truth_run2")
    known = [json.loads((ROOT / "benchmarks" / f"{name}.json").read_text(encoding="utf-8")) for name in names]
    truth.write_page(known, None, None)
    shown = (ROOT / "docs" / "truth.md").read_text(encoding="utf-8").partition(truth.BEGIN)[2].partition(truth.END)[0]
    assert capsys.readouterr().out.strip() == shown.strip()
