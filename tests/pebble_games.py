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


def _machine(rng: random.Random, most: int, size: int) -> Machine:
    """Return a machine of two levels, mostly with the least fast memory that will do."""
    fast = (rng.choice([0, 0, 1]), rng.choice([0, 0, 1]))
    pebbles = most + rng.choice([0, 0, 0, 0, 1])
    far = [1, 1, 2, 3]
    levels = (Level("fast", *fast, capacity=pebbles * size), Level("slow", rng.choice(far), rng.choice(far)))
    return Machine("two", "pebble", levels)


def tight_game(rng: random.Random, most_ops: int) -> RandomGame:
    """Return a game of blocks that are alike, or nearly, between ops that read many values and leave little room. Runs are dear."""
    graph = Graph("tight", unit="pebble")
    shared = [f"in{number}" for number in range(rng.randint(1, 2))]
    for name in shared:
        graph.tensor(name, 1, kind="input")
    row, most, ops = list(shared), 2, 0
    start: dict[str, str | list[str]] = {shared[0]: "fast"} if rng.random() < 0.2 else {}

    def make(reads: list[str]) -> str:
        nonlocal most, ops
        name = f"v{ops}"
        graph.tensor(name, 1, kind=rng.choice(["temp", "temp", "output"]) if last else "temp")
        graph.op(f"op{ops}", reads, [name], 100)
        ops, most = ops + 1, max(most, len(reads) + 1)
        return name

    while ops < most_ops:
        last = ops + 3 >= most_ops
        wide = make(rng.sample(row, min(len(row), rng.choice([1, 2, 3, 3]))))
        others = [*row, *shared]
        same = rng.choice([*others, None])
        row = [wide]
        for _ in range(min(most_ops - ops, rng.randint(1, 3))):
            other = rng.choice(others) if rng.random() < 0.2 else same
            row.append(make([wide] if other in (None, wide) else [wide, other]))
    return RandomGame(graph, _machine(rng, most, 1), False, start)


def passing_game(rng: random.Random, most_ops: int) -> RandomGame:
    """Return a game with ops that make a value from an input of their own, and ops that only pass a value on."""
    size = rng.choice([1, 1, 1, 3])
    graph = Graph("passing", unit="pebble")
    names: list[str] = []
    passed: list[str] = []  # values that may still be passed on: nothing has read them
    most = 2
    cost = rng.choice([2, 4, 8, 20]) * size
    for number in range(rng.randint(2, most_ops)):
        name = f"v{number}"
        kind = rng.random()
        if kind < 0.3 or not names:
            graph.tensor(f"in{number}", size, kind="input")
            reads = [f"in{number}"]
        elif kind < 0.7 and passed:
            reads = [rng.choice(passed)]
        else:
            reads = rng.sample(names, min(len(names), rng.choice([1, 2, 2, 3])))
        passed = [other for other in passed if other not in reads]
        names = [other for other in names if other not in reads or rng.random() < 0.7]
        graph.tensor(name, size, kind=rng.choice(["temp", "temp", "temp", "output"]))
        graph.op(f"op{number}", reads, [name], cost + rng.choice([0, 0, -1]), once=rng.random() < 0.1)
        names.append(name)
        passed.append(name)
        most = max(most, len(reads) + 1)
    return RandomGame(graph, _machine(rng, most, size), False, {})
