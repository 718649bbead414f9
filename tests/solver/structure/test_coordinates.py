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
from pebbler.game.machine import Level, Machine
from pebbler.solver.greedy_plans import GreedyPlanner
from pebbler.solver.problem import Problem
from pebbler.solver.structure.coordinates import Block, Coordinates
from pebbler.solver.structure.kernels.belady_moves import run_belady
from pebbler.solver.structure.kernels.bisection import simple_orders
from pebbler.solver.structure.kernels.block_walks import walk_blocks
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
            order = np.concatenate([start[:low], drawn.order(key, start[low:high]), start[high:]])
            place = np.argsort(order)
            assert sorted(order.tolist()) == list(range(ops))
            assert all(place[other] < place[op] for op, others in enumerate(before) for other in others)


def test_blocks_of_numbers_that_fall_are_found_out() -> None:
    # The test above can fail: what is no coordinate gives orders that are none.
    graph = make_shape("wavefront", 100).graph
    falling = np.arange(100)[::-1].copy()
    drawn = coordinates_of(graph, 0)
    order = drawn.order((Block(falling, 10), Block(np.arange(100), 1)), np.arange(100))
    assert falls(graph, falling)
    assert falls(graph, np.argsort(order))


def walk(op: int, waits: dict[int, list[int]], done: list[int]) -> None:
    """Add an op to those that are done, after what it waits for."""
    for other in waits[op]:
        walk(other, waits, done)
    if op not in done:
        done.append(op)


def test_blocks_are_walked_depth_first_from_their_ends() -> None:
    rng = random.Random(7)
    for _ in range(100):
        flow = random_graph(rng, rng.randint(1, 20)).dataflow
        ranked = rng.sample(range(flow.ops), rng.randint(0, flow.ops))
        cuts = sorted(rng.sample(range(len(ranked) + 1), min(2, len(ranked))))
        block = [sum(at >= cut for cut in cuts) for at in range(len(ranked))]
        onward, done = rng.random() < 0.5, list[int]()
        for number in range(3):
            inside = [op for op, one in zip(ranked, block, strict=True) if one == number]
            waits = {op: [other for other in flow.before.row(op).tolist() if other in inside] for op in inside}
            followers = {op: [other for other in flow.after.row(op).tolist() if other in inside] for op in inside}
            looked = len(done)
            for op in inside:
                if followers[op] or op in done:
                    continue
                walk(op, waits, done)
                while onward and looked < len(done):
                    for end in followers[done[looked]]:
                        at = end
                        while end not in done and followers[at]:
                            at = followers[at][0]
                        if end not in done:
                            walk(at, waits, done)
                    looked += 1
                looked = len(done)
        rows = [(rows.start, rows.items) for rows in (flow.before, flow.after)]
        assert walk_blocks(np.array(ranked, np.int64), np.array(block, np.int64), *rows, onward).tolist() == done


def test_points_on_a_ring_are_run_some_steps_at_a_time() -> None:
    """No coordinate but the step never falls, as each point comes to depend on all others: only walks follow the points."""
    graph, points, steps = Graph("ring", "pebble"), 20, 20
    row = [f"x{i}" for i in range(points)]
    for name in row:
        graph.tensor(name, 1, "input")
    for step in range(steps):
        made = [f"v{step}_{i}" for i in range(points)]
        for i, name in enumerate(made):
            graph.tensor(name, 1, "output" if step == steps - 1 else "temp")
            graph.op(f"o{step}_{i}", [row[i - 1], row[i], row[(i + 1) % points]], [name], 1)
        row = made
    two = Machine("two", "pebble", (Level("fast", 0, 0, capacity=6), Level("slow", 50, 50)))
    game = GreedyPlanner.of(Problem.of(graph, two, steady=False)).game
    program = float(run_belady(game, np.arange(points * steps), 0, np.inf)[1])
    drawn = coordinates_of(graph, 0)
    some = [drawn.key() for _ in range(1_000)]

    def cheapest(walked: bool) -> float:
        keys = [key for key in some if bool(key[-1].walked) == walked]
        return min(float(run_belady(game, drawn.order(key, np.arange(points * steps)), 0, np.inf)[1]) for key in keys)

    assert cheapest(walked=True) < 0.65 * program
    assert cheapest(walked=True) < 0.9 * cheapest(walked=False)


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
