"""Schedules of transformed graphs: what they cost is what the referee says, and they compute the same."""

from __future__ import annotations

import random

import pytest

import pebbler as pb
from pebbler.referee.judgement import check
from pebbler.run.numbers import verify
from pebbler.solver.problem import Problem, Search
from pebbler.solver.tiling.candidates import ExplicitCandidate, candidate_of
from pebbler.solver.tiling.transform_search import TransformSearch
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
        allocator=rng.choice(["own", "reuse"]), line=rng.choice([1, 2]),
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


def layers_of_weights() -> Problem:
    """Weights that pass through every level but the last, in each of three layers."""
    levels = [
        pb.Level(f"l{n}", price, price, capacity=room)
        for n, (price, room) in enumerate([(5, 4), (20, 160), (100, 640)])
    ]
    machine = pb.Machine("tight", "float32", (*levels, pb.Level("far", 640, 640)), "explicit", "any")
    return Problem.of(pb.workloads.deep_mlp(n=4, hidden=24, layers=3), machine)


def test_prices_of_room_say_what_should_stay() -> None:
    problem = layers_of_weights()
    space = TransformSpace(problem.graph)
    nodes = space.nodes(Transform(sizes=tuple((f"hidden{layer}", 8) for layer in (1, 2, 3)), fused=("dW2", "dW3")))
    candidate = candidate_of(problem, nodes)
    assert isinstance(candidate, ExplicitCandidate)
    before = candidate.energy
    assert candidate.price_room() == 1 - candidate.energy / before > 0.1
    moves, start = candidate.moves()
    plan = pb.Plan(candidate.graph, problem.machine, moves, start, source=problem.graph)
    assert check(plan).energy == pytest.approx(candidate.energy, rel=1e-12)


def test_axes_of_one_extent_are_cut_together_first_and_room_is_priced() -> None:
    problem = layers_of_weights()
    search = TransformSearch(Search(problem), TransformSpace(problem.graph), 1_000.0)
    together = Transform(sizes=tuple((f"hidden{layer}", 6) for layer in (1, 2, 3)))
    search.try_all(iter([together]))
    alone = candidate_of(problem, search.space.nodes(together))
    assert alone is not None
    assert search.energy(together) < 0.98 * alone.energy
    first = next(search._coarse(Transform()))
    assert dict(first.sizes) == {f"hidden{layer}": 12 for layer in (1, 2, 3)}
