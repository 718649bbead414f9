"""What a report page is made of: figures that agree with the rest of the library, and markup that nothing can escape."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from pebbler import machine, workloads
from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.game.plan import Plan
from pebbler.game.transform import tile
from pebbler.notes.reference_orders import marked_orders, note_order
from pebbler.referee.judgement import check
from pebbler.show.report import report
from pebbler.show.report.capacity_sweep import capacity_curves
from pebbler.show.report.landscape import survey
from pebbler.show.report.page_data import GraphData, gather, program_order
from pebbler.show.report.report_page import page
from pebbler.show.report.step_reuse import measure_reuse
from pebbler.trace.cache_analysis import analyse
from pebbler.trace.caches import opt_misses
from pebbler.trace.distances import reuse_distances
from pebbler.trace.plan_trace import trace_plan
from strategies import generators, random_cache_machine, random_graph, random_order

OPTIMAL = note_order("optimal")


@pytest.fixture(scope="module")
def optimal() -> Plan:
    return Plan.in_order(workloads.note_mlp(), machine("notes-recency"), OPTIMAL)


@settings(max_examples=80)
@given(generators)
def test_distances_and_misses_from_runs_are_those_of_the_trace(rng) -> None:
    graph = random_graph(rng)
    cached = msgspec.structs.replace(random_cache_machine(rng, "lru"), line=rng.choice([1, 1, 2]))
    order = np.array(random_order(rng, graph), np.int64)
    plan = Plan.in_order(graph, cached, [graph.ops[op].name for op in order])
    found = measure_reuse(graph, order, cached)
    if found is None:
        assert sum(len(piece) for piece in trace_plan(plan)) == 0
        return
    lines = np.concatenate([piece.address for piece in trace_plan(plan)]) // cached.line
    # A run touches each of its lines once; unit by unit the same line follows itself at distance 1.
    expected = analyse(trace_plan(plan), found.opt_size, line=cached.line)
    assert found.cold == len(np.unique(lines)) == expected.cold
    if cached.line == 1:
        assert found.accesses == expected.accesses
        assert found.opt_misses == list(expected.opt.values())
    held = dict(zip(found.distance, found.weight, strict=True))
    for size in found.opt_size:
        assert found.accesses - sum(n for d, n in held.items() if d <= size) == expected.lru[size]


@settings(max_examples=80)
@given(generators)
def test_distances_and_misses_of_a_loop_are_those_of_its_second_step(rng) -> None:
    """Cold figures beside a steady energy: the miss curve of a loop used to start with empty caches."""
    graph = random_graph(rng)
    cached = msgspec.structs.replace(random_cache_machine(rng, "lru"), line=1)
    order = np.array(random_order(rng, graph), np.int64)
    plan = Plan.in_order(graph, cached, [graph.ops[op].name for op in order])
    found = measure_reuse(graph, order, cached, steady=True)
    if found is None:
        return
    once = np.concatenate([piece.address for piece in trace_plan(plan)])
    both = reuse_distances(np.concatenate([once, once]))[len(once) :]
    assert found.cold == 0
    assert found.accesses == len(once)
    held = dict(zip(found.distance, found.weight, strict=True))
    assert held == dict(zip(*(part.tolist() for part in np.unique(both, return_counts=True)), strict=True))
    for size, misses in zip(found.opt_size, found.opt_misses, strict=True):
        assert misses <= int((both > size).sum())
        assert misses == int(opt_misses(np.concatenate([once, once]), [size])[0] - opt_misses(once, [size])[0])


def test_the_reuse_of_a_steady_plan_is_steady() -> None:
    step = workloads.mlp(n=3, hidden=5)
    steady, once = (gather([Plan.in_order(step, machine("notes"), steady=loop)]).plans[0] for loop in (True, False))
    assert steady.reuse is not None
    assert once.reuse is not None
    assert (steady.reuse.cold, steady.reuse.steady, once.reuse.steady) == (0, True, False)
    assert once.reuse.cold > 0


def test_knees_name_the_reuse_that_a_larger_cache_would_hold() -> None:
    found = measure_reuse(workloads.note_mlp(), np.arange(15), machine("notes"))
    assert found is not None
    first = found.knees[0]
    assert (first.tensor, first.op) == ("W1", "upd_W1")
    at = dict(zip(found.opt_size, found.opt_misses, strict=True))
    assert at[max(at)] == found.cold


def test_landscape_of_the_note_is_complete_and_its_minimum_the_notes(optimal: Plan) -> None:
    found = survey([optimal], ["mine"], references=marked_orders())
    assert found is not None
    assert (found.orders, found.complete, sum(found.counts)) == ("7,290", True, 7290)
    assert (found.low, found.high) == (10_764_315, 11_084_600)
    marks = {mark.name: mark for mark in found.marks}
    assert marks["mine"].energy == 10_764_315
    assert not marks["note: fused"].legal
    assert marks["note: fused"].energy == 10_844_330


def test_references_are_marked_where_the_graph_has_their_ops() -> None:
    order = [op.name for op in workloads.mlp(n=3, hidden=5).ops]
    for graph, names in ((workloads.mlp(n=3, hidden=5), ["p", "mine"]), (workloads.deep_mlp(n=3, hidden=5), ["p"])):
        found = survey([Plan.in_order(graph, machine("notes"))], ["p"], references={"mine": order})
        assert found is not None
        assert [mark.name for mark in found.marks] == names
    assert found.marks == survey([Plan.in_order(graph, machine("notes"))], ["p"]).marks


def test_landscape_samples_what_it_cannot_list_and_repeats_itself() -> None:
    graph = workloads.deep_mlp(n=4, hidden=6, layers=5)
    plan = Plan.in_order(graph, machine("notes"))
    found = survey([plan], ["p"])
    assert found is not None
    assert not found.complete
    assert found == survey([plan], ["p"])
    assert found.low <= found.high


def test_landscape_counts_beyond_what_a_float_holds() -> None:
    graph = Graph("wide", unit="pebble")
    for i in range(200):
        graph.tensor(f"t{i}", 1, kind="output")
        graph.op(f"op{i}", writes=[f"t{i}"])
    found = survey([Plan.in_order(graph, msgspec.structs.replace(machine("red-blue"), management="lru"))], ["p"])
    assert found is not None
    assert found.orders == "about 10^374"  # 200! is 7.9e374


def test_landscape_of_explicit_memory_runs_each_order() -> None:
    graph = workloads.mlp(n=3, hidden=5)
    explicit = msgspec.structs.replace(machine("notes-explicit"))
    plan = program_order(Plan.in_order(graph, explicit))
    assert plan is not None
    found = survey([plan], ["p"])
    assert found is not None
    assert found.seen > found.misfits
    assert found.low <= check(plan).energy


def test_capacity_curves_are_what_the_referee_says_at_every_capacity() -> None:
    for name in ("notes", "notes-recency"):
        plan = Plan.in_order(workloads.note_mlp(), machine(name), OPTIMAL)
        for curve in capacity_curves([(plan, "p")]):
            for room, energy in list(zip(curve.capacity, curve.energy, strict=True))[::6]:
                levels = list(plan.machine.level)
                levels[curve.level] = msgspec.structs.replace(levels[curve.level], capacity=room)
                resized = replace(plan, machine=msgspec.structs.replace(plan.machine, level=tuple(levels)))
                assert check(resized).energy == energy
            assert curve.own in curve.capacity


def test_program_order_joins_once_and_only_where_it_is_not_there_yet(optimal: Plan) -> None:
    data = gather([optimal])
    assert [plan.name for plan in data.plans] == ["plan", "program order"]
    assert data.plans[0].program_order == data.plans[1].judgement.energy == 11_004_490
    assert len(data.graphs) == 1
    base = Plan.in_order(workloads.note_mlp(), machine("notes-recency"))
    assert [plan.name for plan in gather([base]).plans] == ["plan"]
    assert [plan.name for plan in gather([optimal, optimal, base], ["a", "a", "b"]).plans] == ["a", "a (2)", "b"]


def test_verdict_and_claim_stand_side_by_side(optimal: Plan) -> None:
    certificate = {"bound": 1, "covers": "graph", "formula": "last touches"}
    claims = replace(optimal, energy=5, bound=1, status="bounded", covers="graph", certificate=certificate)
    wrong = gather([claims]).plans[0]
    assert (wrong.claims.energy, wrong.judgement.energy) == (5, 10_764_315)
    assert wrong.claims.void == ["the energy of 5 pJ is not what the referee finds, 10.764 µJ"]
    assert (wrong.bound, wrong.status) == (10_764_315, "optimal")  # proven here, whatever the file says


def test_tiles_of_any_number_of_axes_know_what_they_are_tiles_of() -> None:
    whole = workloads.mlp(n=4, hidden=6, batch=4)
    tiled = tile(tile(whole, "hidden", 3), "batch", 2)
    data = GraphData.of(tiled, "pJ")
    assert set(data.op_origin) == {op.name for op in whole.ops}
    assert set(data.tensor_origin) == {tensor.name for tensor in whole.tensors}
    assert data.op_origin.count("fwd_relu") == 4
    lookalike = Graph("names", unit="pebble").tensor("x[0]", 1, kind="output").op("op[0]", writes=["x[0]"])
    assert GraphData.of(lookalike, "units").op_origin == ["op[0]"]


def test_wrong_requests_are_refused(optimal: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="at least one plan"):
        report([], tmp_path / "x.html")
    with pytest.raises(InputError, match=r"x.pdf: a report is a page"):
        report(optimal, tmp_path / "x.pdf")
    with pytest.raises(InputError, match="names must match"):
        report(optimal, tmp_path / "x.html", names=["a", "b"])
    monkeypatch.setattr(sys.modules["pebbler.show.report.page_data"], "MOST_MOVES", 10)
    with pytest.raises(InputError, match="15 moves are too many"):
        report(optimal, tmp_path / "x.html")
    (tmp_path / "bad.json").write_bytes(
        optimal.to_json().replace(b'["compute","fwd_linear1"]', b'["compute","nothing"]')
    )
    with pytest.raises(InputError, match=r"bad\.json: moves\[0\]"):
        report(tmp_path / "bad.json", tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_the_page_is_small_loads_nothing_and_is_the_same_every_time(optimal: Plan, tmp_path: Path) -> None:
    report(optimal, tmp_path / "one.html")
    report(optimal, tmp_path / "two.html")
    html = (tmp_path / "one.html").read_text()
    assert html == (tmp_path / "two.html").read_text()
    assert len(html.encode()) < 1_500_000
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", html)
    assert "default-src 'none'" in html


def test_only_the_scripts_of_the_page_may_run(optimal: Plan) -> None:
    html = page(gather([optimal]))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)
    assert policy is not None
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    hashes = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts}
    assert set(re.findall(r"'sha256-([^']+)'", policy.group(1))) == hashes
    assert len(hashes) == 4


def test_names_cannot_leave_the_data(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><!--"
    graph = Graph(evil, unit="pebble")
    graph.tensor(evil, 1, kind="output")
    graph.op(evil, writes=[evil])
    report(Plan.in_order(graph, machine("red-blue")), tmp_path / "x.html", names=[evil])
    html = (tmp_path / "x.html").read_text()
    assert evil not in html
    data = re.search(r'id="data">(.*?)</script>', html, re.DOTALL)
    assert data is not None
    assert json.loads(data.group(1))["graphs"][0]["tensor_name"] == [evil]
