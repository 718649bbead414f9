"""Bounds of boxes of tilings: no plan is below them, faults in them are found, and they say what single cases say, at once."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ordered_plans import least_energy, nested_orders, tiled
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine, machine
from pebbler.game.moves import Moves
from pebbler.game.plan import Plan
from pebbler.game.transform import tile
from pebbler.referee.judgement import check
from pebbler.solver.problem import Problem
from pebbler.solver.tiling import box_floor, box_touches
from pebbler.solver.tiling.box_search import BoxSearch
from pebbler.solver.tiling.box_touches import Boxes
from pebbler.solver.tiling.liveness import Elements
from pebbler.solver.tiling.tile_products import ProductFamily, product_families
from pebbler.solver.tiling.tiling_bound import CaseSearch
from pebbler.workloads import attention, load

AXES = "ijkl"


def chain_of_products(rng: random.Random) -> tuple[Graph, dict[str, int]]:
    """Return products one after the other that share operands, perhaps a softmax-like op and an update between; and tiles."""
    plain = rng.random() < 0.4  # nothing but two products of single elements: there the bound is nearest
    extents = {axis: rng.randint(5, 7) if plain else rng.randint(3, 7) for axis in AXES}
    graph = Graph("chain of products", unit="pebble")

    def tensor(name: str, axes: str, kind: str) -> None:
        size = int(np.prod([extents[axis] for axis in axes]))
        graph.tensor(name, size, kind, axes=[(axis, extents[axis]) for axis in axes])  # type: ignore[arg-type]

    tensor("A", "ik", "input")
    tensor("B", "kj", rng.choice(["param", "input"]))
    tensor("D", "jl", rng.choice(["param", "input"]))
    tensor("C", "ij", "temp")
    graph.op("first", ["A", "B"], ["C"])
    left = "C"
    if not plain and rng.random() < 0.3:
        tensor("S", "ij", "temp")
        graph.op("rows", ["C"], ["S"], whole=["j"])
        left = "S"
    tensor("E", "il", "output")
    graph.op("second", [left, "D"], ["E"])
    if not plain and rng.random() < 0.5:
        tensor("F", "kl", "output")
        graph.op("third", ["A", "E"], ["F"])
    if not plain and rng.random() < 0.4:
        tensor("G", "kj", "temp" if graph.tensor_named("B").kind == "param" else "output")
        graph.op("fourth", ["A", "C"], ["G"])
        if graph.tensor_named("B").kind == "param":
            graph.op("update", ["B", "G"], ["B"], pointwise=True)
    sizes = {axis: 1 if plain else rng.choice([1, 1, 1, 2, 3]) for axis in AXES if plain or rng.random() < 0.9}
    return graph, {axis: size for axis, size in sizes.items() if size < extents[axis]}


def small_levels(rng: random.Random, management: str) -> Machine:
    """Return two or three levels of which the first holds a few elements."""
    levels = [Level("near", rng.choice([0, 1, 5]), rng.choice([0, 1, 5]), capacity=rng.randint(3, 14))]
    if rng.random() < 0.5:
        levels.append(Level("middle", rng.choice([8, 20]), rng.choice([0, 2, 20]), capacity=rng.randint(8, 40)))
    levels.append(Level("far", rng.choice([30, 100]), rng.choice([0, 10, 100])))
    return Machine("m", "pebble", tuple(levels), management, "any", rng.choice(["own", "reuse"]))  # type: ignore[arg-type]


def box_bound(problem: Problem, sizes: dict[str, int] | None, work: int = 0) -> float:
    cases = CaseSearch(problem, sizes)
    return cases.run_boxes(work).energy


def attack(seed: int, management: str) -> float:
    """Hold the bounds of boxes against plans in loop order; return how near the bound of its own tiles comes to the best."""
    rng = random.Random(seed)
    graph, sizes = chain_of_products(rng)
    levels, steady = small_levels(rng, management), rng.random() < 0.3
    problem = Problem.of(graph, levels, steady=steady)
    form = tiled(graph, sizes)
    best = least_energy(problem, form, nested_orders(form, rng))
    for bound in (box_bound(problem, sizes), box_bound(problem, None, 200)):
        assert bound <= best * (1 + 1e-12), f"seed {seed}: {best} is below {bound}"
    return box_bound(problem, sizes) / best if best not in (0, float("inf")) else 0.0


@pytest.mark.parametrize("management", ["lru", "explicit"])
def test_no_plan_of_a_chain_of_products_is_below_the_bound_of_its_box(management):
    near = [attack(seed, management) for seed in range(12)]
    assert max(near) > 0.45


@pytest.mark.slow
@pytest.mark.parametrize("management", ["lru", "explicit"])
@pytest.mark.parametrize("chunk", range(1, 40))
def test_no_plan_of_thousands_of_chains_is_below_the_bound_of_its_box(management, chunk):
    for seed in range(chunk * 50, (chunk + 1) * 50):
        attack(seed, management)


def _forget_room(monkeypatch):
    monkeypatch.setattr(box_touches.BoxTouches, "pieces", lambda self, group: self.zero)


def _ask_for_more_reads(monkeypatch):
    plain = ProductFamily.outside_reads_of
    monkeypatch.setattr(ProductFamily, "outside_reads_of", lambda self, room, piece: 3 * plain(self, room, piece))


def _larger_tiles(monkeypatch):
    plain = box_floor.BoxFloor.bounds
    monkeypatch.setattr(
        box_floor.BoxFloor, "bounds", lambda self, boxes: plain(self, Boxes(boxes.least * 2, boxes.most))
    )


def _attack_all(seeds: range) -> None:
    for seed in seeds:
        attack(seed, "lru")


@pytest.mark.parametrize("fault", [_forget_room, _ask_for_more_reads, _larger_tiles])
def test_a_fault_is_found(fault, monkeypatch):
    fault(monkeypatch)
    with pytest.raises(AssertionError, match="is below"):
        _attack_all(range(60))


def test_what_was_written_sinks_once_however_often_it_is_read(monkeypatch):
    graph = Graph("read three times", unit="pebble").tensor("x", 60, "input", axes=[("i", 60)])
    graph.tensor("v", 60, "temp", axes=[("i", 60)]).op("make", ["x"], ["v"])
    for number in range(3):
        graph.tensor(f"o{number}", 1, "output", axes=[])
        graph.op(f"read{number}", ["v"], [f"o{number}"], whole=["i"])
    levels = Machine("m", "pebble", (Level("near", 1, 1, capacity=10), Level("far", 10, 100)), "lru", "any")
    problem, form = Problem.of(graph, levels), tile(graph, "i", 1)
    plan = Plan(form, levels, Moves.computes(form, levels, range(len(form.ops))), source=graph)
    energy = check(plan).energy
    stated = box_bound(problem, {"i": 1})
    assert 0.7 * energy < stated <= energy
    plain = box_touches.BoxTouches.sinking
    monkeypatch.setattr(box_touches.BoxTouches, "sinking", lambda self, value: 3 * plain(self, value))
    assert box_bound(problem, {"i": 1}) > energy


def test_each_product_of_a_family_has_a_value_of_its_own():
    step = attention(tokens=8, width=12, heads=3)
    every = frozenset({"tokens", "keys", "width", "heads", "depth", "out"})
    for cut in (frozenset(), frozenset({"tokens", "keys"}), every):
        for family in product_families(Elements(step, cut=cut)):
            for product in family.products:
                others = {value for one in family.products if one is not product for value in one.values}
                assert set(product.values) - others


def test_points_of_a_family_are_no_more_than_its_weights_say():
    rng = np.random.default_rng(0)
    every = frozenset({"tokens", "keys", "width", "heads", "depth", "out"})
    for family in product_families(Elements(attention(), cut=every)):
        values = sorted(family.values)
        for _ in range(200):
            share = dict(zip(values, rng.dirichlet(rng.choice([0.1, 0.5, 2.0]) * np.ones(len(values))), strict=True))
            points = [np.sqrt(np.prod([share[value] for value in one.values])) for one in family.products]
            assert np.dot(family.weights, points) <= 3**-1.5 * (1 + 1e-9)


@pytest.mark.parametrize("name", ["notes", "notes-explicit", "horowitz-45nm", "laptop"])
def test_boxes_leave_no_size_out_and_splitting_only_raises_them(name):
    graph = load("mlp:n=6,hidden=9,batch=5")
    cases = CaseSearch(Problem.of(graph, machine(name).in_unit("float32")))
    boxes = BoxSearch(cases.problem, cases.prices, cases.program)
    before = boxes.run(0, lambda: 1.0)
    assert before > 0
    after = boxes.run(300, lambda: 1.0)
    assert after >= before
    sizes = {(part.floor.axes.index("hidden") if "hidden" in part.floor.axes else None) for part in boxes.parts}
    assert len(sizes) > 1
    for part in boxes.parts:
        covered = np.prod(part.boxes.most - part.boxes.least + 1, axis=1).sum()
        assert covered == np.prod(part.floor.extents - 1)
    least = min(box_bound(cases.problem, {"n": n, "hidden": hidden}) for n in (1, 3, 6) for hidden in (1, 4, 9))
    assert after <= least * (1 + 1e-12)


def test_boxes_bound_attention_of_many_tokens():
    # In twenty times as long cases one by one came to 27.6e9.
    problem = Problem.of(load("attention:tokens=1024,width=1024,heads=16"), machine("notes-explicit"))
    assert box_bound(problem, None, 14_000) > 30e9


def test_nothing_is_said_where_reads_cost_nothing_or_axes_are_too_many():
    fastest = Machine("m", "float32", (Level("f", 1, 1, capacity=9), Level("s", 9, 9)), "explicit", "fastest")
    assert box_bound(Problem.of(load("mlp:n=3,hidden=4"), fastest), None) == 0
    deep = load("deep-mlp:n=3,hidden=4,layers=9,batch=2")
    assert box_bound(Problem.of(deep, machine("notes")), None) == 0
