"""A first plan where nothing fits uncut."""

from __future__ import annotations

import pytest

import pebbler as pb
from pebbler import machine, workloads
from pebbler.game.machine import Level, Machine
from pebbler.solver.problem import Problem, Search
from pebbler.solver.tiling.first_tiling import offer_fitting
from pebbler.solver.tiling.transform_space import TransformSpace


def _offered(workload: str, levels: Machine, limit: float | None = None) -> Search:
    problem = Problem.of(workloads.load(workload), levels)
    search = Search(problem, limit)
    assert offer_fitting(search, TransformSpace(problem.graph)) == (search.best is not None)
    return search


def _memory(room: int, operands: str = "fastest") -> Machine:
    return Machine(
        "two", "float32", (Level("fast", 1, 1, capacity=room), Level("slow", 100, 100)), "explicit", operands
    )


@pytest.mark.parametrize(
    ("workload", "room"),
    [("attention:tokens=128,width=64,heads=4", 2_000), ("mlp:n=50,hidden=70,batch=90", 500), ("mlp:n=3,hidden=5", 4)],
)
def test_a_plan_is_found_where_nothing_fits_uncut(workload: str, room: int) -> None:
    search = _offered(workload, _memory(room), 4.0)
    assert search.best is not None
    assert pb.check(search.best).legal
    assert search.best.source is not None
    assert max(tensor.size for tensor in search.best.graph.tensors) <= room


def test_nothing_is_offered_where_single_elements_do_not_fit() -> None:
    assert _offered("mlp:n=3,hidden=5,batch=7", _memory(2)).best is None


def test_nothing_is_offered_where_operands_may_be_anywhere() -> None:
    assert _offered("attention", _memory(2_000, "any")).best is None
    assert _offered("attention", machine("notes")).best is None


def test_a_known_plan_is_left_alone() -> None:
    search = _offered("attention", _memory(2_000), 4.0)
    energy = search.energy
    assert not offer_fitting(search, TransformSpace(search.problem.graph))
    assert search.energy == energy


def test_blocks_of_products_stay_while_the_rest_passes_by() -> None:
    # The matrices of this step are five times the memory. Loops over single tiles of these sizes move a third more.
    search = _offered("mlp:n=120,hidden=160,batch=120", _memory(4_000), 4.0)
    products = 5 * 120 * 160 * 120 * 2 / 4_000**0.5  # two units pass by per unit of work and side of a block
    matrices = 10 * 120 * 160
    assert search.energy <= 101 * 1.6 * (products + matrices)


@pytest.mark.slow
def test_a_step_that_needs_tens_of_thousands_of_pieces_has_a_plan_in_time() -> None:
    # Here the softmax of 6 rows fits, and so little of everything else that coarse tilings of single axes never do.
    plan = pb.solve(workloads.load("attention:tokens=256,width=256,heads=4"), _memory(5_000), time_limit=5)
    assert pb.check(plan).legal
