"""Counting orders, held against enumeration."""

from __future__ import annotations

from itertools import permutations
from math import factorial

import pytest
from hypothesis import given

from pebbler.game.graph import Graph
from pebbler.game.orders import count_orders, iterate_orders
from pebbler.game.summary import summarise
from pebbler.workloads import chain, deep_mlp, note_mlp
from strategies import generators, random_graph


def brute_force(graph: Graph, war: bool) -> list[tuple[int, ...]]:
    pairs = [(first, op) for op, row in enumerate(graph.dataflow.predecessors(war=war)) for first in row]
    every = permutations(range(len(graph.ops)))
    return [order for order in every if all(order.index(first) < order.index(second) for first, second in pairs)]


@given(generators)
def test_counts_and_orders_are_those_of_brute_force(rng):
    graph = random_graph(rng, 6)
    for war in (True, False):
        expected = brute_force(graph, war)
        assert count_orders(graph, war=war) == len(expected)
        assert [tuple(order) for order in iterate_orders(graph, war=war)] == expected


@given(generators)
def test_counts_of_larger_graphs_are_those_of_enumeration(rng):
    graph = random_graph(rng, 9)
    assert count_orders(graph) == sum(1 for _ in iterate_orders(graph))


def test_note_000_has_7290_orders_and_7560_without_war():
    assert (count_orders(note_mlp()), count_orders(note_mlp(), war=False)) == (7290, 7560)
    assert sum(1 for _ in iterate_orders(note_mlp())) == 7290


def independent(count: int) -> Graph:
    graph = Graph("independent")
    graph.tensor("a", 1, kind="input")
    for i in range(count):
        graph.op(f"r{i}", reads=["a"])
    return graph


@pytest.mark.parametrize("count", [0, 1, 40, 1500])
def test_independent_ops_interleave_freely(count):
    assert count_orders(independent(count)) == factorial(count)


def test_long_graphs_are_enumerated_without_recursion():
    assert [len(order) for order in iterate_orders(chain(3000))] == [6001]
    assert list(next(iterate_orders(independent(5000)))) == list(range(5000))
    assert list(iterate_orders(Graph("empty"))) == [[]]


def test_a_long_chain_has_one_order():
    assert count_orders(chain(3000)) == 1
    assert count_orders(chain(15_000)) == 1  # above the size where reachability is kept


def test_counting_gives_up_instead_of_running_for_ever():
    assert count_orders(deep_mlp(layers=300)) is None
    assert count_orders(note_mlp(), limit=10) is None


def test_a_count_too_long_to_write_is_null_in_json():
    about = summarise(independent(1500))
    assert about.orders == factorial(1500)
    assert about.to_dict()["legal_orders"] == factorial(1500)  # 4,115 digits
    assert summarise(independent(1700)).to_dict()["legal_orders"] is None  # 4,756 digits
