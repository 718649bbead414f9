"""What bound and status are for: every tiling and fusion where these are allowed, the graph as it is where they are not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from form_attacks import attack_forms
from pebbler import check, solve
from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Plan
from pebbler.game.transform import tile
from pebbler.solver import finish, methods, new_search
from pebbler.solver.assessment import assess
from pebbler.solver.large_games import LARGE

GRID, ROW, COLUMN = [("i", 4), ("j", 4)], [("i", 4)], [("j", 4)]


def cheaper_in_tiles() -> tuple[Graph, Machine]:
    """A graph that costs 532 as it is, and 348 in two tiles along j."""
    graph = Graph("r", "float32")
    for name, axes, kind in (
        ("x0", GRID, "input"), ("x1", [], "input"), ("p0", COLUMN, "param"), ("t0", GRID, "temp"), ("t1", GRID, "output"),
        ("t2", ROW, "temp"), ("s2", ROW, "output"), ("t3", COLUMN, "output"), ("s3", COLUMN, "output"),
    ):  # fmt: skip
        graph.tensor(name, 4 ** len(axes), kind, axes=axes)
    graph.op("o0", ["x1", "x0"], ["t0"], whole=["j"])
    graph.op("o1", ["p0", "x0", "x1"], ["t1"], cost=1, pointwise=True)
    graph.op("o2", ["t0", "p0", "x1"], ["t2", "s2"])
    graph.op("o3", ["t2", "x0"], ["t3", "s3"], once=True, whole=["j"])
    return graph, Machine("m", "float32", (Level("L0", 1, 1, capacity=26), Level("L1", 1, 100)), operands="any")


def test_a_plan_is_optimal_for_what_was_asked() -> None:
    graph, machine = cheaper_in_tiles()
    tiled = solve(graph, machine, steady=False)
    assert (tiled.energy, tiled.bound, tiled.status, tiled.covers) == (348, 348, "optimal", "forms")
    assert tiled.proof.startswith("every tiling: ")
    whole = solve(graph, machine, steady=False, tile="none")
    assert (whole.energy, whole.bound, whole.status, whole.covers) == (532, 532, "optimal", "graph")


def test_the_best_of_a_graph_as_it_is_says_so_and_is_not_optimal_where_forms_are_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, machine = cheaper_in_tiles()
    search = new_search(graph, machine, steady=False, time_limit=60)
    monkeypatch.setattr("pebbler.solver.tiling.small_forms.solve_small_forms", lambda *_: None)
    monkeypatch.setattr("pebbler.solver.tiling.solve_tiled", lambda *_, **__: None)
    methods.run(search)
    plan = finish(search)
    assert plan.energy == 532
    assert (plan.status, plan.bound, plan.covers) == ("heuristic", 0, "forms")
    assert "of the graph as it is the plan is optimal: searched every game state" in plan.proof


def test_a_file_says_what_its_claims_are_for(tmp_path: Path) -> None:
    graph, machine = cheaper_in_tiles()
    whole = solve(graph, machine, steady=False, tile="none")
    whole.save(tmp_path / "whole.json")
    found = assess(Plan.load(tmp_path / "whole.json"), seconds=10)
    assert (found.covers, found.status, found.void, found.unverified) == ("graph", "optimal", (), ())
    for claim in (replace(whole, covers="forms"), replace(whole, covers="forms", bound=400, status="bounded")):
        claim.save(tmp_path / "claim.json")
        found = assess(Plan.load(tmp_path / "claim.json"), seconds=10)
        assert (found.covers, found.bound, found.status) == ("forms", 348, "bounded")
        assert any("a plan of 348 pJ exists" in wrong for wrong in found.void)
    old = replace(whole, covers=None)  # a file of earlier versions speaks of its graph
    old.save(tmp_path / "old.json")
    assert b'"proof":"searched every game state, ' in (tmp_path / "old.json").read_bytes()
    assert assess(Plan.load(tmp_path / "old.json"), seconds=10).covers == "graph"


def test_a_check_says_what_it_proves_of_the_graph_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, machine = cheaper_in_tiles()
    claim = replace(solve(graph, machine, steady=False, tile="none"), covers="forms")
    monkeypatch.setattr("pebbler.solver.tiling.small_forms.solve_small_forms", lambda *_: None)
    found = assess(claim, seconds=10)
    assert (found.covers, found.status, found.unverified) == ("forms", "bounded", ("bound", "status"))
    assert found.best_as_it_is.startswith("searched every game state, ")


@pytest.mark.slow
def test_a_tiled_plan_is_checked_against_every_form_of_its_source(tmp_path: Path) -> None:
    graph, machine = cheaper_in_tiles()
    tiled = solve(graph, machine, steady=False)
    worse = solve(tile(graph, "i", 2), machine, steady=False, tile="none")
    claim = replace(worse, source=graph)  # 357: the best of its own graph
    assert (worse.energy, worse.status) == (357, "optimal")
    found = assess(claim, seconds=10)
    assert (found.covers, found.status, found.bound) == ("forms", "bounded", tiled.energy)
    assert found.void == (
        "the status optimal is wrong: a plan of 348 pJ exists",
        "the bound is wrong: a plan of 348 pJ exists",
    )
    tiled.save(tmp_path / "tiled.json")
    found = assess(Plan.load(tmp_path / "tiled.json"), seconds=10)
    assert (found.covers, found.status, found.void) == ("forms", "optimal", ())


def test_a_tiled_plan_is_not_gone_on_from_where_the_graph_stays_as_it_is() -> None:
    graph, machine = cheaper_in_tiles()
    tiled = solve(graph, machine, steady=False)
    assert tiled.source == graph
    with pytest.raises(InputError, match="the graph stays as it is"):
        solve(graph, machine, steady=False, tile="none", resume=tiled)


@pytest.mark.parametrize("management", ["explicit", "lru"])
def test_a_large_graph_that_is_not_tiled_has_a_bound_for_its_tilings(management: str) -> None:
    graph = Graph("many", "pebble").tensor("x", 4, "input", axes=[("i", 4)])
    for number in range(LARGE[2] + 1):
        graph.tensor(f"y{number}", 0, "output")
        graph.op(f"op{number}", ["x"], [f"y{number}"], cost=1)
    machine = Machine("m", "pebble", (Level("fast", 1, 1, capacity=2), Level("slow", 10, 10)), management, "any")
    plan = solve(graph, machine, time_limit=4, threads=1)
    assert check(plan).legal
    # In four tiles, one after the other, all but the first read of each is from the fast level.
    assert plan.bound <= 4 * (10 + len(graph.ops) * 2) + len(graph.ops)
    assert (plan.status, plan.covers) == ("bounded", "forms")
    assert plan.proof.startswith("every tiling: ")
    assert solve(graph, machine, tile="none", time_limit=1, threads=1).covers == "graph"


def test_what_has_no_other_form_is_as_it_is() -> None:
    assert solve("chain:length=6").covers == "graph"
    assert solve("note-mlp", "notes-recency").covers == "graph"


@pytest.mark.slow
def test_no_form_costs_less_than_what_is_stated_for_all() -> None:
    found = Counter(attack_forms(seed, seconds=1.0) for seed in (*range(16), 593, 3047))
    assert found["optimal"] >= 3
    assert not any(status and status.startswith("optimal, ") for status in found)


@pytest.mark.slow
def test_no_form_costs_less_than_what_is_stated_for_all_of_many() -> None:
    found = Counter(attack_forms(seed) for seed in range(2000))
    assert sum(found[status] for status in ("optimal", "bounded", "impossible", "heuristic")) > 600
