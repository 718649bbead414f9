"""What is said of a plan that says something of itself: the referee and proofs decide, not the file."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

from pebbler import machine, solve_chain, tile, workloads
from pebbler.errors import RefutedBound
from pebbler.game.plan import Plan
from pebbler.game.transform import fuse_all
from pebbler.notes.reference_orders import note_order
from pebbler.referee.judgement import check
from pebbler.solver import assessment, solve
from pebbler.solver.assessment import assess
from pebbler.solver.methods import Method
from pebbler.solver.problem import Search
from pebbler.solver.tiling.transform_space import form_of


@pytest.fixture(scope="module")
def best() -> Plan:
    plan = solve("note-mlp", "notes-recency")
    assert plan.status == "optimal"
    return replace(plan)  # as if it came from a file: that a search of this program has proven it counts no more


def test_what_a_solver_proves_quickly_is_proven_again(best: Plan) -> None:
    explicit = solve("note-mlp", "notes-explicit", tile="none")
    for plan in (best, replace(explicit), replace(solve_chain(30, red=5))):
        found = assess(plan, seconds=10)
        assert (found.status, found.bound, found.void, found.unverified) == ("optimal", plan.energy, (), ())
        assert found.verified or found.proof == plan.proof


def test_moves_that_were_replaced_take_the_status_along(best: Plan) -> None:
    worse = replace(best, moves=Plan.in_order(best.graph, best.machine).moves)
    found = assess(worse, seconds=10)
    assert found.judgement.energy == 11_004_490
    assert (found.status, found.bound) == ("bounded", 10_764_315)
    assert len(found.void) >= 2
    assert "is not what the referee finds" in found.void[0]
    assert found.to_dict()["claimed"]["status"] == "optimal"


def test_a_bound_above_the_plans_own_energy_is_void(best: Plan) -> None:
    found = assess(replace(best, bound=2e7))
    assert found.void == ("the bound of 20.000 µJ is above the energy of this very plan, 10.764 µJ",)
    assert found.unverified == ()


def test_an_illegal_plan_is_neither_optimal_nor_bounded() -> None:
    illegal = Plan.in_order(
        workloads.note_mlp(), machine("notes"), note_order("fused"), energy=1, bound=1, status="optimal"
    )
    found = assess(illegal)
    assert (found.status, found.bound, found.gap) == (None, None, None)
    assert found.void == ("the plan is illegal: it has no energy and no status",)


@pytest.mark.slow
def test_what_nothing_proves_quickly_is_only_claimed() -> None:
    plan = Plan.in_order(tile(workloads.mlp(n=20, hidden=1000), "hidden", 100), machine("notes"))
    energy = check(plan).energy
    found = assess(replace(plan, energy=energy, bound=energy, status="optimal"), seconds=10)
    assert found.unverified == ("bound", "status")
    assert found.status == "bounded"
    assert found.bound is not None
    assert 0 < found.bound < energy


def test_a_cheaper_plan_refutes_the_status() -> None:
    order = Plan.in_order(workloads.mlp(n=20, hidden=1000), machine("notes"))
    energy = check(order).energy
    void = assess(replace(order, energy=energy, bound=energy, status="optimal"), seconds=10).void
    assert [words.split(":")[0] for words in void] == ["the status optimal is wrong", "the bound is wrong"]
    step = workloads.chain(4)
    dear = solve("chain:length=4", "red-blue", start={"N0": "fast"})
    moves = [*dear.moves, *[("copy", "N0", "fast", "slow")]]
    wasteful = Plan(step, dear.machine, moves, dear.start, dear.steady)
    energy = check(wasteful).energy
    found = assess(replace(wasteful, energy=energy, bound=energy, status="optimal"), seconds=10)
    assert found.status == "bounded"
    assert any("a plan of" in words for words in found.void)


def test_a_plan_without_claims_is_only_judged() -> None:
    found = assess(Plan.in_order(workloads.note_mlp(), machine("notes")))
    assert (found.bound, found.unverified, found.void) == (None, (), ())


def test_a_bound_of_another_source_is_not_believed() -> None:
    small, step = workloads.mlp(n=4, hidden=8), workloads.mlp(n=20, hidden=1000)
    tiled = tile(fuse_all(step, ["dW1", "dh"]), "hidden", 300)
    assert form_of(tiled, step)
    assert not form_of(tiled, small)
    assert not form_of(small, step)
    backwards = tile(step, "hidden", 300, reverse=["fwd_linear2"])
    assert form_of(backwards, step)
    # A large source cannot lend its bound to a small graph.
    plan = Plan.in_order(small, machine("notes"), source=step, bound=10**6, status="bounded")
    found = assess(plan)
    assert found.bound is None or found.bound <= check(plan).energy


def test_a_method_that_bounds_too_high_is_named_and_proves_nothing(best: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_high(search: Search, *_: object) -> None:
        search.raise_bound(2 * search.energy, "too high by far")

    row = Method("too high", lambda case: True, too_high, again=too_high)
    monkeypatch.setattr(assessment, "METHODS", (row, *assessment.METHODS))
    with pytest.warns(RefutedBound, match="too high by far"):
        found = assess(replace(best, certificate=None), seconds=10)
    assert (found.bound, found.status) == (None, "heuristic")
    assert "status" in found.unverified


def test_only_the_very_plan_that_a_search_has_made_is_not_proven_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = solve("note-mlp", "notes-recency")
    object.__setattr__(plan, "certificate", None)
    proofs = []
    monkeypatch.setattr(assessment, "_prove", lambda plan, *_: proofs.append(plan) or (0.0, "", None, ""))
    found = assess(plan)
    assert (proofs, found.bound, found.status, found.proof) == ([], plan.bound, "optimal", plan.proof)
    boast = replace(plan, bound=2 * plan.energy)  # whatever was changed, it is another plan
    assert assess(boast, seconds=10).void
    changed = replace(plan, energy=None)
    assert assess(changed, seconds=10).unverified == ("bound", "status")
    assert proofs == [boast, changed]
    described = assessment.with_meta(plan, {"note": 1})  # a page of a step in PyTorch is about such a copy
    again = assess(described)
    assert (again.bound, again.status, again.unverified) == (plan.bound, "optimal", ())
    key = id(plan)
    del plan, found
    gc.collect()
    assert key not in assessment._proven


def test_a_certificate_is_verified_and_nothing_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assessment, "_prove", lambda *_: pytest.fail("it searches"))
    for plan in (solve("mlp:n=4,hidden=8", "notes", time_limit=1), solve_chain(30, red=5)):
        found = assess(replace(plan))
        assert (found.bound, found.verified, found.void, found.unverified) == (plan.bound, True, (), ())
        for more in (1, 10**6):
            boast = replace(plan, bound=plan.bound + more, energy=plan.energy + 2 * more)
            assert assess(boast).bound == plan.bound
            assert "bound" in assess(boast).unverified or assess(boast).void
        assert assess(replace(plan, certificate=None)).unverified[0] == "bound"
        other = assess(replace(plan, certificate={"covers": "forms", "tree": {"axis": "i"}}))
        assert "the certificate proves nothing" in other.void[-1]
        assert "made by rows of version 1" in other.void[-1]
        assert assess(
            replace(plan, certificate={**dict(plan.certificate or {}), "version": 1})
        ).verified  # it still proves it


def test_a_formula_for_the_graph_as_it_is_proves_nothing_for_its_forms():
    plan = solve(workloads.mlp(n=4, hidden=16), machine("notes"), time_limit=2)
    assert assess(plan).covers == "forms"
    for formula in ("last touches", "chain"):
        boast = replace(plan, certificate={"covers": "forms", "formula": formula, "bound": 1})
        found = assess(boast)
        assert not found.verified
        assert "a formula is for the graph as it is" in found.void[0]
