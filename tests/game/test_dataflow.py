"""Versions and hazards, held against a slow reading of the program."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pebbler.errors import InputError
from pebbler.game.dataflow import NONE, Rows
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.run.numbers import execute
from pebbler.workloads import note_mlp
from strategies import generators, random_graph, random_order

MEMORY = Machine("memory", "pebble", (Level("memory", 1, 1),), operands="any")
CACHE = Machine("cache", "pebble", (Level("L1", 1, 1, capacity=4), Level("L2", 10, 10)), "recency", "any")


def test_rows_keep_empty_ones():
    rows = Rows.of([[], [1, 2], [], [3], []])
    assert [row.tolist() for row in rows] == [[], [1, 2], [], [3], []]
    assert len(Rows.of([])) == 0


def test_the_hazards_of_note_000_say_why_they_exist():
    hazards = note_mlp().dataflow.hazards()
    reasons = [hazard.why() for hazard in hazards]
    assert "upd_W2 must follow bwd_dh: bwd_dh reads W2 version 0, which upd_W2 overwrites" in reasons
    assert "fwd_relu must follow fwd_linear1: fwd_relu reads h_pre version 0, which fwd_linear1 writes" in reasons
    assert {(h.before, h.after) for h in hazards if h.kind == "WAR"} == {
        ("fwd_linear1", "upd_W1"),
        ("fwd_linear1", "upd_b1"),
        ("fwd_linear2", "upd_W2"),
        ("bwd_dh", "upd_W2"),
        ("fwd_linear2", "upd_b2"),
    }
    assert not any(hazard.kind == "WAR" for hazard in note_mlp().dataflow.hazards(war=False))


def test_versions_of_a_tensor_written_three_times():
    graph = Graph("t", unit="pebble")
    graph.tensor("a", 1)
    graph.op("w0", writes=["a"])
    graph.op("r0", reads=["a"])
    graph.op("w1", writes=["a"])
    graph.op("w2", reads=["a", "a"], writes=["a"])
    flow = graph.dataflow
    assert flow.value_version.tolist() == [0, 1, 2]
    assert flow.value_destroyer.tolist() == [2, 3, NONE]
    assert flow.op_in_place.tolist() == [False, False, True, True]
    assert [row.tolist() for row in flow.value_readers] == [[1], [3], []]
    assert [(h.kind, h.before, h.after, h.version) for h in flow.hazards()] == [
        ("RAW", "w0", "r0", 0),
        ("WAW", "w0", "w1", 0),
        ("WAR", "r0", "w1", 0),
        ("RAW", "w1", "w2", 1),
        ("WAW", "w1", "w2", 1),
    ]


def slow_hazards(graph: Graph) -> set[tuple[str, str, str, str]]:
    """Every pair of ops that meet in a storage, at least one writing, with no write between them."""
    root = {t.name: t.name if t.overwrites is None else t.overwrites for t in graph.tensors}

    def storage(name: str) -> str:
        return name if root[name] == name else storage(root[name])

    found = set()
    for j, second in enumerate(graph.ops):
        for i, first in enumerate(graph.ops[:j]):
            between = {storage(name) for op in graph.ops[i + 1 : j] for name in op.writes}
            for name in first.writes:
                free = storage(name) not in between
                if name in second.reads and free:
                    found.add(("RAW", first.name, second.name, name))
                if storage(name) in map(storage, second.writes) and free:
                    found.add(("WAW", first.name, second.name, name))
            for name in first.reads:
                # An op that overwrites what it reads has ended that version itself.
                ended = between | {storage(own) for own in first.writes}
                if storage(name) in map(storage, second.writes) and storage(name) not in ended:
                    found.add(("WAR", first.name, second.name, name))
    return found


@given(generators)
def test_hazards_are_those_of_a_slow_reading(rng):
    graph = random_graph(rng, 10)
    hazards = graph.dataflow.hazards()
    assert {(h.kind, h.before, h.after, h.tensor) for h in hazards} == slow_hazards(graph)
    assert len(hazards) == len(slow_hazards(graph))


@given(generators)
@settings(max_examples=400)
def test_every_order_that_keeps_the_hazards_is_legal_and_computes_the_same(rng):
    graph = random_graph(rng, 8, closed=True)
    order = [graph.ops[op].name for op in random_order(rng, graph)]
    for machine in (MEMORY, CACHE):
        plan = Plan.in_order(graph, machine, order)
        assert check(plan).legal
        assert execute(plan) == execute(Plan.in_order(graph, MEMORY))


@given(generators)
@settings(max_examples=300)
def test_an_order_that_breaks_any_one_hazard_is_refused_and_computes_something_else(rng):
    graph = random_graph(rng, 8, closed=True)
    order = [graph.ops[op].name for op in random_order(rng, graph)]
    expected = execute(Plan.in_order(graph, MEMORY))
    for hazard in graph.dataflow.hazards():
        broken = [name for name in order if name != hazard.after]
        broken.insert(broken.index(hazard.before), hazard.after)
        for machine in (MEMORY, CACHE):
            judgement = check(Plan.in_order(graph, machine, broken))
            assert not judgement.legal
            # The moved op may break another hazard as well, but nothing before it can be wrong.
            assert judgement.move is not None
            assert judgement.move >= broken.index(hazard.after) + 1
        try:
            result = execute(Plan.in_order(graph, MEMORY, broken))
        except InputError:
            continue  # it read what had not been made
        assert result != expected


@given(generators)
def test_without_war_hazards_only_overwritten_reads_are_wrong(rng):
    graph = random_graph(rng, 8)
    order = [graph.ops[op].name for op in random_order(rng, graph, war=False)]
    plan = Plan.in_order(graph, CACHE, order)
    assert check(plan, ignore_war=True).legal
    error = check(plan).error
    assert error is None or ("overwrites" in error and "before" in error)


@pytest.mark.parametrize("kind", ["RAW", "WAW"])
def test_ignore_war_still_refuses_the_other_hazards(kind):
    graph = Graph("t", unit="pebble")
    graph.tensor("a", 1)
    graph.op("first", writes=["a"])
    graph.op("second", reads=["a"] if kind == "RAW" else [], writes=["a"])
    judgement = check(Plan.in_order(graph, MEMORY.in_unit("pebble"), ["second", "first"]), ignore_war=True)
    assert not judgement.legal
    assert judgement.move == 1
