"""The graphs of the built-in puzzles, from small graphs that show one idea each to note 001's chain."""

from __future__ import annotations

from dataclasses import dataclass, field

from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.solver.problem import Start
from pebbler.workloads import chain

__all__ = ["HandGame", "level_games", "red_blue"]


@dataclass(frozen=True)
class HandGame:
    """A game to be played by hand: what is computed, with which memory, from which start."""

    name: str
    title: str
    about: str
    graph: Graph
    machine: Machine
    start: Start = field(default_factory=dict)


def red_blue(red: int, io: float, unit: str = "pebble") -> Machine:
    """Return the machine with so many red pebbles, where a load or a store costs `io` per unit.

    >>> red_blue(3, 10).level[0].capacity
    3
    """
    return Machine("red-blue", unit, (Level("fast", 0, 0, capacity=red), Level("slow", io, io)), operands="fastest")


def level_games() -> list[HandGame]:
    """Return the games of the levels, easiest first.

    >>> games = level_games()
    >>> games[0].title, games[-1].graph.name
    ('A sum', 'chain:length=100')
    """
    return [*_small_games(), *_training_games()]


def _small_games() -> list[HandGame]:
    """Return the games that each show one thing."""
    return [
        HandGame(
            "sum",
            "A sum",
            "Load a and b, then compute s. A load costs 10, computing costs 1.",
            _graph("sum", inputs="ab", ops={"s": "ab"}, output="s"),
            red_blue(3, 10),
        ),
        HandGame(
            "line",
            "A line",
            "Only two red pebbles: take one away from what is no longer needed. Removing is free.",
            _graph("line", inputs="a", ops={"b": "a", "c": "b", "d": "c"}, output="d"),
            red_blue(2, 10),
        ),
        HandGame(
            "again",
            "Keep it or make it again",
            "The last node needs a once more, but c leaves no room for it. Storing and loading costs 20; is there a cheaper way?",
            _graph("again", inputs="xy", ops={"a": "x", "b": "a", "c": "by", "d": "ca"}, output="d"),
            red_blue(3, 10),
        ),
        HandGame(
            "pyramid",
            "A pyramid",
            "Every node needs the two below it, and three red pebbles are just enough for one node and what it reads.",
            _graph("pyramid", inputs="abc", ops={"d": "ab", "e": "bc", "f": "de"}, output="f"),
            red_blue(3, 2),
        ),
        HandGame(
            "tree",
            "A tree",
            "Sums of sums with three red pebbles. One half has to wait somewhere while the other is computed.",
            _graph("tree", inputs="abcd", ops={"p": "ab", "q": "cd", "r": "pq"}, output="r"),
            red_blue(3, 3),
        ),
        HandGame(
            "butterfly",
            "A butterfly",
            "A Fourier transform of four points: every node needs two of the column before. Four red pebbles, 2 a load.",
            _butterfly(),
            red_blue(4, 2),
        ),
    ]


def _training_games() -> list[HandGame]:
    """Return the games that go forward and back, as training does."""
    chains = [
        (
            "chain-3",
            "There and back",
            3, 3, 100,
            "A chain forward, then backward: b3 needs N3, b2 needs N2 and N3, and so on down to b0. N0 is red at the start.",
        ),
        (
            "chain-6",
            "Store or compute again",
            6, 3, 4,
            "Seven nodes, three red pebbles, and a load or store for 4: some nodes are worth a blue pebble, others not.",
        ),
        (
            "chain-11",
            "Twelve nodes",
            11, 4, 100,
            "Note 001's game with twelve nodes and four red pebbles. A load or store costs 100: is there a way without?",
        ),
        (
            "note-001",
            "Note 001's chain",
            100, 11, 100,
            "The whole game: 100 layers, eleven red pebbles, a load or store costs 100. The note published 2,250; "
            "its program spends 2,082, with too many pebbles.",
        ),
    ]  # fmt: skip
    games = [
        HandGame(name, title, about, chain(length), red_blue(red, io), {"N0": "fast"})
        for name, title, length, red, io, about in chains
    ]
    step = HandGame(
        "training",
        "A training step",
        "Two weights, forward and backward. An update overwrites its weight, so whoever needs the old one goes first.",
        _training_step(),
        red_blue(4, 5),
    )
    return [games[0], step, *games[1:]]


def _graph(name: str, inputs: str, ops: dict[str, str], output: str) -> Graph:
    """Return a graph of single pebbles in which every op makes one node from others, named by letters."""
    graph = Graph(name, unit="pebble")
    for one in inputs:
        graph.tensor(one, 1, kind="input")
    for one in ops:
        graph.tensor(one, 1, kind="output" if one == output else "temp")
    for one, reads in ops.items():
        graph.op(one, reads=list(reads), writes=[one], cost=1)
    return graph


def _training_step() -> Graph:
    """Return two layers with their gradients and updates in place."""
    graph = Graph("training step", unit="pebble")
    for name, kind in (("x", "input"), ("W1", "param"), ("W2", "param")):
        graph.tensor(name, 1, kind=kind)  # type: ignore[arg-type]
    for name in ("h", "y", "dW2", "dh", "dW1"):
        graph.tensor(name, 1, kind="temp")
    graph.op("fwd1", reads=["x", "W1"], writes=["h"], cost=1)
    graph.op("fwd2", reads=["h", "W2"], writes=["y"], cost=1)
    graph.op("bwd_W2", reads=["y", "h"], writes=["dW2"], cost=1)
    graph.op("bwd_h", reads=["y", "W2"], writes=["dh"], cost=1)
    graph.op("upd_W2", reads=["W2", "dW2"], writes=["W2"], cost=1)
    graph.op("bwd_W1", reads=["dh", "x"], writes=["dW1"], cost=1)
    graph.op("upd_W1", reads=["W1", "dW1"], writes=["W1"], cost=1)
    return graph


def _butterfly() -> Graph:
    """Return the Fourier transform of four points: two columns of four nodes after the inputs."""
    graph = Graph("butterfly", unit="pebble")
    for stage, kind in enumerate(("input", "temp", "output")):
        for i in range(4):
            graph.tensor(f"{'abc'[stage]}{i}", 1, kind=kind)  # type: ignore[arg-type]
    for stage in (1, 2):
        before, here = "abc"[stage - 1], "abc"[stage]
        for i in range(4):
            graph.op(f"{here}{i}", reads=[f"{before}{i}", f"{before}{i ^ stage}"], writes=[f"{here}{i}"], cost=1)
    return graph
