"""The rows of `pebbler solve --compare`: each freedom costs no more than those before it."""

from __future__ import annotations

from itertools import pairwise

from pebbler.game.machine import Level, Machine
from pebbler.notes.reference_orders import compared_orders
from pebbler.referee.judgement import check
from pebbler.solver import solve_search
from pebbler.solver.ablation import compare
from pebbler.solver.program_order import program_order_words
from pebbler.workloads import chain


def test_every_freedom_is_worth_something() -> None:
    search = solve_search("mlp:n=20,hidden=1000", "notes", time_limit=4)
    rows = {row.name: row for row in compare(search, references=compared_orders())}
    assert rows["program order"].energy == 12743390
    assert rows["note 000, fused"].energy is None
    assert "overwrites W2" in rows["note 000, fused"].note
    names = [
        "program order",
        "best whole-tensor order",
        "+ fusion",
        "+ tiling",
        "+ reversed sweep",
        "+ recomputation",
        "bound",
    ]
    energies = [rows[name].energy for name in names]
    assert energies == sorted(energies, reverse=True)
    assert energies[0] > energies[2] > energies[-1]
    assert energies[3] > 4.4e6 > energies[5]


def test_every_freedom_of_a_paged_plan_costs_no_more() -> None:
    search = solve_search("mlp:n=20,hidden=200", "notes-explicit", tile="none", time_limit=3)
    rows = compare(search)
    energies = [row.energy for row in rows[:1] + rows[2:]]
    assert all(after <= before for before, after in pairwise(energies))


def test_no_row_is_better_than_the_plan_that_the_comparison_ends_with() -> None:
    search = solve_search("mlp:n=20,hidden=200", "notes", time_limit=0)
    rows = compare(search, references=compared_orders(), seconds=3)
    assert search.energy < rows[0].energy  # the search itself had no time at all
    assert search.energy <= min(row.energy for row in rows[:-1] if row.energy is not None)
    assert search.best is not None
    assert check(search.best).energy == search.energy
    rows = compare(solve_search("mlp:n=20,hidden=200", "notes", time_limit=0), seconds=0)
    assert [row.energy for row in rows[:-1]] == [rows[0].energy] * len(rows[:-1])
    assert rows[-2].note == "no time was left"


def test_rows_of_whole_tensors_offer_no_tiled_plans() -> None:
    search = solve_search("mlp:n=20,hidden=200", "notes", tile="none", time_limit=0)
    rows = compare(search, seconds=2)
    assert [row.name for row in rows] == ["program order", "best whole-tensor order", "+ recomputation", "bound"]
    assert search.best is not None
    assert search.best.source is None


def test_program_order_is_defined_where_it_is_shown() -> None:
    search = solve_search("mlp:n=20,hidden=200", "notes-explicit", time_limit=0)
    row = compare(search, seconds=0)[0]
    assert (row.energy, row.note) == (search.program_order, program_order_words(search.problem.machine))


def test_references_of_other_graphs_are_left_out() -> None:
    search = solve_search("note-mlp", "notes-recency")
    other = {"another graph's": ["c1", "c2"]}
    assert [row.name for row in compare(search, references=other)] == [
        "program order",
        "best whole-tensor order",
        "bound",
    ]


def test_a_single_level_says_when_program_order_does_not_fit() -> None:
    one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=4),))
    rows = compare(solve_search(chain(8), one))
    assert (rows[0].energy, rows[0].note) == (None, "does not fit")
    assert rows[1].energy == rows[2].energy
