"""Orders of products, and the search for cheap ones."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import pebbler as pb
from naive_cells import product_cost
from pebbler.errors import InputError
from pebbler.extras.cells.cell_writer import cell_program
from pebbler.extras.layout.product_orders import ProductOrders
from pebbler.referee.judgement import check
from pebbler.run.numbers import verify
from pebbler.solver import finish, solve_search
from pebbler.solver.problem import Problem, Search
from pebbler.solver.products.loop_orders import (
    changed_loops,
    first_loops,
    loops_of,
    loops_text,
    nested_order,
)
from pebbler.workloads import matmul


def box(m: int, n: int, k: int) -> np.ndarray:
    return np.array(list(product(range(m), range(n), range(k))))


def test_loops_go_through_every_point_once() -> None:
    rng = np.random.default_rng(1)
    for sizes in ((1, 1, 1), (4, 4, 4), (2, 5, 7), (16, 3, 1)):
        index = box(*sizes)
        loops = first_loops(sizes)[0]
        for _ in range(40):
            assert sorted(nested_order(index, loops).tolist()) == list(range(len(index)))
            assert loops_of(loops_text(loops)) == loops
            loops = changed_loops(rng, loops)


def test_a_turning_loop_changes_one_index_at_a_time() -> None:
    index = box(4, 4, 4)
    path = index[nested_order(index, loops_of("kij"))]
    assert (np.abs(np.diff(path, axis=0)).sum(axis=1) == 1).all()
    plain = index[nested_order(index, loops_of("i_j_k_"))]
    assert (plain == index).all()


def test_loops_over_some_points_only() -> None:
    index = box(3, 3, 3)[::2]
    assert sorted(nested_order(index, loops_of("k2ijk")).tolist()) == list(range(len(index)))


def test_points_are_found_in_the_order_of_their_indices() -> None:
    orders = ProductOrders.of(matmul(2, 3, 2))
    assert orders is not None
    assert orders.index.tolist() == box(2, 3, 2).tolist()


def test_a_plan_is_a_program_of_the_product() -> None:
    search = solve_search("matmul:m=2,n=2,k=2", "grid", time_limit=None, quick=True)
    plan = finish(search)
    judgement = check(plan)
    assert judgement.legal
    assert verify(plan).identical
    assert product_cost(cell_program(plan).text(), 2, 2, 2) == judgement.energy == plan.energy
    assert 54 <= plan.bound <= plan.energy <= 58


def test_a_plan_is_gone_on_from_and_never_worse() -> None:
    plan = pb.solve("matmul:m=3,n=2,k=2", "grid", time_limit=2)
    again = pb.solve("matmul:m=3,n=2,k=2", "grid", time_limit=1, resume=plan)
    assert again.energy <= plan.energy
    at_once = pb.solve("matmul:m=3,n=2,k=2", "grid", time_limit=0, resume=plan)
    assert at_once.energy == plan.energy


def test_a_plan_of_another_problem_is_not_gone_on_from(tmp_path: object) -> None:
    plan = pb.solve("matmul:m=1,n=1,k=2", "grid", time_limit=0)
    with pytest.raises(InputError, match="a plan of another graph"):
        pb.solve("matmul:m=1,n=2,k=2", "grid", time_limit=0, resume=plan)
    chain = pb.solve("chain:length=5", start={"N0": "fast"})
    with pytest.raises(InputError, match="starts from other levels"):
        pb.solve("chain:length=5", resume=chain)
    assert pb.solve("chain:length=5", start={"N0": "fast"}, resume=chain).energy == chain.energy


def test_without_other_sums_the_order_is_the_graphs() -> None:
    plan = pb.solve("matmul:m=2,n=2,k=2", "grid", time_limit=2, tile="none")
    assert plan.source is None


def test_bounds_are_stated_at_once() -> None:
    search = solve_search("matmul:m=4,n=4,k=4", "grid", time_limit=0.01)
    assert search.bound >= 473


def test_the_bound_of_a_large_product() -> None:
    from pebbler.referee.programs.product_reads import product_bound

    assert product_bound(Problem.of(matmul(16, 16, 16), "grid")) >= 43_235


def test_interruption_keeps_the_best_plan() -> None:
    from pebbler.solver import new_search
    from pebbler.solver.methods import run

    search: Search
    search = new_search("matmul:m=4,n=4,k=4", "grid", time_limit=60, report=lambda found: found.interrupt())
    run(search)
    assert search.best is not None
