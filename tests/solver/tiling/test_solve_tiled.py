"""The search over transforms: what it reaches, and that its plans compute the same."""

from __future__ import annotations

import pytest

import pebbler as pb
from pebbler.game.tile_meta import origin
from pebbler.game.transform import tile
from pebbler.run.numbers import verify
from pebbler.solver import tiling
from pebbler.solver.problem import Problem, Search
from pebbler.solver.tiling import solve_tiled
from pebbler.solver.tiling.tiling_bound import RangeSearch


def solved(spec: str, machine: str, seconds: float | None, tile: str = "auto") -> Search:
    search = Search(Problem.of(pb.workloads.get(spec), pb.machine(machine)), seconds)
    solve_tiled(search, tile=tile)  # type: ignore[arg-type]
    return search


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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["notes", "notes-explicit"])
def test_a_graph_that_is_tiled_already_is_tiled_further(name: str) -> None:
    """Its tiles are tensors like any other: a plan's tiles refer to them, and start where they do."""
    given = tile(pb.workloads.mlp(n=4, hidden=64), "hidden", 32)
    plan = pb.solve(given, name, time_limit=None, quick=True, start={"x": "HBM", "y": "HBM"})
    assert plan.source is given
    assert len(plan.graph.ops) > len(given.ops)
    assert {origin(tensor) for tensor in plan.graph.tensors} <= set(given.tensor_names)
    assert verify(plan).largest_difference <= 1e-12


def test_time_that_plans_leave_goes_into_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiling, "_BOUND_SHARE", 0.0)
    monkeypatch.setattr(tiling, "WORK", 1_500)
    monkeypatch.setattr(tiling, "_EFFORT", (100, 100, 100, 100))
    problem = Problem.of(pb.workloads.mlp(n=4, hidden=60, batch=8), pb.machine("notes"))
    search = Search(problem, 1_000.0)
    solve_tiled(search)
    assert search.bound > 1.1 * RangeSearch(problem).run(0).energy
