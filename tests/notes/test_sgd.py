"""The notes' training: data, accuracies, any order of the ops, and configs that cannot be."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_training as naive
from pebbler.errors import InputError
from pebbler.notes import Config, draw_data, draw_params, note_order, train
from pebbler.notes.kernels.sgd_epoch import OPS
from pebbler.notes.note002_tiling import same_as_plain
from pebbler.notes.sgd import firing, margins, tiled_order

WHOLE = {"fwd_linear2", "fwd_loss", "bwd_loss", "bwd_db2", "upd_b2"}


@st.composite
def orders(draw, hidden):
    """Any permutation of the ops, legal or not, each op whole or cut into tiles."""
    instructions = []
    for op in OPS:
        cuts = [] if op in WHOLE else draw(st.lists(st.integers(1, hidden - 1), max_size=2)) if hidden > 1 else []
        edges = [0, *sorted(set(cuts)), hidden]
        instructions += [(op, lo, hi) for lo, hi in pairwise(edges)]
    return draw(st.permutations(instructions))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_kernel_equals_plain_python_bit_for_bit(data):
    n = data.draw(st.integers(1, 5))
    hidden = data.draw(st.integers(1, 6))
    config = Config(
        n=n,
        k=data.draw(st.integers(1, n)),
        hidden=hidden,
        seed=data.draw(st.integers(-100, 10**6)),
        lr=data.draw(st.sampled_from([0.01, 0.1, 0.7])),
        wd=data.draw(st.sampled_from([0.0, 0.01, 0.3])),
        n_train=data.draw(st.integers(1, 6)),
        n_test=2,
        max_epochs=2,
        always_update=data.draw(st.booleans()),
    )
    order = data.draw(orders(hidden))
    got = train(config, order)
    xs, ys, params = naive.draw(config.n, config.k, hidden, config.seed, config.n_train + config.n_test)
    state, cut = naive.fresh_state(n, hidden), config.n_train
    accuracies = []
    steps = [(op, range(lo, hi)) for op, lo, hi in order]
    for _ in range(got.epochs):
        naive.epoch(params, state, xs[:cut], ys[:cut], steps, config.lr, config.wd, config.always_update)
        right = [naive.output(params, x) * y > 0 for x, y in zip(xs[cut:], ys[cut:], strict=True)]
        accuracies.append(sum(right) / len(right))
    assert got.test_accuracy == tuple(accuracies)
    assert np.array_equal(got.params.W1, params["W1"], equal_nan=True)
    assert np.array_equal(got.params.b1, params["b1"], equal_nan=True)
    assert np.array_equal(got.params.W2, params["W2"], equal_nan=True)
    assert np.array_equal(got.params.b2, params["b2"], equal_nan=True)


@pytest.mark.parametrize(
    ("order", "best"), [("standard", 0.98), ("fused", 0.57), ("perlayer", 0.57), ("optimal", 0.98)]
)
def test_pebble_game_accuracies(order, best):
    assert train(Config(always_update=True), note_order(order)).best == best


@pytest.mark.parametrize("variant", ["standard", "fused", "perlayer"])
def test_ard_config_reaches_its_accuracy_and_sample(variant):
    config = Config(hidden=500, stop=0.9)
    run, data = train(config, variant), draw_data(config)
    margin = margins(run.params, data.x_train, data.y_train)
    assert (run.epochs, run.test_accuracy[-1], int((margin < 1).argmax())) == (6, 0.965, 41)
    assert round(float(margin[41]), 4) == 0.9889


@pytest.mark.parametrize(("seed", "best", "epochs"), [(42, 1.0, 11), (43, 1.0, 9), (44, 0.995, 50)])
@pytest.mark.parametrize("tile", [None, 50, 250])
def test_tiled_training_is_the_same_training(seed, best, epochs, tile):
    run = train(Config(hidden=500, max_epochs=50, seed=seed), "standard" if tile is None else tiled_order(500, tile))
    assert (run.best, run.epochs) == (best, epochs)


def test_firing_counts():
    assert sum(firing(Config(), 32)) == 17
    config = Config()
    data = draw_data(config)
    assert int((margins(draw_params(config), data.x_train[:32], data.y_train[:32]) < 1).sum()) == 22


def test_new_configs_train():
    run = train(Config(n=30, k=4, hidden=64, seed=7, n_train=50, n_test=20, max_epochs=3))
    assert run.epochs == 3
    assert run.params.W1.shape == (64, 30)


@given(st.integers(1, 40), st.integers(1, 20), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_fully_tiled_loop_changes_no_bit(hidden, tile, seed):
    config = Config(n=6, k=2, hidden=hidden, seed=seed, n_train=20, n_test=5)
    assert same_as_plain(config, min(tile, hidden))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"k": 21}, "k"),
        ({"hidden": 0}, "hidden"),
        ({"lr": math.nan}, "lr"),
        ({"lr": 0.0}, "lr"),
        ({"lr": math.inf}, "lr"),
        ({"wd": -0.1}, "wd"),
        ({"n": 0, "k": 0}, "n"),
        ({"seed": 1.5}, "seed"),
        ({"hidden": True}, "hidden"),
        ({"n_train": 0}, "n_train"),
        ({"max_epochs": -1}, "max_epochs"),
        ({"stop": 1.5}, "stop"),
        ({"hidden": 10**9}, "hidden"),
        ({"lr": "fast"}, "lr"),
    ],
)
def test_impossible_configs_are_refused_by_name(fields, named):
    with pytest.raises(InputError, match=f"^{named}:"):
        Config(**fields)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("optimel", "no order"),
        (OPS[:-1], "upd_b2 must run exactly once"),
        ([*OPS, "upd_W1"], "upd_W1 must run exactly once"),
        ([*OPS[:-1], "upd_b3"], "did you mean"),
        ([*OPS[1:], ("fwd_linear1", 0, 11)], "cannot run on hidden units"),
        ([*OPS[:-1], ("upd_b2", 0, 5), ("upd_b2", 5, 10)], "cannot run"),
    ],
)
def test_impossible_orders_are_refused(order, message):
    with pytest.raises(InputError, match=message):
        train(Config(hidden=10), order)


def _numpy_run(config, total):
    """Train with another summation order: BLAS for the hidden layer, `total` for the output."""
    data, p = draw_data(config), draw_params(config)
    w1, b1, w2, b2 = p.W1, p.b1, p.W2, p.b2
    accuracy = []
    while len(accuracy) < config.max_epochs and max(accuracy, default=0.0) < config.stop:
        for x, y in zip(data.x_train, data.y_train, strict=True):
            h_pre = w1 @ x + b1
            h = np.maximum(h_pre, 0)
            satisfied = (total(w2 * h) + b2) * y >= 1
            if satisfied and not config.always_update:
                continue
            dy = 0.0 if satisfied else -y
            dh_pre = np.where(h_pre > 0, w2 * dy, 0.0)
            w2 -= config.lr * (dy * h + config.wd * w2)
            b2 -= config.lr * (dy + config.wd * b2)
            w1 -= config.lr * (dh_pre[:, None] * x + config.wd * w1)
            b1 -= config.lr * (dh_pre + config.wd * b1)
        out = np.maximum(data.x_test @ w1.T + b1, 0) @ w2 + b2
        accuracy.append(float((out * data.y_test > 0).mean()))
    margin = (np.maximum(data.x_train @ w1.T + b1, 0) @ w2 + b2) * data.y_train
    return max(accuracy), len(accuracy), int((margin < 1).argmax()), round(float(margin[(margin < 1).argmax()]), 4)


@pytest.mark.slow
@pytest.mark.parametrize("total", [np.sum, math.fsum])
def test_summation_order_moves_no_published_figure(total):
    assert _numpy_run(Config(hidden=500, stop=0.9), total) == (0.965, 6, 41, 0.9889)
    assert _numpy_run(Config(always_update=True), total)[0] == 0.98
    tiling = [_numpy_run(Config(hidden=500, max_epochs=50, seed=seed), total)[:2] for seed in (42, 43, 44)]
    assert tiling == [(1.0, 11), (1.0, 9), (0.995, 50)]
