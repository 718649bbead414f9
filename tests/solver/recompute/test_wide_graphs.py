"""Wide layered graphs on one level: linear relaxations bound them at once, with certificates, and their summaries are sequences."""

from __future__ import annotations

from benchmarks.recompute_graphs import wide_layered

from pebbler.game.machine import Level, Machine
from pebbler.referee.verify import verify
from pebbler.solver.problem import Problem, Search
from pebbler.solver.recompute.recompute_problem import RecomputeProblem, program_order_peak
from pebbler.solver.recompute.recompute_solver import _RecomputeSolver


def test_milestones_bound_wide_graphs_without_a_search() -> None:
    graph = wide_layered(300, 0)
    room = int(0.55 * program_order_peak(graph))
    problem = Problem.of(graph, Machine("one", "byte", (Level("memory", 0, 0, capacity=room),)))
    search, game = Search(problem), RecomputeProblem.of(problem)
    search.as_it_is = True
    solver = _RecomputeSolver(search, game)
    assert len(solver.milestones.relaxation.tight()) > 0
    solver.bound_by_programs()
    assert search.bound > 1.005 * game.base_cost
    assert search.certificate is not None
    assert verify(problem.task, search.certificate) == search.bound
    (spread,) = solver.hints
    measured = game.measure(spread)
    assert measured.legal
    assert game.base_cost < measured.cost < 1.2 * search.bound
