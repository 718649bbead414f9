"""The search over transforms: what it reaches, that its plans compute the same, and its parts."""

from __future__ import annotations

import random

import numpy as np
import pytest

import pebbler as pb
from pebbler.referee.judgement import check
from pebbler.referee.kernels.cache_price import price
from pebbler.referee.pricing import cache_game
from pebbler.run.numbers import verify
from pebbler.solver.problem import Problem, Search
from pebbler.solver.tiling import solve_tiled
from pebbler.solver.tiling.candidates import candidate_of
from pebbler.solver.tiling.list_order import nearest_first
from pebbler.solver.tiling.node_graph import NodeGraph
from pebbler.solver.tiling.transform_space import Transform, TransformSpace

TRANSFORM = Transform(sizes=(("hidden", 32),), fused=("dW1", "dW2", "db1", "db2", "dh", "loss"), recomputed=(("h", 4),))


def solved(spec: str, machine: str, seconds: float | None, tile: str = "auto") -> Search:
    search = Search(Problem.of(pb.workloads.get(spec), pb.machine(machine)), seconds)
    solve_tiled(search, tile=tile)  # type: ignore[arg-type]
    return search


def test_a_third_of_the_energy_on_caches() -> None:
    """Tiled, fused, swept back in reverse and with h made twice, the notes' step costs a third: no search over orders needed."""
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


def test_note_000_is_proven_whatever_tiling_may_do() -> None:
    search = solved("note-mlp", "notes-recency", 30)
    assert search.done
    assert search.energy == 10764315
    assert search.best.source is None


def test_without_tiling_the_graph_stays_as_it_is() -> None:
    search = solved("mlp:n=3,hidden=40", "notes", 3, tile="none")
    assert search.best.graph is search.problem.graph
    assert search.bound <= search.energy


@pytest.mark.parametrize("name", ["notes", "notes-explicit"])
def test_where_nothing_can_be_cut_things_can_still_be_fused(name: str) -> None:
    plan = pb.solve("mlp:n=1,hidden=1", name, time_limit=5)
    assert pb.check(plan).legal
    assert plan.source is not None
    assert len(plan.graph.ops) < len(plan.source.ops)


def test_the_same_seed_gives_the_same_plan() -> None:
    first, second = (solved("mlp:n=2,hidden=6", "notes", None) for _ in range(2))
    assert not first.cut_off
    assert first.best.moves == second.best.moves
    assert first.best.graph == second.best.graph


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


def test_the_nearest_first_is_legal_on_any_graph_of_tiles() -> None:
    graph = TransformSpace(pb.workloads.attention(tokens=6, width=8, heads=2)).transformed(
        Transform(sizes=(("heads", 1), ("tokens", 2)))
    )
    machine = pb.machine("laptop").in_unit("float32")
    nodes = NodeGraph.of(graph)
    game = cache_game(graph, machine, steady=True)
    for by_price in (False, True):
        order = nodes.order(nearest_first(nodes, machine, by_price=by_price))
        plan = pb.Plan.in_order(graph, machine, [graph.ops[i].name for i in order])
        assert check(plan).legal
        assert price(game, np.ascontiguousarray(order)) == pytest.approx(check(plan).energy, rel=1e-12)
