"""Random pebble games of two levels: values of one size, a slow level without end."""

from __future__ import annotations

import random

from naive_game import RandomGame
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine


def pebble_game(rng: random.Random, most_ops: int, *, dear_runs: bool = False) -> RandomGame:
    """Return a game with shared inputs, ops of several results, ops that run once, values nobody reads, odd prices.

    With dear runs, storing and loading always costs less than running an op again.
    """
    size = rng.choice([1, 1, 1, 3])
    graph = Graph("pebbles", unit="pebble")
    names: list[str] = []
    start: dict[str, str | list[str]] = {}
    for number in range(rng.randint(1, 3)):
        names.append(f"in{number}")
        graph.tensor(names[-1], rng.choice([size] * 9 + [0]), kind=rng.choice(["input", "input", "param"]))
        where = rng.choice(["slow", "slow", "slow", "fast", "both"])
        start[names[-1]] = ["fast", "slow"] if where == "both" else where
    most = 1
    recent = rng.random() < 0.5
    dear = rng.random() < 0.6  # copies cost more than runs, so that running again may pay
    for number in range(rng.randint(1, most_ops)):
        near = names[-4:] if recent else names
        reads = rng.sample(near, min(len(near), rng.choice([0, 1, 1, 2, 2, 3])))
        writes = [f"v{number}{part}" for part in "ab"[: rng.choice([1, 1, 1, 1, 2])]]
        for name in writes:
            graph.tensor(name, rng.choice([size] * 9 + [0]), kind=rng.choice(["temp", "temp", "temp", "output"]))
        cost = rng.choice([0.5, 1, 1] if dear else [1, 2, 3, 10]) + 100 * dear_runs
        graph.op(f"op{number}", reads, writes, cost, once=rng.random() < 0.1)
        names += writes
        most = max(most, len(reads) + len(writes))
    at_start = sum("fast" in where for where in start.values())
    pebbles = max(most, at_start) + rng.choice([0, 0, 0, 0, 1, 2])
    far = [3, 5] if dear else [0, 1, 1, 3]
    levels = (
        Level("fast", rng.choice([0, 0, 1]), rng.choice([0, 0, 1]), capacity=pebbles * size + rng.randrange(size)),
        Level("slow", rng.choice(far), rng.choice(far)),
    )
    return RandomGame(graph, Machine("two", "pebble", levels), False, start)
