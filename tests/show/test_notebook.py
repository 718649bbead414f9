"""What a notebook, and a prompt, show of things: short, and without markup from names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pebbler import machine, solve_chain, workloads
from pebbler.game.graph import Graph
from pebbler.game.plan import Plan
from pebbler.notes.reference_orders import note_order
from pebbler.referee.judgement import check
from pebbler.show.report import report


def test_reprs_are_one_short_line(tmp_path: Path) -> None:
    plan = solve_chain(300, red=5)
    data = report(plan, tmp_path / "report.html")
    for thing in (plan, plan.graph, check(plan), data, plan.moves):
        assert len(repr(thing)) < 250
        assert "\n" not in repr(thing)
    illegal = Plan.in_order(workloads.note_mlp(), machine("notes"), note_order("fused"))
    assert repr(check(illegal)) == "Judgement(illegal, move 7: upd_W2 overwrites W2 (version 0) before bwd_dh reads it)"


def test_a_plan_shows_energy_by_level_and_a_picture() -> None:
    plan = Plan.in_order(workloads.note_mlp(), machine("notes"))
    html = plan._repr_html_()
    for words in ("12.743 µJ", "<td>HBM</td>", "15 moves", "<svg", "pebbler.report"):
        assert words in html
    assert len(html) < 10_000
    assert "<td>HBM</td>" in check(plan)._repr_html_()
    assert "15 ops" in plan.graph._repr_html_()
    assert len(solve_chain(300, red=3)._repr_html_()) < 300_000


def test_a_notebook_believes_no_claim() -> None:
    plan = Plan.in_order(workloads.note_mlp(), machine("notes"), status="optimal", bound=2e7)
    assert "does not hold" in plan._repr_html_()
    illegal = replace(plan, moves=list(plan.moves)[::-1])
    assert "illegal" in illegal._repr_html_()
    assert "optimal" not in illegal._repr_html_()


def test_names_become_no_markup() -> None:
    name = "<script>x</script>"
    graph = Graph(name, unit="pebble").tensor(name, 1, kind="output").op(name, writes=[name])
    plan = Plan.in_order(graph, machine("red-blue"))
    for thing in (graph, plan, check(plan), check(replace(plan, moves=[]))):
        assert "<script" not in thing._repr_html_()


def test_a_report_shows_its_page_in_a_frame(tmp_path: Path) -> None:
    data = report(Plan.in_order(workloads.note_mlp(), machine("notes")), tmp_path / "report.html")
    html = data._repr_html_()
    assert html.startswith('<iframe srcdoc="&lt;!doctype html')
    assert "<script" not in html
