"""The page of energy to accuracy: what was measured on the whole grid, and nothing else."""

from __future__ import annotations

import math

import msgspec
import pytest
from benchmarks import accuracy_page

from pebbler.notes import note001_chain
from pebbler.notes.accuracy_grid import BEST, FULL, SCHEDULES, closed_prices
from pebbler.notes.accuracy_map import trained_cells
from pebbler.notes.note004_accuracy import experiment

KEPT = accuracy_page.kept_measurements()


@pytest.fixture(scope="module")
def found():
    return experiment(KEPT)


def test_the_page_says_what_was_measured(found):
    page = accuracy_page.PAGE.read_text(encoding="utf-8")
    assert accuracy_page.written(page, found, note001_chain.run()) == page
    for picture in (accuracy_page.PICTURE, accuracy_page.SPACING):
        assert f"({picture.relative_to(accuracy_page.DOCS)})" in page
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_other_measurements_make_another_page():
    page = accuracy_page.PAGE.read_text(encoding="utf-8")
    doubled = [msgspec.structs.replace(one, energy=2 * one.energy) for one in KEPT.prices]
    other = experiment(msgspec.structs.replace(KEPT, prices=tuple(doubled)))
    assert accuracy_page.written(page, other, note001_chain.run()) != page


def test_the_whole_grid_was_measured():
    assert KEPT.grid == FULL
    assert len(KEPT.trained) == len(FULL.cells) * len(FULL.rates)
    assert all(len(seeds) == len(FULL.seeds) for one in KEPT.trained for seeds in one.samples)
    priced = {(one.batch, one.hidden, one.machine, one.schedule) for one in KEPT.prices}
    assert len(priced) == len(KEPT.prices) == len(FULL.cells) * len(FULL.machines) * len(SCHEDULES)
    assert list(closed_prices(KEPT.prices)) == list(KEPT.prices)
    assert all(one.bound <= one.energy for one in KEPT.prices)


def test_no_best_rate_lies_at_the_edge_of_the_grid():
    """A best rate at the edge would be no best one: then the batch size were blamed for the rate."""
    for goal in KEPT.goals:
        for cell in trained_cells(KEPT, goal).values():
            if math.isfinite(cell.samples):
                assert FULL.rates[0] < cell.lr < FULL.rates[-1], cell


def test_figures_that_are_shown_hold_up(found):
    assert found.ok
    names = [row.name for row in found.rows]
    assert len(set(names)) == len(names)
    assert (
        max(len(f"{row.name} ({row.unit})") for row in found.rows) <= 36
    )  # so that the command's table fits 80 columns
    assert all(row.corrected is not None and row.why for row in found.rows if row.wrong)
    for question in found.questions:
        assert question.answer
        assert all(len(row) == len(one.columns) for one in question.tables for row in one.rows)
    best = next(
        one for question in found.questions for one in question.tables if one.title.startswith("The best cell by acc")
    )
    for row in best.rows:
        _, machine, batch, hidden, _, samples, energy, _, bound, _ = row
        price = next(
            one for one in KEPT.prices
            if (one.batch, one.hidden, one.machine, one.schedule) == (batch, hidden, machine, BEST)
        )  # fmt: skip
        assert energy == pytest.approx(samples / batch * price.energy / 1e6)
        assert bound == pytest.approx(samples / batch * price.bound / 1e6)
