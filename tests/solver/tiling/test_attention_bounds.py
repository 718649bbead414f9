"""Bounds of boxes on small steps like attention: rows that stay whole, operands made again, parameters left behind."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ordered_plans import least_energy, nested_orders, tiled, with_reruns
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine, machine
from pebbler.referee.rows.elements import Elements
from pebbler.referee.rows.tile_products import ProductFamily, TileProduct, product_families
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.tiling_bound import RangeSearch
from pebbler.workloads import attention, load


def small_attention(rng: random.Random) -> tuple[Graph, dict[str, int]]:
    """Return an attention step of one head, some ops left out, or its second half; and tiles."""
    kind = rng.choice(["rows", "products", "product"])  # the last two with single elements: there the bound is nearest
    extents = {axis: rng.randint(2, 5) if kind == "rows" else rng.randint(4, 7) for axis in "tjko"}
    graph = Graph("small attention", unit="pebble")

    def tensor(name: str, axes: str, kind: str) -> str:
        size = int(np.prod([extents[axis] for axis in axes], dtype=np.int64))
        graph.tensor(name, size, kind, axes=[(axis, extents[axis]) for axis in axes])  # type: ignore[arg-type]
        return name

    def product(left: str, right: str, result: str, axes: str, kind: str = "temp") -> None:
        tensor(result, axes, kind)
        graph.op(f"make_{result}", [left, right], [result])

    tensor("Wo", "ko", "param")
    tensor("target", "to", "input")
    if kind == "rows":
        for name, axes in {"q": "tk", "key": "jk", "v": "jk"}.items():
            tensor(name, axes, "input")
        product("q", "key", "scores", "tj")
        tensor("weight", "tj", "temp")
        graph.op("softmax", ["scores"], ["weight"], whole=["j"])
        product("weight", "v", "mix", "tk")
    elif kind == "products":
        tensor("mix", "tk", "input")
    if kind == "product":
        tensor("y", "to", "input")
    else:
        product("mix", "Wo", "y", "to")
    tensor("dy", "to", "temp")
    graph.op("slope", ["y", "target"] if rng.random() < 0.5 else ["y"], ["dy"], pointwise=True)
    if kind == "product" or rng.random() < 0.8:
        product("dy", "Wo", "dmix", "tk", "temp" if kind == "rows" else "output")
    if kind != "product" and (rng.random() < 0.8 or graph.ops[-1].name == "slope"):
        product("dy", "mix", "dWo", "ko")
        graph.op("update", ["Wo", "dWo"], ["Wo"], pointwise=True)
    if kind == "rows" and "dmix" in graph.tensor_names:
        product("dmix", "v", "dweight", "tj")
        tensor("dscores", "tj", "temp")
        graph.op("softmax_back", ["dweight", "weight"], ["dscores"], whole=["j"])
        product("dscores", "key", "dq", "tk", "output")
    used = {axis for one in graph.tensors for axis, _ in one.axes or ()}
    sizes = {axis: rng.choice([1, 1, 1, 2, 3]) if kind == "rows" else 1 for axis in sorted(used)}
    return graph, {axis: size for axis, size in sizes.items() if size < extents[axis] and rng.random() < 0.95}


def caches(rng: random.Random, management: str) -> Machine:
    """Return two or three levels of which the first holds a few elements; lines may be longer than one."""
    levels = [Level("near", rng.choice([0, 1, 5]), rng.choice([0, 0, 5]), capacity=rng.randint(3, 24))]
    if rng.random() < 0.5:
        levels.append(Level("middle", rng.choice([8, 20]), rng.choice([0, 2, 20]), capacity=rng.randint(8, 60)))
    levels.append(Level("far", rng.choice([30, 100]), rng.choice([0, 0, 10, 100])))
    line = rng.choice([1, 1, 2, 4]) if management == "lru" else 1
    return Machine("m", "pebble", tuple(levels), management, "any", allocator=rng.choice(["own", "reuse"]), line=line)  # type: ignore[arg-type]


def attack(seed: int, management: str) -> float:
    """Hold the bounds of boxes against plans in loop order, with and without reruns; return how near the best comes."""
    rng = random.Random(seed)
    graph, sizes = small_attention(rng)
    levels, steady = caches(rng, management), rng.random() < 0.5
    problem = Problem.of(graph, levels, steady=steady)
    form = tiled(graph, sizes)
    orders = nested_orders(form, rng)
    orders += [with_reruns(form, order, rng, share) for order in orders[:4] for share in (0.2, 1.0)]
    best = least_energy(problem, form, orders)
    own = RangeSearch(problem, sizes).run(0).energy
    for bound in (own, RangeSearch(problem).run(300).energy):
        assert bound <= best * (1 + 1e-12), f"seed {seed}: {best} is below {bound}"
    return own / best if best not in (0, float("inf")) else 0.0


@pytest.mark.parametrize("management", ["lru", "explicit"])
def test_no_plan_of_a_small_attention_is_below_the_bound_of_its_box(management):
    near = [attack(seed, management) for seed in range(8)]
    assert max(near) > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("management", ["lru", "explicit"])
@pytest.mark.parametrize("chunk", range(1, 40))
def test_no_plan_of_thousands_of_small_attentions_is_below_the_bound_of_its_box(management, chunk):
    for seed in range(chunk * 50, (chunk + 1) * 50):
        attack(seed, management)


def test_a_gradient_that_can_be_made_again_stands_for_what_it_is_made_from():
    step = attention(tokens=8, width=12, heads=3)
    elements = Elements(step, cut=frozenset({"tokens", "keys", "heads"}))
    largest = max(product_families(elements), key=lambda family: len(family.products))
    names = [step.ops[product.op].name for product in largest.products]
    assert {"fwd_out", "bwd_dWo", "bwd_dmix"} <= set(names)
    assert {elements.tensor(value).name for value in largest.made_again} == {"dy"}
    dy, target = (int(step.dataflow.final_value[step.tensor_index(name)]) for name in ("dy", "target"))
    assert {dy, target} <= largest.values
    assert not any(dy in product.values for product in largest.products)
    # Its pieces bring elements of the target in, so no segment ends within one.
    assert step.op_index("bwd_loss") in {op for touched in largest.touched_together(elements) for op, _ in touched}
    # Weights are made from scores, which can be made again themselves unless depth is cut.
    for cut in ({"tokens", "keys", "width"}, {"tokens", "keys", "width", "depth"}):
        families = product_families(Elements(step, cut=frozenset(cut)))
        names = [step.ops[one.op].name for family in families for one in family.products]
        assert ("fwd_mix" in names) == ("depth" in cut)


def test_points_of_products_that_share_all_their_operands_count_less():
    rng = np.random.default_rng(1)
    circle = [(0, 1, 3), (1, 2, 4), (0, 2, 5)]
    apart = [(6, 7, 8)]
    every = [*circle, (0, 9, 10), (1, 9, 11), (2, 9, 12), *((a + 20, b + 20, c + 20) for a, b, c in circle)]
    for triples in (circle, [*circle, *apart], every):
        family = ProductFamily(tuple(TileProduct(op, one, 10) for op, one in enumerate(triples)), 0)
        largest, plain, values = 0.0, 0.0, sorted(family.values)
        for _ in range(600):
            share = rng.dirichlet(rng.choice([0.1, 0.5, 2.0, 20.0]) * np.ones(len(values)))
            if rng.random() < 0.5:  # where the bound is reached: a third for the values of their own
                own = np.array([value in (3, 4, 5) for value in values])
                share = np.where(own, 1 / 9, np.where(np.array(values) < 3, 2 / 9, 1e-9 * share))
                share *= rng.uniform(0.9, 1.1, len(values))
                share /= share.sum()
            points = [np.sqrt(np.prod([share[values.index(value)] for value in one])) for one in triples]
            largest, plain = max(largest, float(np.dot(family.weights, points))), max(plain, sum(points))
        assert 0.8 * 3**-1.5 < largest <= 3**-1.5 * (1 + 1e-9) < plain  # which each counting in full would exceed
    alone = ProductFamily(tuple(TileProduct(op, one, 10) for op, one in enumerate([*circle, *apart])), 0)
    assert alone.weights[3] == 1
    assert alone.weights[0] == pytest.approx(0.75**0.5)


@pytest.mark.parametrize("management", ["lru", "explicit"])
def test_what_a_step_leaves_behind_is_written_far_where_it_finds_no_room(management):
    graph = Graph("left behind", unit="pebble").tensor("w", 40, "param", axes=[("i", 40)])
    graph.op("update", ["w"], ["w"], pointwise=True)
    levels = Machine("m", "pebble", (Level("near", 1, 1, capacity=10), Level("far", 10, 100)), management, "any")
    problem = Problem.of(graph, levels, steady=True)
    bound = RangeSearch(problem, {"i": 4}).run(0).energy
    best = least_energy(problem, tiled(graph, {"i": 4}), [list(range(10))])
    reads_and_writes = 40 * (1 + 1) + 30 * 9  # 30 are read from far
    assert bound == pytest.approx(reads_and_writes + 30 * (100 if management == "lru" else 99), rel=1e-6)
    assert bound <= best
    assert management == "lru" or best < 40 * (1 + 1) + 40 * 99 + 40 * 9  # as if there were no room near


@pytest.mark.parametrize(("name", "least"), [("notes", 65e9), ("laptop", 15.5e9), ("horowitz-45nm", 51e9)])
def test_boxes_bound_attention_of_many_tokens(name, least):
    # Without operands that can be made again, lines, what is left behind, and steps of prices one by one: 44.5, 15.0 and 35.7.
    problem = Problem.of(load("attention:tokens=1024,width=1024,heads=16"), machine(name).in_unit("float32"))
    sizes = {"heads": 1, "keys": 257, "out": 147, "tokens": 49, "width": 257}
    assert RangeSearch(problem, sizes).run(0).energy > least


def test_what_an_op_writes_without_reading_anything_has_room_near():
    """A plan found by the odd attacks cost less than a bound that forgot the room of ops without operands."""
    graph = Graph("nothing read", unit="pebble").tensor("x", 6, "temp", axes=[("i", 6)]).op("make", [], ["x"])
    graph.tensor("y", 1, "output", axes=[]).op("sum", ["x"], ["y"])
    levels = Machine("m", "pebble", (Level("near", 0, 1, capacity=40), Level("far", 10, 1000)), "explicit", "any")
    problem = Problem.of(graph, levels)
    assert least_energy(problem, graph, [[0, 1]]) == 7
    assert RangeSearch(problem, {}).run(0).energy == pytest.approx(7, rel=1e-6)
