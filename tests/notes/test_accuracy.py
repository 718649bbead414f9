"""Energy to accuracy: the training against its twin and the graph that is planned, the choice of cells, and nothing dropped."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_training as naive
from pebbler.errors import InputError, PebblerError
from pebbler.game.graph import Graph
from pebbler.game.machine import machine
from pebbler.game.plan import Plan
from pebbler.notes import Config, accuracy_grid, draw_data, draw_params, train
from pebbler.notes.accuracy_grid import (
    BEST,
    ONCE,
    PROGRAM,
    QUICK,
    SCHEDULES,
    UNTILED,
    AccuracyGrid,
    Measurements,
    StepPrice,
    TrainedRuns,
    closed_prices,
    measure,
    plan_runs,
    step_graph,
)  # fmt: skip
from pebbler.notes.accuracy_map import RESAMPLES, energy_map, median, trained_cells
from pebbler.notes.batch_sgd import GOALS, accuracy_curve, samples_to_goals
from pebbler.notes.kernels.sgd_batches import train_batches
from pebbler.notes.note004_accuracy import experiment
from pebbler.notes.note_plots import inline_svg
from pebbler.notes.notes_page import page
from pebbler.notes.reproduction import reproduce
from pebbler.run.numbers import execute


def trained(config: Config, batch: int, stride: int, looks: int) -> tuple[dict, np.ndarray]:
    """Return the kernel's parameters after some looks, and how many test samples were right at each."""
    data, start = draw_data(config), draw_params(config)
    w1, vectors = np.ascontiguousarray(start.W1.T), np.stack([start.b1, start.W2])
    rates, right = np.array([config.lr, config.wd, start.b2]), np.zeros(looks, np.int64)
    taken = train_batches(
        data.x_train, data.y_train, data.x_test, data.y_test, w1, vectors, rates, batch, stride, right
    )
    return {"W1": w1.T, "b1": vectors[0], "W2": vectors[1], "b2": rates[2]}, right[:taken]


def start_of(config: Config) -> dict[str, np.ndarray]:
    start = draw_params(config)
    return {"W1": start.W1, "b1": start.b1, "W2": start.W2, "b2": np.array(start.b2)}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_kernel_trains_as_its_twin_does(data):
    n, hidden = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 12))
    batch = data.draw(st.sampled_from([1, 2, 4, 8]))
    config = Config(
        n=n, k=data.draw(st.integers(1, n)), hidden=hidden, seed=data.draw(st.integers(0, 10**6)),
        lr=data.draw(st.sampled_from([0.01, 0.3, 2.0])), wd=data.draw(st.sampled_from([0.0, 0.01, 0.2])),
        n_train=data.draw(st.integers(1, 11)), n_test=5,
    )  # fmt: skip
    got, right = trained(config, batch, 8, 2)
    samples, params = draw_data(config), start_of(config)
    order = np.arange(8 * len(right)) % config.n_train  # over and over, also across the end of the data
    counts = []
    for look in range(len(right)):
        for at in range(8 * look, 8 * (look + 1), batch):
            some = order[at : at + batch]
            params = naive.batch_step(params, samples.x_train[some], samples.y_train[some], config.lr, config.wd)
        outputs = np.maximum(samples.x_test @ params["W1"].T + params["b1"], 0) @ params["W2"] + params["b2"]
        counts.append(int(np.count_nonzero(outputs * samples.y_test > 0)))
    for name, value in params.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-9, atol=1e-9)
    assert right.tolist() == counts
    assert len(right) == 2 or right[-1] == config.n_test


@pytest.mark.parametrize("batch", [1, 4, 32])
def test_the_first_steps_are_those_of_the_graph_that_is_planned(batch):
    config = Config(hidden=30, lr=0.7)
    graph = step_graph(batch, config.hidden)
    ops = [
        msgspec.structs.replace(op, meta=op.meta | {"lr": config.lr}) if op.meta.get("kernel") == "sgd" else op
        for op in graph.ops
    ]
    plan = Plan.in_order(Graph(graph.name, graph.unit, graph.tensors, ops), machine("notes"), steady=True)
    data, params = draw_data(config), start_of(config)
    for step in range(3):
        some = slice(step * batch, (step + 1) * batch)
        inputs = {"x": data.x_train[some], "y": data.y_train[some]}
        if batch == 1:
            inputs = {"x": data.x_train[step], "y": data.y_train[step]}
        params = execute(plan, params | inputs)
    got, _ = trained(config, batch, 3 * batch, 1)
    for name, value in params.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-11, atol=1e-13)


def test_batches_of_one_are_the_training_of_note_000():
    config = Config(hidden=40, n_train=64, n_test=50, max_epochs=1, always_update=True)
    got, right = trained(config, 1, 64, 1)
    there = train(config)
    for name in ("W1", "b1", "W2"):
        np.testing.assert_allclose(got[name], getattr(there.params, name), rtol=1e-12, atol=1e-14)
    assert right[0] / 50 == there.test_accuracy[0]


def test_training_that_overflows_ends_and_never_gets_there():
    accuracies = accuracy_curve(Config(hidden=20, lr=1e200), batch=1, looks=50)
    assert len(accuracies) < 50
    assert samples_to_goals(accuracies) == [None, None]


def test_a_batch_that_does_not_divide_a_look_is_refused():
    with pytest.raises(InputError, match="divisor of 128, got 3"):
        accuracy_curve(Config(hidden=5), batch=3, looks=1)


GRID = AccuracyGrid(
    batches=(1, 2), hidden=(5, 7), rates=(0.1, 0.2), seeds=(1, 2, 3, 4, 5), machines=("notes",), looks=4
)


def made_up(samples: dict, energy: dict) -> Measurements:
    """Return measurements in which (batch, hidden, lr) takes these samples, for both accuracies, and steps cost so much."""
    runs = [
        TrainedRuns(batch, hidden, lr, (samples[batch, hidden, lr],) * 2)
        for batch, hidden in GRID.cells
        for lr in GRID.rates
    ]
    prices = [
        StepPrice(*cell, "notes", kind, energy[cell], energy[cell] / 2) for cell in GRID.cells for kind in SCHEDULES
    ]
    return Measurements(GRID, GOALS, tuple(runs), tuple(prices))


SLOW = (512,) * 5
SAMPLES = {(b, h, lr): SLOW for b, h in GRID.cells for lr in GRID.rates} | {
    (1, 5, 0.2): (128, 128, None, 256, 384),
    (2, 7, 0.1): (None, None, None, 128, 128),
    (2, 7, 0.2): (None,) * 5,
}
ENERGY = {(1, 5): 2e6, (1, 7): 1.25e6, (2, 5): 6e6, (2, 7): 1e6}


def test_the_best_rate_is_taken_and_seeds_that_fail_count_as_late():
    cells = trained_cells(made_up(SAMPLES, ENERGY), 0.9)
    best, failed = cells[1, 5], cells[2, 7]
    assert (best.lr, best.samples, best.learned) == (0.2, 256, 4)
    assert (failed.samples, failed.learned) == (math.inf, 2)  # neither dropped nor the median of those that get there
    assert median(np.array([1.0, np.inf])) == np.inf


def _winner(draw: tuple[int, ...]) -> tuple[int, int]:
    """Return the cell that needs the least energy when these seeds were drawn: one by one, in plain Python."""

    def energy(cell: tuple[int, int]) -> float:
        middles = []
        for lr in GRID.rates:
            drawn = sorted(math.inf if SAMPLES[*cell, lr][i] is None else SAMPLES[*cell, lr][i] for i in draw)
            middles.append(drawn[2])
        return min(middles) * ENERGY[cell] / cell[0]

    return min(GRID.cells, key=energy)


def test_the_best_cell_is_the_product_of_samples_and_energy_and_knows_how_sure_it_is():
    found = made_up(SAMPLES, ENERGY)
    one = energy_map(found, trained_cells(found, 0.9), "notes", BEST)
    energies = {cell: value.energy for cell, value in one.cells.items()}
    assert energies == pytest.approx({(1, 5): 256 * 2, (1, 7): 512 * 1.25, (2, 5): 512 * 3, (2, 7): math.inf})
    assert (one.best.cell.batch, one.best.cell.hidden) == (1, 5)
    assert one.best.bound == pytest.approx(256)
    exact = Counter(_winner(draw) for draw in product(range(5), repeat=5))
    for cell in GRID.cells:
        share = exact[cell] / 5**5
        assert one.shares.get(cell, 0.0) == pytest.approx(
            share, abs=4 * math.sqrt(share * (1 - share) / RESAMPLES) + 1e-9
        )
    assert sum(one.shares.values()) == pytest.approx(1)
    low, high = one.best.interval
    assert low <= one.best.energy <= high
    assert [(other.cell.batch, other.cell.hidden) for other in one.might_win()] == [(1, 7)]
    assert one.best_of_batch(2).energy == pytest.approx(512 * 3)


def test_prices_say_something_about_each_other():
    told = [(PROGRAM, 9, 9), (UNTILED, 7, 4), (ONCE, 10, 2), (BEST, 8, 4), (BEST, 8.5, 5), (PROGRAM, 9, 9)]
    prices = [StepPrice(1, 5, "notes", kind, energy, bound) for kind, energy, bound in told]
    closed = {one.schedule: (one.energy, one.bound) for one in closed_prices(prices)}
    assert closed == {PROGRAM: (9, 9), UNTILED: (7, 5), ONCE: (9, 5), BEST: (7, 5)}


@pytest.mark.slow
def test_what_is_measured_is_kept_and_the_schedules_are_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(accuracy_grid, "_WIDE", -1.0)  # every plan is looked for again
    grid = AccuracyGrid(
        batches=(1, 8), hidden=(4,), rates=(0.2, 0.8), seeds=(42, 43), machines=("h200-measured", "notes-explicit"),
        looks=3, seconds=0.5, patient=True,
    )  # fmt: skip
    found = measure(grid, tmp_path)
    rows = {path: path.read_bytes() for path in tmp_path.rglob("rows/*/*.json")}
    assert len(rows) == 2 * 2 + 2 * 3 * 2 + 2 * 3  # only plans on caches have a quick form, and are looked for again
    assert len(found.prices) == 2 * 2 * 4
    told = []
    assert measure(grid, tmp_path, lambda what, part: told.append(what)) == found
    assert {path: path.read_bytes() for path in tmp_path.rglob("rows/*/*.json")} == rows
    assert told == []  # nothing was left to do
    prices = {(one.batch, one.hidden, one.machine, one.schedule): one for one in found.prices}
    for (batch, hidden), name in product(grid.cells, grid.machines):
        program, untiled, once, best = (prices[batch, hidden, name, kind] for kind in (PROGRAM, UNTILED, ONCE, BEST))
        assert best.energy <= min(once.energy, untiled.energy) <= max(once.energy, untiled.energy) <= program.energy
        assert best.bound <= min(once.bound, untiled.bound)
        assert all(one.bound <= one.energy for one in (program, untiled, once, best))
    # As JSON and back, as docs and pages read it.
    assert msgspec.json.decode(msgspec.json.encode(found), type=Measurements) == found


def test_plans_without_recomputation_have_every_op_once():
    runs = plan_runs(msgspec.structs.replace(QUICK, batches=(8,), hidden=(50,), machines=("notes-explicit",)))
    graphs = {kind: msgspec.json.decode(one.task.graph) for kind, (one,) in runs.items()}
    assert all(op["once"] for op in graphs[ONCE]["ops"])
    assert not any(op.get("once") for op in graphs[BEST]["ops"])
    assert {kind: one.task.tile for kind, (one,) in runs.items()} == {BEST: "auto", ONCE: "auto", UNTILED: "none"}


def test_the_whole_grid_of_something_else_is_refused():
    with pytest.raises(InputError, match="full: is for accuracy, and only ard, chain was asked for"):
        reproduce(["ard", "chain"], full=True)


def test_a_training_that_fails_is_named(tmp_path):
    grid = AccuracyGrid(batches=(3,), hidden=(4,), rates=(0.2,), seeds=(42,), machines=("notes",), looks=1)
    with pytest.raises(PebblerError, match=r'"batch":3.*divisor of 128'):
        measure(grid, tmp_path)


def test_the_experiment_shows_what_never_gets_there_and_judges_the_guesses():
    shown = experiment(made_up(SAMPLES, ENERGY))
    assert shown.ok
    guess = next(row for row in shown.rows if row.name == "best batch, 90 %, notes")
    assert (guess.published, guess.measured, guess.match, guess.wrong, guess.corrected) == (
        "16 to 32",
        1,
        False,
        True,
        1,
    )
    tables = [one for question in shown.questions for one in question.tables]
    assert all(len(row) == len(one.columns) for one in tables for row in one.rows)
    cells = next(one for one in tables if one.title.startswith("µJ to 90 %"))
    assert cells.rows == ((5, 512.0, pytest.approx(1536.0)), (7, 640.0, "never"))
    samples = next(one for one in tables if one.title.startswith("Samples of the median seed to 90 %"))
    assert samples.rows == ((5, "256 at 0.2 (4)", "512 at 0.1 (5)"), (7, "512 at 0.1 (5)", "never (2)"))
    assert max(len(f"{row.name} ({row.unit})") for row in shown.rows) <= 36  # so that tables fit 80 columns
    heat = shown.plots[0]
    assert (heat.kind, heat.series[1].y[1]) == ("heat", math.inf)
    drawing = inline_svg(heat, "a")
    assert all(f">{text}<" in drawing for text in ("512", "640", "1,536", "never"))
    assert msgspec.json.encode(shown)
    assert "never" in page([shown])


@pytest.mark.parametrize(("batches", "verdict"), [((1, 32), "Open"), ((32, 64), "Right"), ((1, 8), "Not everywhere")])
def test_a_best_batch_that_is_the_largest_tried_decides_nothing(batches: tuple[int, ...], verdict: str):
    grid = msgspec.structs.replace(GRID, batches=batches)
    best = batches[-1] if verdict != "Right" else batches[0]
    runs = tuple(
        TrainedRuns(*cell, lr, ((256,) * len(grid.seeds),) * 2) for cell, lr in product(grid.cells, grid.rates)
    )
    prices = tuple(
        StepPrice(*cell, "notes", kind, energy, energy / 2)
        for cell, kind in product(grid.cells, SCHEDULES)
        for energy in [cell[0] * (1e6 if cell[0] == best else 1e8)]
    )
    shown = experiment(Measurements(grid, GOALS, runs, prices))
    guess = next(one for one in shown.verdicts if "16 to 32" in one.claim)
    assert guess.truth.startswith(f"{verdict}: on notes")
    assert ("none larger was tried" in guess.truth) == (verdict == "Open" or batches == (1, 8))
