"""Replays: what is held where, move by move."""

from __future__ import annotations

import random

from hypothesis import given

from pebbler.game.dataflow import NONE
from pebbler.game.machine import machine
from pebbler.game.moves import Compute
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.workloads import mlp, note_mlp
from strategies import generators, random_graph, random_machine, random_plan


@given(generators)
def test_what_is_held_adds_up_and_peaks_where_the_referee_says(rng: random.Random) -> None:
    graph = random_graph(rng)
    plan = random_plan(rng, graph, random_machine(rng, graph))
    if plan is None:
        return
    if rng.random() < 0.3:  # some of them illegal
        words = plan.moves.words()
        rng.shuffle(words)
        plan = plan.with_moves(words)
    judgement = check(plan)
    flow, replay = plan.graph.dataflow, plan.replay()
    held = set(replay.start)
    peak = [sum(int(flow.value_size[value]) for value, at in held if at == level) for level in range(len(replay.held))]
    for number, step in enumerate(replay, 1):
        if judgement.move is not None and number >= judgement.move:
            break
        assert not set(step.added) & held
        assert set(step.removed) <= held
        held = held - set(step.removed) | set(step.added)
        if isinstance(step.move, Compute):
            op = plan.graph.op_index(step.move.op)
            # Up to the first illegal move every read finds the version that program order would give it.
            assert [value for value, _ in step.reads] == flow.op_reads.row(op).tolist()
        for level, values in enumerate(replay.held):
            assert {value for value, at in held if at == level} == set(values.values())
            peak[level] = max(peak[level], sum(int(flow.value_size[value]) for value in values.values()))
    if judgement.legal and replay.explicit:
        assert peak == list(judgement.peak.values())


def test_a_broken_order_reads_what_is_there() -> None:
    graph = note_mlp()
    names = [op.name for op in graph.ops]
    early = [name for name in names if name != "upd_W2"]
    early.insert(early.index("bwd_dh"), "upd_W2")
    read = {
        step.move.op: step.reads
        for step in Plan.in_order(graph, machine("notes"), early).replay()
        if isinstance(step.move, Compute)
    }
    new = int(graph.dataflow.final_value[graph.tensor_index("W2")])
    assert read["bwd_dh"][0] == (new, 0)


def test_what_nothing_holds_is_read_as_nothing() -> None:
    plan = Plan.in_order(mlp(n=2, hidden=3), machine("notes-explicit"), ["fwd_relu"])
    assert next(iter(plan.replay())).reads == ((NONE, NONE),)
