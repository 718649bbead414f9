"""Where a problem's tensors may start."""

from __future__ import annotations

import pytest

from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.solver.problem import Problem


def step() -> Graph:
    graph = Graph("step", "pebble")
    graph.tensor("W", 2, "param")
    graph.tensor("x", 1, "input")
    graph.op("upd", ["W", "x"], ["W"])
    return graph


FAST, SLOW = Level("fast", 0, 0, capacity=5), Level("slow", 1, 1)


@pytest.mark.parametrize(
    ("levels", "steady", "start", "choices"),
    [
        ((FAST, SLOW), False, {}, {0: [1], 1: [1]}),
        ((FAST, SLOW), False, {"W": "fast", "x": ["fast", "slow"]}, {0: [0], 1: [0, 1]}),
        ((FAST, SLOW), True, {}, {0: None, 1: [1]}),
        ((FAST, SLOW), True, {"W": "fast", "x": "fast"}, {0: None, 1: [1]}),
        ((FAST,), True, {}, {0: [0], 1: [0]}),
    ],
)
def test_a_steady_step_chooses_where_params_start_and_gets_its_inputs_from_below(
    levels, steady, start, choices
) -> None:
    problem = Problem.of(step(), Machine("m", "pebble", levels), steady=steady, start=start)
    assert problem.start_choices() == choices
    assert problem.looped_params == ([0] if steady else [])
