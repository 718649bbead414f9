"""The notes' figures, their corrections and the answers, as the experiments give them."""

from __future__ import annotations

import functools
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from pebbler.errors import InputError
from pebbler.game.machine import machine
from pebbler.game.plan import Plan
from pebbler.game.transform import tile
from pebbler.notes.every_order import all_orders, hazard_free, order_ards, order_events, recency_energies
from pebbler.notes.experiment import Experiment, compare
from pebbler.notes.findings import results
from pebbler.notes.note000_pebble_game import depth_question, eager_order, recompute_question
from pebbler.notes.note000_savings import NEEDS_SOLVER, Solver, savings, tile_by_tile
from pebbler.notes.note001_chain import fewest_recomputes, note_program, stored_at
from pebbler.notes.note004_minibatch import LOOPED, PRODUCT, SINGLE, load_table
from pebbler.notes.reproduction import EXPERIMENTS, SWEEPS, reproduce
from pebbler.notes.step_scripts import batch_step, play, step
from pebbler.notes.tiled_loops import FLOATS_PER_KB, Pipelined, Tiled, steady_lru, tile_spans
from pebbler.referee.judgement import check
from pebbler.solver.chain.strategies import compare_strategies, judge, spent
from pebbler.trace.buffer_events import Events
from pebbler.workloads import deep_mlp, mlp, note_mlp


@functools.cache
def run(name: str, solve: Solver | None) -> Experiment:
    return reproduce([name], solve=solve)[name]


def found(name: str) -> Experiment:
    """Return an experiment. No figure of a note depends on how good the solver's plans are: those take half a minute."""
    return run(name, lazy_solver if name == "pebble-game" else None)


def measured(name: str) -> dict:
    return {row.name: row.measured for row in found(name).rows}


FOUND = [
    *(pytest.param(functools.partial(found, name), id=name) for name in EXPERIMENTS if name not in SWEEPS),
    pytest.param(functools.partial(run, "pebble-game", None), id="pebble-game, solved", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("experiment", FOUND)
def test_every_figure_that_can_reproduce_does(experiment):
    experiment = experiment()
    assert [row.name for row in experiment.rows if not row.ok] == []
    names = [row.name for row in experiment.rows]
    assert len(set(names)) == len(names)
    assert msgspec.json.encode(results(experiment, 1.0))
    assert all(row.corrected is not None and row.why for row in experiment.rows if row.wrong)


@pytest.mark.parametrize("experiment", FOUND)
def test_questions_are_answered_by_tables_or_say_what_they_wait_for(experiment):
    for question in experiment().questions:
        assert question.answer
        assert question.tables or question.answer.startswith("needs the solver")
        for table in question.tables:
            assert table.rows
            assert all(len(row) == len(table.columns) for row in table.rows)


def test_note_000():
    rows = measured("pebble-game")
    assert [rows[f"{order}: energy in full"] for order in ("standard", "fused", "perlayer", "optimal")] == [
        11004490,
        10844330,
        10844330,
        10764315,
    ]
    assert [rows[f"optimal: {level}"] for level in ("L2", "L1", "register")] == [10404200, 360060, 55]
    assert rows["standard: ARD"] == 45275.211759463076
    assert [rows[f"{order}: test accuracy"] for order in ("standard", "fused", "perlayer", "optimal")] == [
        0.98,
        0.57,
        0.57,
        0.98,
    ]
    assert (rows["orders of the DAG"], rows["hazard-free orders"], rows["least energy"]) == (7560, 7290, 10.764315)


def test_note_000_minimum_is_over_legal_orders_too():
    graph = note_mlp()
    orders = all_orders(graph, war=False)
    energies = recency_energies(graph, machine("notes-recency"), orders)
    free = hazard_free(graph, orders)
    assert energies.min() == energies[free].min() == 10764315
    assert energies.max() == 11084600
    assert len(np.unique(orders, axis=0)) == len(orders)


def test_many_ards_at_once_equal_the_trace_of_each():
    graph = note_mlp()
    orders = all_orders(graph)[::97]
    names = [op.name for op in graph.ops]
    one_by_one = [order_events(graph, [names[op] for op in order]).weighted_ard() for order in orders]
    assert order_ards(graph, orders).tolist() == one_by_one


def test_note_001():
    rows = measured("chain")
    assert (rows["total energy"], rows["moves"], rows["first illegal move"]) == (2082, 381, 12)
    corrected = {row.name: row.corrected for row in found("chain").rows}
    assert (corrected["total energy"], corrected["backward: loads"], corrected["forward: stores"]) == (336, 0, 0)
    dear = [rows[f"optimum without io, {red} red"] for red in range(3, 16)]
    assert dear == [5149, 1019, 627, 490, 423, 388, 357, 347, 336, 324, 311, 297, 287]
    assert rows["optimum, 102 red"] == 201


def test_note_001_program_is_followed_to_the_letter():
    moves = list(note_program())
    assert (len(moves), spent(moves)) == (381, 2082)
    judged = compare_strategies(references={"theirs": moves})[0]
    assert (judged.name, judged.legal, judged.move, judged.energy) == ("theirs", False, 12, 2082)


def test_note_001_program_is_replayed_move_by_move():
    red = {0}
    for kind, node in note_program():
        if kind == "drop":
            red.remove(node)
        elif kind in ("load", "compute"):
            red.add(node)
    # The backward pass never gives a pebble up, so the program ends with its peak.
    assert len(red) == measured("chain")["red pebbles in use"] == 101


def test_no_spacing_recomputes_less_than_is_proven_and_even_spacing_reaches_it():
    rng = np.random.default_rng(1)
    spacings = [range(0, 100, k) for k in range(5, 40)]
    spacings += [rng.choice(100, size=size, replace=False).tolist() for size in range(1, 41)]
    slack = []
    for places in spacings:
        played = judge("spacing", 100, 11, 1, 100, stored_at(places))
        assert played.legal, played.error
        slack.append(played.computes - 100 - fewest_recomputes(played.stores + played.loads))
    assert min(slack) == 0
    rows = measured("chain")
    assert rows["uneven spacing: recomputed nodes"] == 100
    assert rows["even spacing: recomputed nodes"] == fewest_recomputes(18) == 81


def test_note_002():
    rows = measured("tiling")
    assert rows["T=50: ARD, seed 42"] == 22131.75539892636
    assert rows["T=500: ARD, seed 44"] == 38622.50972411542
    assert (rows["T=250: floats, seed 43"], rows["T=250: reads, seed 43"], rows["T=250: writes, seed 43"]) == (
        102193,
        59,
        39,
    )
    assert [rows[f"{name}: missed floats"] for name in ("untiled", "T=20 reversed", "T=20 same order")] == [
        40000,
        23384,
        46624,
    ]
    assert rows["T=100: epochs, seed 44"] == 50


def test_note_003():
    rows = measured("ard")
    assert rows["perlayer: weighted ARD"] == 17298.56596854372
    assert rows["standard: DMC"] == 3348253.104460899
    assert rows["fused: W2 distances"] == (13042, 14549, 16050)
    assert (rows["fused: test accuracy"], rows["fused: epochs"], rows["fused: first firing sample"]) == (0.965, 6, 41)


def test_note_004():
    rows = measured("minibatch")
    assert rows["single: ARD"] == 31499.64337904391
    assert rows["batch 64: ARD in full"] == 1085939.054690498
    assert rows["batch 8: floats per sample"] == 75687.625
    assert rows["single: floats, written once"] == 1773900
    assert rows["batch 32, hidden 1000, 32 KB: ARD"] == 612423.8296923338
    corrected = {row.name: row.corrected for row in found("minibatch").rows}
    assert (corrected["batch 1: floats per sample"], corrected["single: W1 writes"]) == (102073, 18)


def test_compare_rounds_as_the_note_did():
    assert compare("a", 0.98894999, "0.9889").match
    assert not compare("a", 0.98895001, "0.9889").match
    assert not compare("a", 17976.4, "17,976", reference=17976.5).match
    assert not compare("a", "many", "12").match
    assert compare("a", (1, 2), reference=(1, 2)).match


def test_reversal_and_the_fully_tiled_loop_cut_misses():
    cache = 64 * FLOATS_PER_KB
    same, back = (steady_lru(Tiled(20, 1000, 50, reverse, tile_dh=True), cache) for reverse in (False, True))
    joined = steady_lru(Pipelined(20, 1000, 50, alternate=True), cache)
    assert joined.missed_floats < back.missed_floats < 25000 < same.missed_floats
    everything = steady_lru(Tiled(20, 1000, 50, tile_dh=True), 10**6)
    assert (everything.missed_floats, everything.hit_rate) == (0, 100)


def test_opt_never_loads_more_of_everything_than_lru_and_batches_need_products():
    loads = load_table()
    assert loads[SINGLE, 1, 64].lru == 44064  # W1, b1 and W2 twice, in lines of 16 floats
    for (name, _, _), load in loads.items():
        assert load.opt <= load.lru, name
    assert loads[PRODUCT, 32, 64].lru * 10 < loads[LOOPED, 32, 64].lru


def test_eager_order_is_legal_and_never_worse():
    graph = deep_mlp(n=4, hidden=8, layers=3)
    order = np.array([eager_order(graph)])
    assert hazard_free(graph, order).all()
    assert sorted(order[0]) == list(range(len(graph.ops)))


def lazy_solver(graph, levels):
    """A solver that solves nothing: program order, everything left where it is."""
    explicit = levels.management == "explicit"
    moves = [("compute", op.name, levels.names[-1]) if explicit else ("compute", op.name) for op in graph.ops]
    plan = Plan(graph, levels, moves, steady=True)
    return replace(plan, energy=check(plan).energy, bound=1.0, status="bounded")


def test_a_solver_fills_in_what_waits_for_one():
    question, verdict = savings(lazy_solver)
    assert question.tables[0].rows[-1][:3] == ("the solver's plan", 12.74339, 1.0)
    assert "bounded" in verdict.evidence
    deep = depth_question(lazy_solver).tables[0].rows
    assert all(row[-1] == 0 for row in deep)
    again = recompute_question(lazy_solver)
    assert "0.0 %" in again.answer
    assert [row[2] for row in again.tables[0].rows] == [0, 0]
    assert recompute_question(None).answer == NEEDS_SOLVER


def test_tile_by_tile_is_legal_for_any_tile_size():
    for size in (1, 3, 4, 10):
        step = tile(mlp(n=3, hidden=10), "hidden", size)
        assert check(Plan.in_order(step, machine("notes"), tile_by_tile(step))).legal


def test_tiles_that_do_not_divide_cover_every_unit():
    assert sum(units for _, units in tile_spans(1000, 300)) == 1000
    with pytest.raises(InputError, match="tile"):
        tile_spans(10, 11)


def test_scripts_name_what_is_wrong():
    with pytest.raises(InputError, match="did you mean W1"):
        play(Events(), "W W11", {"W1": 3})
    with pytest.raises(InputError, match="neither R nor W"):
        play(Events(), "X W1", {"W1": 3})
    with pytest.raises(InputError, match="variant"):
        step(Events(), 20, 10, "fuse", fires=True)


def test_a_batch_without_gradients_updates_nothing():
    events = Events()
    batch_step(events, 20, 1000, [False, False])
    assert events.distances("acc_dW1") == []
    assert events.writes == 4 + 4 + 2 * 5  # parameters, accumulators, and x, y, h_pre, h, out of each sample


def test_unknown_experiments_are_refused_with_near_matches():
    with pytest.raises(InputError, match="did you mean tiling"):
        reproduce(["tilling"])
