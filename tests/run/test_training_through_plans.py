"""Training all epochs through a solved plan, tile by tile, reaches what program order reaches."""

from __future__ import annotations

import numpy as np
import pytest

import pebbler as pb
from pebbler.notes import Config, draw_data, draw_params, train


def best_accuracy(plan: pb.Plan, config: Config) -> float:
    """The best test accuracy over the epochs, every step of which runs the plan's moves on real numbers."""
    data, start = draw_data(config), draw_params(config)
    params = {"W1": start.W1, "b1": start.b1, "W2": start.W2, "b2": np.array(start.b2)}
    best = 0.0
    for _ in range(config.max_epochs):
        for x, y in zip(data.x_train, data.y_train, strict=True):
            params = pb.execute(plan, {**params, "x": x, "y": np.array(y)})
        hidden = np.maximum(data.x_test @ params["W1"].T + params["b1"], 0)
        out = hidden @ params["W2"] + params["b2"]
        best = max(best, float(np.mean(np.sign(out) == data.y_test)))
    return best


def test_a_small_network_learns_the_same_through_a_tiled_plan() -> None:
    config = Config(n=6, k=2, hidden=12, n_train=30, n_test=60, max_epochs=4, always_update=True)
    plan = pb.solve("mlp:n=6,hidden=12", "notes-explicit", time_limit=4)
    assert best_accuracy(plan, config) == train(config).best


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("machine", ["notes", "notes-explicit"])
def test_the_notes_network_reaches_its_accuracy_through_the_solved_plan(machine: str) -> None:
    config = Config(always_update=True, max_epochs=16)  # the first that reach it
    plan = pb.solve("mlp:n=20,hidden=1000", machine, time_limit=30)
    assert plan.source is not None
    assert best_accuracy(plan, config) == train(config).best == 0.98
