"""Passes: their flows against brute force, what they prove against optima, and what they are worth on shapes that are known."""

from __future__ import annotations

import random
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from benchmarks.other_shapes import make_shape
from benchmarks.textbook import machine_for

from mutated_formulas import optimum_of
from naive_game import RandomGame
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.referee.certificates import NotProven
from pebbler.referee.kernels.pass_flow import largest_flow
from pebbler.referee.kernels.reachability import mark_common, mark_from
from pebbler.referee.programs.passes import PassLedger, prove_passes
from pebbler.referee.rows.task import Task
from pebbler.referee.verify import verify
from pebbler.solver.bounds.pass_search import pass_bounds
from pebbler.solver.problem import Problem


def layered(rng: random.Random) -> Graph:
    """A few rows of ops that read two or three values of the row before, or of any."""
    graph, width, number = Graph("layered", unit="pebble"), rng.choice([2, 3, 3, 4]), 0
    row = [f"x{i}" for i in range(width)]
    for name in row:
        graph.tensor(name, rng.choice([1, 1, 1, 1, 2, 0]), "input")
    every, rows = list(row), rng.choice([1, 2]) if width > 2 else rng.choice([2, 3])
    anything = rng.random() < 0.3
    for step in range(rows):
        made = []
        for i in range(width):
            name, number = f"v{number}", number + 1
            near = rng.sample(every, 2) if anything else [row[i], row[(i + 1) % width]]
            graph.tensor(name, rng.choice([1, 1, 1, 1, 2, 0]), "output" if step == rows - 1 else "temp")
            graph.op(f"o{number}", list(dict.fromkeys(near)), [name], rng.choice([0, 1, 1, 3]), once=rng.random() < 0.1)
            made.append(name)
        row, every = made, every + made
    return graph


def sums(rng: random.Random) -> Graph:
    """One or two sums of the same inputs, which come in any order, more than once; some terms are partial sums."""
    graph = Graph("sums", unit="pebble")
    given = [f"x{i}" for i in range(rng.choice([2, 3, 3, 4]))]
    for name in given:
        graph.tensor(name, rng.choice([1, 1, 1, 2]), "input")
    ends, made, number = ["", ""][: rng.choice([1, 1, 2])], [], 0
    for step in range(rng.randint(4, 7)):
        which = rng.randrange(len(ends))
        near = [rng.choice([*given, *made]) if rng.random() < 0.2 else given[step % len(given)], ends[which]]
        name, number = f"s{number}", number + 1
        graph.tensor(name, rng.choice([1, 1, 1, 1, 2]), rng.choice(["temp", "temp", "output"]))
        graph.op(f"add{number}", list(dict.fromkeys(filter(None, near))), [name], rng.choice([0, 1, 1, 3]))
        ends[which] = name
        made.append(name)
    graph.tensor("end", 1, "output").op("last", [one for one in ends if one], ["end"], 1)
    return graph


def tight_game(rng: random.Random) -> RandomGame:
    """A game whose fastest level holds little more than its largest op needs."""
    graph = (layered if rng.random() < 0.3 else sums)(rng)
    flow = graph.dataflow
    needs = [
        int(flow.value_size[np.union1d(flow.op_reads.row(op), flow.op_writes.row(op))].sum()) for op in range(flow.ops)
    ]
    room = max(needs) + rng.choice([0, 0, 0, 1])
    levels = [Level("fast", rng.choice([0, 0, 1]), rng.choice([0, 0, 0.5]), capacity=max(1, room))]
    levels += [Level("slow", rng.choice([1, 5, 20]), rng.choice([0, 1, 5, 20]))]
    return RandomGame(graph, Machine("two", "pebble", tuple(levels)), False, {})


def random_chains(rng: random.Random, ledger: PassLedger) -> list:
    ops, prices = range(ledger.flow.ops), [ledger.load, ledger.load + ledger.store, Fraction(rng.randint(1, 9), 2)]
    found = []
    for _ in range(rng.choice([1, 1, 2])):
        moments = [
            sorted(rng.sample(ops, min(len(ops), rng.choice([1, 1, 2, 3])))) for _ in range(rng.choice([1, 1, 2]))
        ]
        found.append([[first, str(rng.choice(prices))] for first in sorted(moments)])
    return found


def attack(seeds: range) -> tuple[int, int]:
    """Hold what passes prove, those that are searched and random ones, against optima by brute force."""
    games = gains = 0
    for seed in seeds:
        rng = random.Random(seed)
        game = tight_game(rng)
        best = optimum_of(game, 4_000)
        if best in (None, float("inf")):
            continue
        games += 1
        task = Task(game.graph, game.machine, False, {})
        least = verify(task, {"covers": "graph", "formula": "passes", "chains": []})
        for bound in pass_bounds(Problem.of(game.graph, game.machine, steady=False), lambda: float("inf")):
            gains += bound.value > least
            assert verify(task, bound.certificate) == bound.value <= best * (1 + 1e-12), f"seed {seed}"
        for _ in range(10):
            chains = random_chains(rng, PassLedger(task))
            try:
                value = verify(task, {"covers": "graph", "formula": "passes", "chains": chains})
            except NotProven:
                continue
            gains += value > least
            assert value <= best * (1 + 1e-12), f"seed {seed}: {chains} prove {value}, {best} is the optimum"
    return games, gains


def test_no_plan_costs_less() -> None:
    games, gains = attack(range(20))
    assert games >= 8
    assert gains >= 3


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(20))
def test_no_plan_costs_less_in_thousands_of_games(chunk: int) -> None:
    attack(range(1_000 + 200 * chunk, 1_200 + 200 * chunk))


def test_faults_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PassLedger.__init__
    monkeypatch.setattr(PassLedger, "__init__", lambda self, task: (original(self, task), setattr(self, "room", 0))[0])
    with pytest.raises(AssertionError):
        attack(range(40))


def test_flows_are_the_largest() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        game = tight_game(rng)
        flow, ledger = game.graph.dataflow, PassLedger(Task(game.graph, game.machine, False, {}))
        net, endless = ledger.net, 1 << 40
        forced = np.array([rng.random() < 0.3 for _ in range(flow.ops)])
        for op in range(flow.ops):  # what reads something forced is forced
            forced[op] |= any(forced[other] for other in flow.before.row(op))
        read = np.zeros(flow.values, np.bool_)
        for op in np.flatnonzero(forced):
            read[flow.op_reads.row(op)] = True
        read[
            [value for value in range(flow.values) if flow.value_maker[value] >= 0 and forced[flow.value_maker[value]]]
        ] = 0
        capacity = np.array([rng.randint(0, 9) for _ in range(flow.values)])
        absorb = np.array([rng.randint(0, 4) for _ in range(flow.ops)])
        twin = nx.DiGraph()
        twin.add_nodes_from(["source", "sink"])
        for value in range(flow.values):
            maker = int(flow.value_maker[value])
            if maker >= 0 and forced[maker]:
                continue
            twin.add_edge(("value", value), "sink" if maker < 0 else ("op", maker), capacity=int(capacity[value]))
            if read[value]:
                twin.add_edge("source", ("value", value), capacity=endless)
        for op in np.flatnonzero(~forced).tolist():
            twin.add_edge(("op", op), "sink", capacity=int(absorb[op]))
            for value in flow.op_reads.row(op).tolist():
                twin.add_edge(("op", op), ("value", value), capacity=endless)
        through, reads, _ = largest_flow(net, np.flatnonzero(read), capacity, absorb, forced, 10**9)
        arrived = np.zeros(flow.values, np.int64)
        np.add.at(arrived, net.read_value, reads)
        assert int((through - arrived).sum()) == nx.maximum_flow_value(twin, "source", "sink"), f"seed {seed}"


def test_what_comes_before_all_and_after_some() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        flow = layered(rng).dataflow
        some = rng.sample(range(flow.ops), rng.randint(1, flow.ops))
        before = [{op for op in range(flow.ops) if flow.ancestors[one] >> op & 1} for one in some]
        common, read = mark_common(
            flow.before.start, flow.before.items, np.array(some), flow.op_reads.start, flow.op_reads.items, flow.values
        )
        assert set(np.flatnonzero(common)) == set.intersection(*before)
        readers = [set(flow.value_readers.row(value).tolist()) for value in range(flow.values)]
        assert read.tolist() == [all(one & ops for ops in before) for one in readers]
        flags = np.isin(np.arange(flow.ops), some)
        after = {op for op in range(flow.ops) for one in some if flow.descendants[one] >> op & 1} | set(some)
        assert set(np.flatnonzero(mark_from(flow.after.start, flow.after.items, flags, 1))) == after


@pytest.mark.parametrize(("name", "least"), [("fft", 1.3), ("stencil", 1.3), ("bitonic", 1.3)])
def test_shapes_that_need_more_than_one_pass(name: str, least: float) -> None:
    shape = make_shape(name, 500)
    problem = Problem.of(shape.graph, machine_for("two-0.1", shape), steady=False)
    (bound,) = pass_bounds(problem, lambda: float("inf"))
    task = Task(problem.graph, problem.machine, False, {})
    assert bound.value >= least * float(prove_passes(task, {"chains": []}, float("inf")))


@pytest.mark.parametrize(
    "chains",
    [
        None,
        "x",
        [["x"]],
        [[[[], "1"]]],
        [[[[0, 0], "1"]]],
        [[[[-1], "1"]]],
        [[[[0], "-1"]]],
        [[[[1], "1"], [[0], "1"]]],
    ],
)
def test_chains_that_prove_nothing(chains: object) -> None:
    shape = make_shape("tree", 30)
    task = Task(shape.graph, machine_for("two-0.5", shape), False, {})
    with pytest.raises(NotProven):
        verify(task, {"covers": "graph", "formula": "passes", "chains": chains})
