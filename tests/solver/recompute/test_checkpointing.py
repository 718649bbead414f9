"""Checkpointing keeps to the rules on any graph, and needs about the square root of a chain's memory."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from pebbler.game.machine import Level, Machine
from pebbler.referee.judgement import check
from pebbler.solver.problem import Problem
from pebbler.solver.recompute.checkpointing import checkpointed, checkpointings
from pebbler.solver.recompute.recompute_problem import RecomputeProblem
from pebbler.solver.recompute.start_sequences import early_ends_order, low_memory_order
from pebbler.workloads import chain
from strategies import generators, random_graph

ENDLESS = Machine("one", "pebble", (Level("fast", 0, 0, capacity=10**9),))


@settings(max_examples=150, deadline=None)
@given(generators)
def test_any_order_of_any_graph_stays_legal(rng):
    graph = random_graph(rng, most_ops=14)
    problem = RecomputeProblem.of(Problem.of(graph, ENDLESS))
    for order in (problem.program, early_ends_order(problem), low_memory_order(problem)):
        assert sorted(order.tolist()) == list(range(problem.ops))
        for sequence in (order, checkpointed(problem, order, rng.randint(1, 5)), *checkpointings(problem, order)):
            measured = problem.measure(sequence)
            assert measured.legal
            judged = check(problem.original.plan(problem.moves(sequence)))
            assert judged.legal
            assert judged.peak["fast"] == measured.memory.max(initial=judged.peak["fast"])


def test_a_chain_needs_the_square_root():
    for length in (50, 200, 800):
        problem = RecomputeProblem.of(Problem.of(chain(length), ENDLESS))
        peaks = [int(problem.measure(s).memory.max()) for s in checkpointings(problem, problem.program)]
        assert int(problem.measure(problem.program).memory.max()) > length
        assert min(peaks) <= 2.5 * np.sqrt(length) + 4
        costs = [problem.measure(s).cost / problem.base_cost for s in checkpointings(problem, problem.program)]
        assert max(costs) <= 2
