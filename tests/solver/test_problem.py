"""Where a problem's tensors may start, and which bounds a search believes."""

from __future__ import annotations

import pytest

from pebbler.errors import RefutedBound
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import Compute
from pebbler.solver import finish
from pebbler.solver.problem import Impossible, Problem, Search


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


def one_level() -> Problem:
    return Problem.of(step(), Machine("m", "pebble", (Level("slow", 1, 1),), "explicit", "any"))


@pytest.mark.parametrize("plan_first", [True, False])
def test_a_bound_above_a_legal_plan_is_refuted_loudly_and_nothing_is_proven(plan_first: bool) -> None:
    search = Search(one_level())
    search.raise_bound(2.0, "a bound that holds")
    if plan_first:
        search.offer([Compute("upd")])
        with pytest.warns(RefutedBound, match="magic"):
            search.raise_bound(search.energy * (1 + 1e-6), "magic")
    else:
        search.raise_bound(1000.0, "magic")
        with pytest.warns(RefutedBound, match="magic"):
            search.offer([Compute("upd")])
    search.raise_bound(search.energy, "more magic")
    plan = finish(search)
    assert (search.refuted, plan.energy, plan.bound, plan.status) == ("magic", 5, 0, "heuristic")


def test_a_bound_that_differs_from_the_energy_by_rounding_proves_it() -> None:
    search = Search(one_level())
    search.offer([Compute("upd")])
    search.raise_bound(search.energy * (1 + 1e-11), "sums in another order")
    plan = finish(search)
    assert (plan.status, plan.bound) == ("optimal", plan.energy)


def test_a_proof_that_nothing_is_legal_is_refuted_by_a_legal_plan() -> None:
    search = Search(one_level())
    with pytest.raises(Impossible, match="magic"):
        search.give_up(Impossible("magic"))
    search.offer([Compute("upd")])
    with pytest.warns(RefutedBound, match="magic"):
        search.give_up(Impossible("magic"))
    assert (search.refuted, finish(search).status) == ("magic", "heuristic")
