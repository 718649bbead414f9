"""Loop nests: estimates against a simulation of every piece, sizes that fit, orders that are legal."""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from itertools import permutations, product

import pytest

from pebbler import machine, workloads
from pebbler.game.machine import Level, Machine
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.loop_nests import LoopNests
from pebbler.solver.tiling.transform_space import Transform, TransformSpace


def _memory(room: int) -> Machine:
    return Machine(
        "two", "float32", (Level("fast", 1, 2, capacity=room), Level("slow", 100, 200)), "explicit", "fastest"
    )


def _nests(workload: str, room: int) -> LoopNests:
    problem = Problem.of(workloads.load(workload), _memory(room))
    return LoopNests(problem, TransformSpace(problem.graph))


def _simulated(nests: LoopNests, op: int, sizes: dict[str, int], loops: tuple[str, ...]) -> float:
    """Return what an op moves if its pieces run one by one and the fast level throws out what was used longest ago."""
    one, extents = nests.graph.ops[op], nests.space.axes
    held: OrderedDict[tuple[object, ...], int] = OrderedDict()
    energy, begun = 0.0, set()
    for at in product(*(range(-(-extents[loop] // sizes[loop])) for loop in loops)):
        index = dict(zip(loops, at, strict=True))
        for name in dict.fromkeys((*one.reads, *one.writes)):
            axes = [axis for axis, _ in nests.graph.tensor_named(name).axes or ()]
            tile = (name, *(index[axis] for axis in axes if axis in index))
            size = nests.graph.tensor_named(name).size
            size //= math.prod(extents[axis] // sizes[axis] for axis in axes if axis in index)
            if tile not in held and (name in one.reads or tile in begun):
                energy += nests.load * size
            begun.add(tile)
            held[tile] = size
            held.move_to_end(tile)
        while sum(held.values()) > nests.room:
            out, size = held.popitem(last=False)
            energy += nests.store * size if out[0] in one.writes else 0.0
    return energy + sum(nests.store * size for out, size in held.items() if out[0] in one.writes)


@pytest.mark.parametrize("seed", range(20))
def test_an_estimate_is_close_to_a_simulation(seed: int) -> None:
    rng = random.Random(seed)
    nests = _nests("attention:tokens=16,width=32,heads=4", rng.choice([200, 400, 800]))
    sizes = {"tokens": rng.choice([1, 2, 4]), "keys": rng.choice([2, 4]), "width": rng.choice([2, 4, 8]), "heads": 1}
    checked = 0
    for op, one in enumerate(nests.graph.ops):
        own = nests.nested(op, sizes)
        if own.share > 1 or one.whole or any(name in one.reads for name in one.writes):
            continue
        checked += 1
        simulated = {loops: _simulated(nests, op, sizes, loops) for loops in permutations(own.loops)}
        # LRU finds a tile again if what was touched since fits beside it: within the size of a piece that is the estimate.
        assert own.energy <= 1.6 * simulated[own.loops]
        assert simulated[own.loops] <= 1.6 * own.energy
        assert simulated[own.loops] <= 1.6 * min(simulated.values())
    assert checked > 5


def test_what_the_fastest_level_cannot_hold_is_moved_on_every_turn() -> None:
    nests = _nests("mlp:n=100,hidden=100", 10_000)  # W1 is 10,000 units: it stays, but for what else is touched
    once = nests.nested(0, {"hidden": 10})
    assert once.energy == nests.load * (10_000 + 100 + 100) + nests.store * 100
    assert nests.nested(0, {}).share > 1
    assert once.share < 1


@pytest.mark.parametrize(("workload", "room"), [("attention", 2_000), ("mlp:n=30,hidden=40,batch=50", 300)])
def test_sizes_fit_and_their_order_is_legal(workload: str, room: int) -> None:
    nests = _nests(workload, room)
    sizes = nests.fitting_sizes(100_000)
    assert sizes is not None
    nodes = nests.space.nodes(Transform().with_sizes(**sizes))
    assert nodes is not None
    sequence = nests.sequence(nodes, sizes)
    assert sorted(sequence.tolist()) == list(range(len(nodes)))
    done: set[int] = set()
    for node in sequence.tolist():
        before = nodes.arrays.before[nodes.arrays.before_start[node] : nodes.arrays.before_start[node + 1]]
        assert done.issuperset(before.tolist())
        done.add(node)
    flow = nodes.graph.dataflow
    for op in range(flow.ops):
        storages = {int(flow.storage[flow.value_tensor[value]]) for value in flow.op_reads.row(op).tolist()}
        storages |= {int(flow.storage[flow.value_tensor[value]]) for value in flow.op_writes.row(op).tolist()}
        sizes_of = [
            max(t.size for t, s in zip(nodes.graph.tensors, flow.storage, strict=True) if s == one) for one in storages
        ]
        assert sum(sizes_of) <= room


def test_there_are_no_sizes_where_single_elements_do_not_fit_or_ops_are_too_many() -> None:
    assert _nests("mlp:n=3,hidden=5,batch=7", 2).fitting_sizes(100_000) is None
    assert _nests("attention", 300).fitting_sizes(1_000) is None


def test_a_machine_without_limits_needs_no_tiles() -> None:
    problem = Problem.of(workloads.load("mlp:n=3,hidden=5"), machine("cortex-m").in_unit("float32"))
    assert LoopNests(problem, TransformSpace(problem.graph)).fitting_sizes(100) == {}
