"""Which graphs are recognised as chains, and that the recognised game is the referee's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive_chain import naive_energy
from pebbler import check, machine, workloads
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Plan
from pebbler.solver.chain import Chain, as_chain, solve_chain_problem, solve_general
from pebbler.solver.chain.chain_moves import plan_moves
from pebbler.solver.problem import Problem, Search


def other_names(sizes=(2, 3, 1), reorder=False, **changes):
    """A chain of three nodes under other names, with one thing changed."""
    g = Graph("renamed", unit="pebble")
    g.tensor("image", sizes[0], kind=changes.get("first", "input"))
    g.tensor("hidden", sizes[1], kind=changes.get("middle", "temp"))
    g.tensor("logits", sizes[2])
    for name in ("dlogits", "dhidden", "dimage"):
        g.tensor(name, changes.get("gradient", 0), kind="output")
    g.op("layer1", reads=["image"], writes=["hidden"], cost=4, once=changes.get("once", False))
    g.op("layer2", reads=["hidden"], writes=["logits"], cost=7)
    g.op("loss", reads=["logits"], writes=["dlogits"], cost=1)
    second = ["dlogits", "logits", "hidden"] if reorder else ["hidden", "logits", "dlogits"]
    g.op("back2", reads=changes.get("second", second), writes=["dhidden"], cost=2)
    g.op("back1", reads=["image", "hidden", "dhidden"], writes=["dimage"], cost=3)
    return g


def two_levels(capacity=6, **changes):
    levels = (Level("sram", 1, 2, capacity=capacity), Level("dram", 10, 20))
    return Machine("m", "pebble", levels, **changes)


@pytest.mark.parametrize("reorder", [False, True])
def test_other_names_sizes_and_costs_are_recognised(reorder):
    graph = other_names(reorder=reorder)
    chain, parts = as_chain(graph, two_levels(), {"image": "sram"})
    assert chain == Chain((2, 3, 1), (0, 4, 7), (3, 2, 1), (42, 63, 21), (24, 36, 12), 6)
    assert [graph.tensor_names[node] for node in parts.nodes] == ["image", "hidden", "logits"]
    assert [graph.op_names[op] for op in parts.forward[1:]] == ["layer1", "layer2"]
    assert [graph.op_names[op] for op in parts.backward] == ["back1", "back2", "loss"]


@pytest.mark.parametrize(
    ("where", "start"), [(None, "slow"), ("dram", "slow"), (["sram", "dram"], "both"), ("sram", "fast")]
)
def test_the_start_is_taken_over(where, start):
    chain, _ = as_chain(other_names(), two_levels(), {} if where is None else {"image": where})
    assert chain.start == start


@pytest.mark.parametrize(
    ("graph", "target"),
    [
        (other_names(gradient=1), two_levels()),
        (other_names(once=True), two_levels()),
        (other_names(middle="output"), two_levels()),
        (other_names(first="param"), two_levels()),
        (other_names(second=["hidden", "dlogits"]), two_levels()),
        (other_names(sizes=(2, 0, 1)), two_levels()),
        (other_names(), two_levels(operands="any")),
        (other_names(), two_levels(management="lru")),
        (other_names(), two_levels(capacity=4)),
        (workloads.note_mlp(), machine("notes-explicit")),
    ],
)
def test_anything_else_is_left_alone(graph, target):
    assert as_chain(graph, target) is None


@given(
    st.integers(1, 6),
    st.integers(2, 5),
    st.integers(0, 12),
    st.sampled_from(["slow", "fast", ["fast", "slow"]]),
    st.booleans(),
)
def test_the_recognised_game_is_the_referees(length, red, io, where, one_level):
    levels = (
        (Level("fast", 0, 0, capacity=red),)
        if one_level
        else (Level("fast", 0, 0, capacity=red), Level("slow", io, io))
    )
    target = Machine("m", "pebble", levels)
    graph, start = workloads.chain(length), {"N0": "fast" if one_level else where}
    chain, parts = as_chain(graph, target, start)
    least = naive_energy(chain)
    if math.isinf(least):
        return
    solved = solve_general(chain)
    moves = plan_moves(parts, solved.moves(), len(levels) - 1).moves(graph, target)
    judgement = check(Plan(graph, target, moves, start))
    assert judgement.legal, judgement.error
    assert judgement.energy == solved.energy == least


def test_the_front_door_uses_it():
    search = Search(Problem.of(workloads.chain(40), machine("red-blue"), start={"N0": "fast"}))
    assert solve_chain_problem(search)
    assert search.done
    assert search.energy == 40 + 30 + 41  # each node that does not stay red comes back once
    assert not solve_chain_problem(Search(Problem.of(workloads.note_mlp(), machine("notes-explicit"), steady=False)))
