"""Coordinates never fall along a dependence, so blocks of them in any nesting are legal orders."""

from __future__ import annotations

import random

import networkx
import numpy as np
import pytest
from benchmarks.other_shapes import make_shape

from naive_orders import random_graph
from pebbler.arrays import Ints
from pebbler.game.graph import Graph
from pebbler.solver.structure.coordinates import Block, Coordinates
from pebbler.solver.structure.kernels.bisection import simple_orders
from pebbler.solver.structure.kernels.connected_groups import connected_groups
from pebbler.solver.structure.kernels.longest_paths import longest_paths
from pebbler.solver.structure.order_search import net_of


def coordinates_of(graph: Graph, seed: int) -> Coordinates:
    return Coordinates(graph.dataflow, simple_orders(net_of(graph.dataflow)), np.random.default_rng(seed))


def falls(graph: Graph, numbers: Ints) -> bool:
    before = graph.dataflow.before.lists()
    return any(numbers[other] > numbers[op] for op, others in enumerate(before) for other in others)


def test_coordinates_never_fall_and_blocks_of_them_are_legal_orders_of_any_stretch() -> None:
    rng = random.Random(3)
    for seed in range(60):
        graph = random_graph(rng, rng.randint(2, 40))
        drawn, ops = coordinates_of(graph, seed), len(graph.ops)
        before = graph.dataflow.before.lists()
        key = drawn.key()
        for _ in range(20):
            coordinate = drawn.draw()
            assert not falls(graph, coordinate)
            assert set(coordinate.tolist()) == set(range(int(coordinate.max()) + 1))
            key = drawn.changed(key) if rng.random() < 0.8 else drawn.key()
            start = simple_orders(net_of(graph.dataflow))[rng.randrange(5)]
            low, high = sorted(rng.sample(range(ops + 1), 2))
            order = np.concatenate([start[:low], Coordinates.order(key, start[low:high]), start[high:]])
            place = np.argsort(order)
            assert sorted(order.tolist()) == list(range(ops))
            assert all(place[other] < place[op] for op, others in enumerate(before) for other in others)


def test_blocks_of_numbers_that_fall_are_found_out() -> None:
    # The test above can fail: what is no coordinate gives orders that are none.
    graph = make_shape("wavefront", 100).graph
    falling = np.arange(100)[::-1].copy()
    order = Coordinates.order((Block(falling, 10), Block(np.arange(100), 1)), np.arange(100))
    assert falls(graph, falling)
    assert falls(graph, np.argsort(order))


@pytest.mark.parametrize("backward", [False, True])
def test_longest_paths_are_those_of_a_plain_recursion(backward: bool) -> None:
    rng = random.Random(4)
    for _ in range(40):
        count = rng.randint(1, 12)
        edges = [(a, b, rng.randint(0, 3)) for b in range(count) for a in range(b) if rng.random() < 0.4]
        first = [rng.randint(-5, 5) for _ in range(count)]

        def longest(op: int) -> int:
            ways = [(a if not backward else b, w) for a, b, w in edges if (b if not backward else a) == op]  # noqa: B023
            return max([first[op], *(longest(other) + weight for other, weight in ways)])  # noqa: B023

        start = np.cumsum([0, *(sum(b == op for _, b, _ in edges) for op in range(count))])
        items, weight = np.array([a for a, _, _ in edges], np.int64), np.array([w for _, _, w in edges], np.int64)
        found = longest_paths(start, items, weight, np.array(first), backward)
        assert found.tolist() == [longest(op) for op in range(count)]


def test_a_table_of_three_words_has_all_its_coordinates() -> None:
    shape = make_shape("three-words", 216)
    drawn = coordinates_of(shape.graph, 0)
    found = {tuple(drawn.draw().tolist()) for _ in range(600)}
    for place in range(3):
        assert tuple(at[place] for at in shape.places) in found


def test_groups_are_those_of_a_plain_search() -> None:
    rng = random.Random(6)
    for _ in range(60):
        count = rng.randint(1, 30)
        pairs = [(rng.randrange(count), rng.randrange(count)) for _ in range(rng.randint(0, 30))]
        graph: networkx.Graph[int] = networkx.Graph()
        graph.add_nodes_from(range(count))
        graph.add_edges_from(pairs)
        one, other = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
        found = connected_groups(count, one, other)
        for group in networkx.connected_components(graph):
            assert {int(found[thing]) for thing in group} == {min(group)}


def test_a_factorisation_has_rows_and_columns() -> None:
    shape = make_shape("banded", 600)
    drawn = coordinates_of(shape.graph, 0)
    found = {tuple(drawn.draw().tolist()) for _ in range(1_500)}
    for place in range(3):
        ranks = np.unique([at[place] for at in shape.places], return_inverse=True)[1]
        assert tuple(ranks.tolist()) in found
