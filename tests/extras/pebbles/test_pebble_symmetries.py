"""What may change places in a pebble game, and what does not. Brute force: `test_optimum_attacks.py`."""

from __future__ import annotations

import math

from benchmarks.field_games import field_graph, red_blue

from pebbler.extras.pebbles.kernels.pebble_state import PebbleGame
from pebbler.extras.pebbles.pebble_rules import pebble_rules
from pebbler.extras.pebbles.pebble_symmetries import swap_back, with_symmetries
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.solver.problem import Problem


def game_of(problem: Problem) -> PebbleGame:
    rules = pebble_rules(problem)
    assert rules is not None
    return with_symmetries(rules.game, lambda: math.inf)


def two_rows(reads: str) -> Problem:
    """Two rows, of which one reads what one more op reads: alike only if both do."""
    graph = Graph("rows", unit="pebble")
    for name in ("a", "b", "s"):
        graph.tensor(name, 1, kind="input")
    for name in ("x", "y"):
        graph.tensor(name, 1, kind="output")
    graph.op("x", ["a", "s"], ["x"], 9).op("y", [reads, "s"], ["y"], 9).tensor("z", 1).op("z", [reads], ["z"], 9)
    levels = (Level("fast", 0, 0, capacity=3), Level("slow", 1, 1))
    return Problem.of(graph, Machine("two", "pebble", levels), steady=False)


def test_components_are_alike_after_the_last_product() -> None:
    graph = field_graph("cg")
    game = game_of(Problem.of(graph, red_blue(graph, 1), steady=False))
    # Five components, put in order by swaps of neighbours.
    after = next(number for number, op in enumerate(graph.ops) if op.name == "op_v45")
    base = game.fixed.tolist().index(graph.dataflow.ancestors[after] | 1 << after)
    assert game.swap_start[base + 1] - game.swap_start[base] == 10


def test_rows_are_alike_only_if_all_else_is() -> None:
    assert 0 in game_of(two_rows("a")).fixed.tolist()
    assert 0 not in game_of(two_rows("b")).fixed.tolist()


def test_where_ops_may_run_again_nothing_changes_places() -> None:
    graph = field_graph("knn")
    assert len(game_of(Problem.of(graph, red_blue(graph, 1), steady=False)).fixed) == 0


def test_names_follow_what_changed_places() -> None:
    game = game_of(two_rows("a"))
    base = game.fixed.tolist().index(0)
    ops, values = list(range(len(game.needs))), list(range(len(game.readers)))
    was = list(ops), list(values)
    swap_back(game, base + 1, ops, values)  # in order as it was
    assert (ops, values) == was
    swap_back(game, base + 1 | 1 << 6, ops, values)
    assert ops != was[0] or values != was[1]
    swap_back(game, base + 1 | 1 << 6, ops, values)
    assert (ops, values) == was


def test_what_a_full_memory_pushed_out_is_not_like_what_it_left() -> None:
    """After `k` the values `a` and `b` are each read by one more op; but `b` has to be loaded for it, and the estimate knows."""
    graph = Graph("pushed", unit="pebble").tensor("a", 1, kind="input").tensor("b", 1, kind="input")
    for name in ("e", "e2"):
        graph.tensor(name, 1)
    for name in ("k", "x", "y"):
        graph.tensor(name, 1, kind="output")
    graph.op("e", ["b"], ["e"], 9).op("e2", ["a", "e"], ["e2"], 9).op("k", ["a", "e2"], ["k"], 9)
    graph.op("x", ["a"], ["x"], 9).op("y", ["b"], ["y"], 9)
    levels = (Level("fast", 0, 0, capacity=3), Level("slow", 1, 1))
    game = game_of(Problem.of(graph, Machine("two", "pebble", levels), steady=False))
    assert not any(game.pairs[:, 2])  # no two ops change places
