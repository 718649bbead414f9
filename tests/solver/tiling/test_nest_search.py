"""The search over loop nests: what it says a plan costs is what the referee says, and it finds flash-like plans."""

from __future__ import annotations

import numpy as np
import pytest

from pebbler import machine, workloads
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import Moves
from pebbler.referee.judgement import check
from pebbler.solver.problem import Problem, Search
from pebbler.solver.tiling.nest_search import Group, NestedPlan, NestSearch
from pebbler.solver.tiling.transform_search import TransformSearch
from pebbler.solver.tiling.transform_space import TransformSpace


def _search(workload: str, levels: Machine, tries: int) -> tuple[NestSearch, NestedPlan]:
    problem = Problem.of(workloads.load(workload), levels)
    space = TransformSpace(problem.graph)
    nests = NestSearch(problem, space, lambda: nests.tried >= tries, 5_000)
    return nests, nests.run(TransformSearch(Search(problem), space, 1.0).fused())


@pytest.mark.parametrize(
    ("workload", "levels"),
    [
        ("attention:tokens=16,width=16,heads=2", "notes"),
        ("mlp:n=8,hidden=50,batch=9", "laptop"),
        ("deep-mlp:n=4,hidden=9,layers=3", "horowitz-45nm"),
    ],
)
def test_a_plan_costs_what_the_referee_says(workload: str, levels: str) -> None:
    nests, found = _search(workload, machine(levels), 300)
    graph, order = nests.space.transformed(nests.space.effective(found.transform)), nests.order(found)
    assert graph is not None
    assert order is not None
    problem = nests.problem
    judged = check(problem.plan(Moves.computes(graph, problem.machine, order), None, graph))
    assert judged.legal
    assert judged.energy == pytest.approx(nests.energy(found))


def test_attention_in_a_small_cache_is_fused_around_its_weights_and_makes_them_again() -> None:
    small = Machine("small", "float32", (Level("cache", 1, 1, capacity=3_000), Level("slow", 100, 100)), "lru", "any")
    nests, found = _search("attention:tokens=64,width=16,heads=4", small, 500)
    single = NestedPlan(
        found.transform.with_sizes(**dict.fromkeys(nests.space.axes)), tuple(Group((op,)) for op in range(23))
    )
    assert nests.energy(found) < 0.5 * nests.energy(single)
    names = [op.name for op in nests.problem.graph.ops]
    runs = [names[op] for group in found.groups for op in group.ops]
    assert runs.count("fwd_softmax") == 2
    assert any({"fwd_scores", "fwd_softmax", "fwd_mix"} <= {names[op] for op in group.ops} for group in found.groups)


@pytest.mark.slow
def test_a_nest_becomes_a_candidate_whose_runs_can_be_moved_about() -> None:
    small = Machine("small", "float32", (Level("cache", 1, 1, capacity=300), Level("slow", 100, 100)), "lru", "any")
    search = Search(Problem.of(workloads.load("attention:tokens=16,width=4,heads=2"), small), 60.0)
    transforms = TransformSearch(search, TransformSpace(search.problem.graph), 30.0)
    transforms.try_nests(3.0)
    [(_, candidate)] = transforms.nested
    assert search.energy == pytest.approx(candidate.energy)
    order = candidate.nodes.order(np.arange(len(candidate.nodes)))
    assert len(order) > len(candidate.graph.ops)  # some run again
    before = candidate.energy
    candidate.improve(lambda: 1.0, 3_000)
    assert candidate.energy < before
    moves, start = candidate.moves()
    assert search.offer(moves, start, candidate.graph)  # the referee takes it


def test_nests_are_left_alone_where_all_temps_fit() -> None:
    search = Search(Problem.of(workloads.load("mlp"), "notes"), 60.0)
    transforms = TransformSearch(search, TransformSpace(search.problem.graph), 30.0)
    transforms.try_nests(3.0)
    assert transforms.nested == []
