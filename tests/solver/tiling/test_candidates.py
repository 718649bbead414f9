"""Schedules of transformed graphs: what they cost is what the referee says, and they compute the same."""

from __future__ import annotations

import random

import pytest

import pebbler as pb
from pebbler.referee.judgement import check
from pebbler.run.numbers import verify
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.candidates import candidate_of
from pebbler.solver.tiling.transform_space import Transform, TransformSpace

TRANSFORM = Transform(sizes=(("hidden", 32),), fused=("dW1", "dW2", "db1", "db2", "dh", "loss"), recomputed=(("h", 4),))


def test_a_third_of_the_energy_on_caches() -> None:
    """Tiled, fused, swept back in reverse and with h recomputed, the notes' step costs a third: no search over orders needed."""
    space = TransformSpace(pb.workloads.mlp(n=20, hidden=1000))
    nodes = space.nodes(TRANSFORM)
    candidate = candidate_of(Problem.of(space.graph, pb.machine("notes")), nodes)
    assert candidate.energy < 4.05e6
    moves, start = candidate.moves()
    plan = pb.Plan(candidate.graph, pb.machine("notes"), moves, start, source=space.graph)
    assert check(plan).energy == candidate.energy
    assert verify(plan).largest_difference <= 1e-12


def test_explicit_residency_beats_the_hand_made_plan() -> None:
    space = TransformSpace(pb.workloads.mlp(n=20, hidden=1000))
    transform = space.effective(TRANSFORM.with_sizes(hidden=16))
    candidate = candidate_of(Problem.of(space.graph, pb.machine("notes-explicit")), space.nodes(transform))
    assert candidate.energy < 3.143e6
    moves, start = candidate.moves()
    plan = pb.Plan(candidate.graph, pb.machine("notes-explicit"), moves, start, source=space.graph)
    assert check(plan).energy == pytest.approx(candidate.energy, rel=1e-12)
    assert verify(plan).largest_difference <= 1e-12


@pytest.mark.parametrize("seed", range(8))
def test_moving_nodes_about_keeps_plans_legal_and_prices_true(seed: int) -> None:
    rng = random.Random(seed)
    graph = pb.workloads.get(
        rng.choice(["mlp:n=3,hidden=12", "mlp:n=2,hidden=6,batch=3", "deep-mlp:n=2,hidden=5,layers=2"])
    )
    space = TransformSpace(graph)
    machine = pb.Machine(
        "m", "float32", (pb.Level("a", 1, 1, 8), pb.Level("b", 4, 5, 40), pb.Level("c", 30, 20)), "lru", "any",
        rng.choice(["own", "reuse"]), rng.choice([1, 2]),
    )  # fmt: skip
    problem = Problem.of(graph, machine, seed=seed)
    transform = Transform(fused=tuple(temp for temp in space.temps if rng.random() < 0.5))
    transform = space.effective(
        transform.with_sizes(**{axis: rng.randrange(1, 5) for axis in space.axes if rng.random() < 0.6})
    )
    for temp, at in list(space.recomputable(transform)):
        if rng.random() < 0.6:
            transform = space.effective(
                Transform(transform.sizes, transform.fused, (*transform.recomputed, (temp, at)), transform.reverse)
            )
    nodes = space.nodes(transform)
    assert nodes is not None
    candidate = candidate_of(problem, nodes)
    before = candidate.energy
    candidate.improve(lambda: 1.0, 600)
    assert candidate.energy <= before
    moves, start = candidate.moves()
    plan = pb.Plan(candidate.graph, machine, moves, start, source=graph)
    verdict = check(plan)
    assert verdict.legal
    assert verdict.energy == pytest.approx(candidate.energy, rel=1e-12)
    assert verify(plan).largest_difference <= 1e-12
