"""Sums whose terms come in another order."""

from __future__ import annotations

import random

import numpy as np

from pebbler.game.graph import Graph
from pebbler.game.machine import machine
from pebbler.game.plan import Plan
from pebbler.game.sums import Sums
from pebbler.referee.judgement import check
from pebbler.run.numbers import verify
from pebbler.workloads import chain, matmul, mlp


def test_every_order_of_a_product_computes_the_same() -> None:
    source = matmul(2, 3, 4)
    sums = Sums.of(source)
    assert sums is not None
    assert len(sums.makers) == 24
    for seed in range(20):
        order = random.Random(seed).sample(range(24), 24)
        graph = sums.in_order(order)
        assert sums.order_of(graph) == order
        assert sorted(graph.op_names) == sorted(source.op_names)
        plan = Plan.in_order(graph, machine("bytedmd"), source=source)
        assert check(plan).legal
        assert verify(plan).identical


def test_program_order_is_an_order() -> None:
    source = matmul(2, 2, 3)
    sums = Sums.of(source)
    assert sums is not None
    assert sums.in_order(np.arange(12)) == source


def test_a_changed_graph_is_no_order_of_it() -> None:
    source = matmul(2, 2, 2)
    sums = Sums.of(source)
    assert sums is not None
    for number, op in enumerate(source.ops):
        ops = list(source.ops)
        ops[number] = Graph("one", "element", source.tensors, [op]).ops[0]
        ops[number] = type(op)(op.name, op.reads[::-1], op.writes, op.cost, op.once, op.whole, op.pointwise, op.meta)
        changed = Graph(source.name, source.unit, source.tensors, ops)
        assert (sums.order_of(changed) is None) == (op.reads != op.reads[::-1])


def test_other_graphs_have_no_such_sums() -> None:
    assert Sums.of(chain(4)) is None
    assert Sums.of(mlp(n=2, hidden=3)) is None
    assert Sums.of(matmul(2, 2, 1)) is None
    used = Graph("partial", unit="element").tensor("a", 1, "input").tensor("c", 1, "output").tensor("d", 1, "output")
    for name in ("p", "q", "r"):
        used.tensor(name, 1)
        used.op(f"make_{name}", ["a"], [name], meta={"kernel": "product"})
    used.op("add1", ["p", "q"], ["c"], meta={"kernel": "add"})
    used.op("look", ["c"], ["d"], meta={"kernel": "product"})  # what is summed up so far is used
    used.op("add2", ["c", "r"], ["c"], meta={"kernel": "add"})
    assert Sums.of(used) is None
