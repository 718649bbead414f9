"""Bounds for every tiling: never above any plan of any transformed graph."""

from __future__ import annotations

import itertools
import random

import pytest

import naive_orders as naive
import pebbler as pb
from pebbler.referee.rows.elements import Elements, Liveness
from pebbler.solver.problem import Problem, Search
from pebbler.solver.tiling import TransformSearch
from pebbler.solver.tiling.cache_order import best_order
from pebbler.solver.tiling.tiling_bound import RangeSearch, tiled_bound
from pebbler.solver.tiling.transform_space import Transform, TransformSpace

SPECS = ["mlp:n=2,hidden=3", "mlp:n=1,hidden=2,batch=2", "deep-mlp:n=2,hidden=2,layers=2", "mlp:n=3,hidden=8"]


def small_machine(rng: random.Random, management: str) -> pb.Machine:
    """A machine in which some of these steps' values fit and some do not."""
    levels, price = [], 0
    for i in range(rng.randrange(1, 4)):
        price += rng.randrange(1, 9)
        levels.append(pb.Level(f"L{i}", price, rng.randrange(0, 2 * price), capacity=rng.randrange(1, 14) * (i + 1)))
    levels.append(pb.Level("last", price + rng.randrange(40), rng.randrange(60)))
    operands = rng.choice(["any", "any", "fastest"]) if management == "explicit" else "any"
    allocator, line = rng.choice(["own", "reuse"]), rng.choice([1, 1, 2, 3])
    return pb.Machine("small", "float32", tuple(levels), management, operands, allocator=allocator, line=line)


def transforms(graph: pb.Graph, rng: random.Random) -> list[Transform]:
    space = TransformSpace(graph)
    fusions = [(), space.temps, tuple(temp for temp in space.temps if rng.random() < 0.5)]
    axes = list(space.axes)
    sizes = [dict(zip(axes, pick, strict=True)) for pick in itertools.product((1, 2, None), repeat=len(axes))]
    found = [
        Transform(fused=tuple(sorted(f))).with_sizes(**s)
        for f in fusions
        for s in rng.sample(sizes, min(4, len(sizes)))
    ]
    return [space.effective(transform) for transform in found]


@pytest.mark.parametrize("seed", range(12))
def test_no_order_of_any_tiling_on_caches_is_below_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    graph = pb.workloads.get(rng.choice(SPECS))
    problem = Problem.of(graph, small_machine(rng, "lru"), steady=rng.random() < 0.7)
    bound, space = tiled_bound(problem).energy, TransformSpace(graph)
    for transform in transforms(graph, rng):
        tiled = space.transformed(transform)
        if tiled is not None:
            assert best_order(problem.transformed(tiled), limit=2_500).energy >= bound
    search = Search(problem, time_limit=0.1)
    TransformSearch(search, space, 0.1).explore()
    assert search.energy >= bound > 0


def test_moments_that_raise_no_bound_end_with_the_time():
    graph = pb.workloads.chain(9)
    roomy = pb.Machine("roomy", graph.unit, (pb.Level("near", 1, 1, capacity=10**6), pb.Level("far", 9, 9)), "lru")
    ranges = RangeSearch(Problem.of(graph, roomy, steady=False))
    ranges.run(0, lambda: float(ranges.programs < 2))
    assert ranges.programs == 2, "one without a moment, and one with the first"


@pytest.mark.parametrize("seed", range(6))
def test_no_placement_of_any_tiling_is_below_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    graph = pb.workloads.get(rng.choice(SPECS))
    problem = Problem.of(graph, small_machine(rng, "explicit"), steady=rng.random() < 0.7)
    bound = tiled_bound(problem).energy
    search = Search(problem, time_limit=0.1)
    transforms = TransformSearch(search, TransformSpace(graph), 0.1)
    transforms.explore()
    for candidate in transforms.ranked()[:2]:
        candidate.improve(lambda: search.remaining + 0.1, 200)
        assert candidate.energy >= bound
    assert search.energy >= bound


@pytest.mark.parametrize("seed", range(60))
def test_no_order_of_a_random_graph_is_below_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    graph, machine = naive.random_graph(rng, rng.randrange(1, 7)), naive.random_machine(rng, "lru")
    steady = rng.random() < 0.5
    assert tiled_bound(Problem.of(graph, machine, steady=steady)).energy <= naive.cheapest_order(graph, machine, steady)


def test_the_bounds_of_the_notes_step() -> None:
    step = pb.workloads.mlp(n=20, hidden=1000)
    assert tiled_bound(Problem.of(step, pb.machine("notes"))).energy > 3.72e6
    assert tiled_bound(Problem.of(step, pb.machine("notes-explicit"))).energy > 2.93e6


def test_the_bounds_where_the_fastest_level_is_a_cache() -> None:
    step = pb.workloads.mlp(n=20, hidden=1000)
    assert tiled_bound(Problem.of(step, pb.machine("laptop")), 3_000).energy > 1.2e6  # 1,098,862 without pairs in L1


def test_the_bounds_of_small_tiles_and_of_tiles_that_do_not_divide() -> None:
    batch = Problem.of(pb.workloads.mlp(n=20, hidden=1000, batch=32), pb.machine("notes"))
    # 11,347,055 when the next piece of an op was taken to find there what does not fit.
    assert tiled_bound(batch, sizes={"hidden": 4, "n": 5, "batch": 8}).energy > 19e6
    # 10,978,930 when what is not in full tiles along all axes was taken to be in the smallest along each.
    assert tiled_bound(batch, sizes={"hidden": 333, "n": 20, "batch": 17}).energy > 11.5e6


def test_a_batch_cut_in_two_lets_no_piece_pass_the_barrier() -> None:
    graph = pb.workloads.get("mlp:n=3,hidden=4,batch=5")
    elements, flow = Elements(graph), graph.dataflow
    loss = next(value for value in range(flow.values) if elements.tensor(value).name == "dy")
    liveness = Liveness(elements, loss)
    before = {flow.op_names[op] for op in liveness.before}
    after = {flow.op_names[op] for op in liveness.after}
    # A sample's own activations may come and go with its tile of the batch; weights are used by all of them.
    assert {"fwd_linear1", "fwd_linear2", "bwd_loss"} <= before
    assert {"upd_W1", "upd_W2"} <= after
    # Gradients of a tile are added up before the next tile has been through the forward pass.
    assert not {"bwd_dh", "bwd_dW1", "bwd_dW2"} & after


def test_a_search_that_is_asked_again_goes_on_and_nothing_is_said_of_very_many_levels() -> None:
    problem = Problem.of("mlp:n=20,hidden=100,batch=8", pb.machine("notes"))
    search = RangeSearch(problem)
    energies = [search.run(work).energy for work in (0, 500, 1_000)]
    assert 0 < energies[0] < energies[1] < energies[2]
    assert energies[2] == tiled_bound(problem, 1_000).energy
    levels = tuple(pb.Level(f"L{i}", i + 1, 1, capacity=9) for i in range(30))
    many = pb.Machine("many", "float32", (*levels, pb.Level("last", 99, 99)), "explicit", "any")
    assert tiled_bound(Problem.of("mlp:n=2,hidden=4", many)).energy == 0


def test_without_time_the_first_barrier_is_all_that_is_looked_at(monkeypatch):
    """All of them were looked at however little time there was: minutes, with hundreds of ops."""
    problem = Problem.of("deep-mlp:n=4,hidden=4,layers=3", "notes")
    looked_at = []
    make = Liveness.__init__

    def counted(self, *arguments):
        looked_at.append(arguments[1])
        make(self, *arguments)

    monkeypatch.setattr(Liveness, "__init__", counted)
    hasty = RangeSearch(problem).run(0, lambda: 0.0)
    assert len(set(looked_at)) == 1
    assert 0 < hasty.energy <= RangeSearch(problem).run(0).energy


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "work", "least"),
    [("notes", 150_000, 11.8e6), ("notes-explicit", 100_000, 11e6), ("horowitz-45nm", 60_000, 4.64e6)],
)
def test_every_tiling_of_a_batch(name, work, least):
    problem = Problem.of(pb.workloads.mlp(n=20, hidden=1000, batch=32), pb.machine(name))
    assert tiled_bound(problem, work=work).energy > least


def test_assumptions_are_tried_with_every_row_however_many_moments_came_before_them() -> None:
    graph = pb.workloads.deep_mlp(n=4, hidden=8, layers=8)
    levels = (pb.Level("fast", 1, 1, capacity=224), pb.Level("slow", 100, 100))
    search = RangeSearch(Problem.of(graph, pb.Machine("two", graph.unit, levels, "lru")), {})
    search.run(10_000)
    assert search.root is not None
    assert search.root.split == {"moment": 38, "near": 0}
    assert min(part.own for part in search.root.parts.values()) > search.root.own
