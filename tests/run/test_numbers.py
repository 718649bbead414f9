"""Plans run on numbers and on fingerprints: what the referee accepts computes what program order computes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings

from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine, machine
from pebbler.game.moves import KINDS
from pebbler.game.plan import Plan
from pebbler.game.transform import fuse
from pebbler.notes import note_order
from pebbler.referee.judgement import check
from pebbler.run.numbers import execute, verify
from pebbler.workloads import deep_mlp, mlp, note_mlp
from strategies import (
    generators,
    random_cache_machine,
    random_graph,
    random_machine,
    random_order,
    random_plan,
)


def test_random_plans_are_worth_running():
    plans = []
    for seed in range(100):
        rng = random.Random(seed)
        graph = random_graph(rng)
        plans.append(random_plan(rng, graph, random_machine(rng, graph), extra=12))
    found = [plan for plan in plans if plan is not None]
    assert len(found) > 50
    kinds = [KINDS[kind] for plan in found for kind in plan.moves.kind]
    assert kinds.count("copy") > 100
    assert kinds.count("drop") > 40
    assert kinds.count("compute") > sum(len(plan.graph.ops) for plan in found) + 30  # some are recomputed


@given(generators)
@settings(max_examples=400)
def test_explicit_plans_that_the_referee_accepts_compute_the_same_fingerprints(rng):
    graph = random_graph(rng)
    plan = random_plan(rng, graph, random_machine(rng, graph), extra=12)
    if plan is not None:
        comparison = verify(plan, seed=rng.randint(0, 9))
        assert comparison.identical
        assert not comparison.numbers


@given(generators)
@settings(max_examples=80)
def test_explicit_plans_that_the_referee_accepts_compute_the_same_numbers(rng):
    graph = rng.choice([mlp(n=2, hidden=3), mlp(n=2, hidden=3, batch=2)])
    levels = (Level("L0", 1, 1, rng.randint(20, 60)), Level("L1", 2, 2, rng.randint(40, 90)), Level("L2", 3, 3))
    plan = random_plan(rng, graph, Machine("m", "float32", levels, operands="any"), extra=10)
    if plan is not None:
        assert verify(plan).identical


@given(generators)
@settings(max_examples=200)
def test_legal_orders_on_caches_compute_the_same_numbers(rng):
    graph = rng.choice([mlp(n=2, hidden=3), note_small(), deep_mlp(n=2, hidden=2, layers=2)])
    order = [graph.ops[op].name for op in random_order(rng, graph)]
    plan = Plan.in_order(graph, machine(rng.choice(["notes", "notes-recency"])), order)
    comparison = verify(plan)
    assert (comparison.identical, comparison.largest_difference, comparison.numbers) == (True, 0.0, True)


def note_small() -> Graph:
    """Note 000's graph with eight hidden units."""
    big, small = note_mlp(), Graph("note-small")
    for tensor in big.tensors:
        axes = [(axis, {"hidden": 8, "n": 2}[axis]) for axis, _ in tensor.axes]
        size = int(np.prod([extent for _, extent in axes]))
        small.tensor(tensor.name, size, tensor.kind, axes=axes, overwrites=tensor.overwrites)
    for op in big.ops:
        small.op(op.name, op.reads, op.writes, meta=op.meta)
    return small


@given(generators)
@settings(max_examples=100)
def test_orders_that_ignore_war_train_something_else(rng):
    graph = note_small()
    order = [graph.ops[op].name for op in random_order(rng, graph, war=False)]
    plan = Plan.in_order(graph, machine("notes"), order)
    # On these numbers the gradient reaches every param, so legal and identical are the same thing.
    assert verify(plan, seed=0).identical == check(plan).legal


@pytest.mark.parametrize("name", ["standard", "fused", "perlayer", "optimal"])
def test_the_notes_orders_on_numbers(name):
    comparison = verify(Plan.in_order(note_mlp(), machine("notes"), note_order(name)))
    assert comparison.numbers
    assert set(comparison.compared) == {f"{p}{s}" for p in ("W1", "b1", "W2", "b2") for s in ("", "_new")}
    assert comparison.identical == (name in ("standard", "optimal"))
    assert (comparison.largest_difference > 1e-6) == (name in ("fused", "perlayer"))


def test_a_step_does_what_a_step_of_sgd_does():
    graph = mlp(n=3, hidden=4)
    rng = np.random.default_rng(0)
    start = {"W1": rng.normal(size=(4, 3)), "b1": rng.normal(size=4), "W2": rng.normal(size=4), "b2": np.array(0.1)}
    x, y = np.array([1.0, -1.0, 1.0]), np.array(-1.0)
    pre = start["W1"] @ x + start["b1"]
    h = np.maximum(pre, 0)
    out = start["W2"] @ h + start["b2"]
    dy = -y if out * y < 1 else 0.0
    dpre = np.where(pre > 0, start["W2"] * dy, 0)
    grads = {"W1": np.outer(dpre, x), "b1": dpre, "W2": dy * h, "b2": dy}
    assert dy != 0
    result = execute(Plan.in_order(graph, machine("notes")), {**start, "x": x, "y": y})
    for name, value in start.items():
        np.testing.assert_allclose(result[name], value - 0.1 * (grads[name] + 0.01 * value), rtol=1e-12)


def test_a_batch_averages_its_samples():
    single, batch = mlp(n=3, hidden=4), mlp(n=3, hidden=4, batch=2)
    rng = np.random.default_rng(3)
    start = {"W1": rng.normal(size=(4, 3)), "b1": rng.normal(size=4), "W2": rng.normal(size=4), "b2": np.array(0.0)}
    x, y = rng.choice([-1.0, 1.0], (2, 3)), np.array([1.0, -1.0])
    both = execute(Plan.in_order(batch, machine("notes")), {**start, "x": x, "y": y})
    each = [
        execute(Plan.in_order(single, machine("notes")), {**start, "x": x[i], "y": np.array(y[i])}) for i in range(2)
    ]
    for name in start:
        np.testing.assert_allclose(both[name], (each[0][name] + each[1][name]) / 2, rtol=1e-12, atol=1e-15)


def test_wrong_values_are_refused():
    plan = Plan.in_order(mlp(n=3, hidden=4), machine("notes"))
    with pytest.raises(InputError, match=r"x must have shape \(3,\), got \(2,\)"):
        execute(plan, {"x": [1.0, 2.0]})
    with pytest.raises(InputError, match="h is no input or param"):
        execute(plan, {"h": [1.0]})
    with pytest.raises(InputError, match="no numpy kernels"):
        execute(Plan.in_order(random_graph(random.Random(1)), machine("red-blue")), {"t0": 1})


def test_what_cannot_run_says_so():
    graph, roomy = (
        mlp(n=3, hidden=4),
        Machine("m", "float32", (Level("a", 0, 0, 999), Level("b", 0, 0)), operands="any"),
    )
    with pytest.raises(InputError, match="op fwd_relu: h_pre is in no level"):
        execute(Plan(graph, roomy, [("compute", "fwd_relu")]))
    with pytest.raises(InputError, match="copy: x is not in a"):
        execute(Plan(graph, roomy, [("copy", "x", "a", "b")]))
    with pytest.raises(InputError, match="the end: W1 is in no level"):
        execute(Plan(graph, roomy, [("drop", "W1", "b")]))
    with pytest.raises(InputError, match=r"moves\[0\]"):
        execute(Plan(graph, roomy, [("fly",)]))
    with pytest.raises(InputError, match="too many to run here"):
        execute(Plan.in_order(mlp(n=10**6, hidden=10**6), roomy))


@pytest.mark.parametrize(
    "meta", [{"kernel": "relux"}, {"kernel": []}, {"kernel": None}, {"kernel": "sgd"}, {"kernel": "linear"}]
)
def test_wrong_kernels_are_refused(meta):
    graph = Graph("wrong")
    graph.tensor("x", 2, kind="input", axes=[("n", 2)])
    graph.tensor("y", 2, kind="output", axes=[("n", 2)])
    graph.op("f", reads=["x"], writes=["y"], meta=meta)
    with pytest.raises(InputError, match="op f"):
        execute(Plan.in_order(graph, machine("notes")))


@given(generators)
@settings(max_examples=100)
def test_caches_and_memories_run_an_order_alike(rng):
    graph = random_graph(rng, closed=True)
    order = [graph.ops[op].name for op in random_order(rng, graph)]
    memory = Machine("memory", "pebble", (Level("all", 0, 0),), operands="any")
    expected = execute(Plan.in_order(graph, memory, order))
    for management in ("lru", "recency"):
        assert execute(Plan.in_order(graph, random_cache_machine(rng, management), order)) == expected


def test_fused_ops_without_kernels_are_not_taken_for_numbers():
    graph = Graph("plain")
    for name, kind in (("x", "input"), ("h", "temp"), ("y", "output")):
        graph.tensor(name, 4, kind=kind, axes=[("i", 4)])
    graph.op("a", reads=["x"], writes=["h"], pointwise=True)
    graph.op("b", reads=["h"], writes=["y"], pointwise=True)
    plan = Plan.in_order(fuse(graph, "h"), machine("notes"))
    with pytest.raises(InputError, match="no numpy kernels"):
        execute(plan, {"x": [0.0] * 4})
