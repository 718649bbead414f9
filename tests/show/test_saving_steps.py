"""The steps from program order to a plan: real schedules, priced by the referee, of the freedoms that the plan uses."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

from pebbler import machine, workloads
from pebbler.game.graph import Graph, Op, Tensor
from pebbler.game.plan import Plan
from pebbler.game.transform import fuse_all, tile
from pebbler.referee.judgement import check
from pebbler.show.report.page_data import program_order
from pebbler.show.report.saving_steps import saving_steps, sources_by_origin
from strategies import random_cache_machine, random_graph, random_machine, random_order, random_plan


def test_the_flagships_saving_comes_from_every_freedom(flagship: Plan) -> None:
    steps = saving_steps(flagship, program_order(flagship))
    assert [step.name for step in steps] == [
        "program order", "order", "fusion", "tiling", "reversed sweeps", "recomputation",
    ]  # fmt: skip
    assert steps[0].energy == 12_743_390
    assert steps[-1].energy == check(flagship).energy
    for step in steps:
        assert sum(step.levels) == pytest.approx(step.energy)
    assert steps[3].energy - steps[4].energy > 3_000_000  # what going back saves


def test_a_step_is_what_doing_it_by_hand_costs() -> None:
    step, caches = workloads.mlp(n=20, hidden=1000), machine("notes")
    temps = ["dW1", "dh"]
    fused = fuse_all(step, temps)
    tiled = tile(fused, "hidden", 50)
    plan = Plan.in_order(tiled, caches, source=step)
    steps = {one.name: one.energy for one in saving_steps(plan, program_order(plan))}
    assert steps["fusion"] == check(Plan.in_order(fused, caches)).energy
    assert steps["order of the tiles"] == check(plan).energy
    assert list(steps) == ["program order", "order", "fusion", "tiling", "order of the tiles"]


def test_explicit_plans_name_placement_and_what_does_not_fit() -> None:
    plan = program_order(Plan.in_order(workloads.chain(12), machine("red-blue"), start={"N0": "fast"}))
    assert plan is not None
    steps = saving_steps(plan, plan)
    assert [one.name for one in steps] == ["program order", "placement"]  # its order is program order: no step
    assert "least recently used evicted" in steps[0].words
    assert saving_steps(plan, None) == []
    assert saving_steps(replace(plan, moves=list(plan.moves)[::-1]), plan) == []


def test_a_source_that_is_none_is_not_taken_apart() -> None:
    other = workloads.mlp(n=3, hidden=8)
    plan = Plan.in_order(tile(workloads.mlp(n=4, hidden=8), "hidden", 4), machine("notes"), source=other)
    steps = saving_steps(plan, program_order(plan))
    assert [one.name for one in steps] == ["program order", "the plan"]
    assert steps[-1].energy == check(plan).energy


@pytest.mark.parametrize("parts", [3, "x", [1], [{"name": 4}], [{}], {"a": 1}, [{"name": "a", "meta": {"tile": 5}}]])
def test_meta_of_others_says_nothing_about_sources(parts: object) -> None:
    graph = Graph("g", "pebble", [Tensor("t", 1, "output")], [Op("op", writes=("t",), meta={"parts": parts})])
    assert sources_by_origin(graph) == {"op": ["op"]}


def test_random_plans_begin_with_program_order_and_end_with_themselves() -> None:
    seen = 0
    for seed in range(120):
        rng = random.Random(seed)
        graph = random_graph(rng, 8)
        if seed % 2:
            plan = random_plan(rng, graph, random_machine(rng, graph, whole=False))
        else:
            order = [graph.ops[op].name for op in random_order(rng, graph, war=True)]
            plan = Plan.in_order(graph, random_cache_machine(rng, "lru" if seed % 4 else "recency"), order)
        if plan is None or not check(plan).legal or (base := program_order(plan)) is None:
            continue
        seen += 1
        steps = saving_steps(plan, base)
        assert (steps[0].energy, steps[-1].energy) == (check(base).energy, check(plan).energy)
        assert all(step.energy is None or sum(step.levels) == pytest.approx(step.energy) for step in steps)
        assert msgspec.json.decode(msgspec.json.encode(steps))[0]["name"] == "program order"
    assert seen > 60
