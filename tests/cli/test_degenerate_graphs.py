"""Graphs without ops, without tensors or of no size: every kind of machine and every command has an answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import pebbler as pb
from pebbler.errors import PebblerError
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.solver import find_least_capacity
from pebbler.solver.assessment import assess

LEVELS = (Level("a", 1, 1, capacity=3), Level("b", 5, 2, capacity=6), Level("c", 9, 9))
ALONE = (Level("c", 9, 9, capacity=7),)


def graphs() -> Iterator[Graph]:
    yield Graph("empty")
    yield Graph("no-ops").tensor("x", 3, "input").tensor("p", 2, "param")
    yield Graph("unused").tensor("x", 9, "input").tensor("y", 1, "output").op("f", writes=["y"])
    yield Graph("no-results").tensor("x", 2, "input").op("f", ["x"])
    zeros = Graph("zeros").tensor("x", 0, "input").tensor("t", 0).tensor("y", 0, "output")
    yield zeros.op("f", ["x"], ["t"]).op("g", ["t"], ["y"])
    empty_param = Graph("empty-param").tensor("p", 0, "param").tensor("a", 1).tensor("b", 1)
    yield empty_param.op("x", ["p"], ["a"]).op("y", ["a"], ["b"]).op("u", ["p", "b"], ["p"])
    cut = Graph("cut").tensor("x", 4, "input", axes=[("i", 4)]).tensor("p", 0, "param").tensor("t", 4, axes=[("i", 4)])
    yield cut.tensor("y", 0, "output").op("f", ["x", "p"], ["t"]).op("s", ["t"], ["y"]).op("u", ["p", "y"], ["p"])


def machines() -> Iterator[Machine]:
    for levels in (ALONE, LEVELS[1:], LEVELS):
        yield Machine("fastest", "float32", levels)
        yield Machine("any", "float32", levels, operands="any")
        yield Machine("over", "float32", levels, operands="any", results="over")
    for levels in (LEVELS[2:], LEVELS):
        yield Machine("lru", "float32", levels, management="lru")
        yield Machine("lines", "float32", levels, management="lru", line=2, allocator="own")
        yield Machine("recency", "float32", levels, management="recency")


GRAPHS = list(graphs())


@pytest.mark.parametrize("graph", GRAPHS, ids=[graph.name for graph in GRAPHS])
def test_every_machine_has_an_answer(graph: Graph) -> None:
    for machine, steady in itertools.product(machines(), (False, True)):
        try:
            plan = pb.solve(graph, machine, steady=steady, time_limit=0.3, threads=1)
        except PebblerError:
            continue
        assert pb.check(plan).energy == plan.energy
        assert plan.bound <= plan.energy
        claims = pb.Plan(plan.graph, machine, plan.moves, plan.start, steady, plan.energy, plan.bound, plan.status)
        assert assess(claims).void == ()
        if machine.management == "explicit":
            least = find_least_capacity(graph, machine, steady=steady, time_limit=0.2)
            assert least.bound <= least.least


@pytest.mark.parametrize("graph", GRAPHS, ids=[graph.name for graph in GRAPHS])
@pytest.mark.parametrize("machine", ["notes", "notes-recency", "notes-explicit", "cortex-m"])
def test_every_command_has_an_answer(cli, graph: Graph, machine: str) -> None:
    graph.save("graph.json")
    assert cli("solve", "graph.json", "--machine", machine, "--time-limit", 0.3, "-o", "plan.json")[0] == 0
    assert cli("check", "plan.json")[0] == 0
    assert cli("check", "plan.json", "--json")[0] == 0
    assert cli("report", "plan.json", "-o", "page.html")[0] == 0
    assert cli("graph", "graph.json", "-o", "graph.svg")[0] in (0, 2)
    status, _, err = cli("trace", "plan.json", "-o", "trace.npz")
    assert (status, bool(err)) in ((0, False), (0, True), (2, True))
    if status == 0:
        assert cli("cache", "trace.npz", "--sizes", "1,4")[0] in (0, 2)
