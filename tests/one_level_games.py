"""Graphs on one level of memory: random ones, and stand-ins for real nets."""

from __future__ import annotations

import random

from naive_game import NaiveGame, RandomGame, random_game
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.solver.problem import Problem
from pebbler.solver.recompute.recompute_problem import ENDLESS, RecomputeProblem


def small_game(seed: int, max_ops: int = 7) -> RandomGame:
    """A random game on one level, tight enough that program order often does not fit."""
    rng = random.Random(seed)
    game = random_game(rng, max_ops, max_levels=1, steady=rng.random() < 0.5)
    graph = Graph("random", "pebble", game.graph.tensors, [])
    for op in game.graph.ops:
        graph.op(op.name, op.reads, op.writes, rng.choice([0, 1, 2, 5, 2.5]), once=op.once and rng.random() < 0.5)
    measured = RecomputeProblem.of(Problem.of(graph, one_level(ENDLESS >> 10)))
    peak = int(measured.measure(measured.program).memory.max())
    operands = rng.choice(["fastest", "any"])
    capacity = max(1, rng.randint(int(0.5 * peak), peak))
    return RandomGame(graph, one_level(capacity, operands), game.steady)


def one_level(capacity: int, operands: str = "fastest", unit: str = "pebble") -> Machine:
    return Machine("one", unit, (Level("fast", 1, 2, capacity=capacity),), operands=operands)


def backward_net(sizes: list[int], costs: list[int]) -> Graph:
    """A chain of layers and its backward pass, as in the graphs of Checkmate: each gradient reads two activations."""
    graph = Graph("net", unit="byte")
    for i, (size, cost) in enumerate(zip(sizes, costs, strict=True)):
        graph.tensor(f"a{i}", size)
        graph.op(f"f{i}", [f"a{i - 1}"] if i else [], [f"a{i}"], cost)
    last = len(sizes) - 1
    for i in range(last, -1, -1):
        graph.tensor(f"g{i}", sizes[i])
        reads = [f"a{i}", f"a{i + 1}", f"g{i + 1}"] if i < last else [f"a{i}"]
        graph.op(f"b{i}", reads, [f"g{i}"], 2 * costs[i])
    return graph


def optimum(game: RandomGame) -> float | None:
    return NaiveGame(game.graph, game.machine, game.steady).solve()
