"""Loop nests: estimates against a simulation of every piece, sizes that fit, orders that are legal."""

from __future__ import annotations

import math
import random
from itertools import permutations, product

import numpy as np
import pytest

from pebbler import machine, workloads
from pebbler.game.machine import Level, Machine
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.kernels.blocked_nest import best_nest
from pebbler.solver.tiling.loop_nests import LoopNests
from pebbler.solver.tiling.transform_space import Transform, TransformSpace


def _memory(room: int) -> Machine:
    return Machine(
        "two", "float32", (Level("fast", 1, 2, capacity=room), Level("slow", 100, 200)), "explicit", "fastest"
    )


def _nests(workload: str, room: int) -> LoopNests:
    problem = Problem.of(workloads.load(workload), _memory(room))
    return LoopNests(problem, TransformSpace(problem.graph))


Loops = tuple[tuple[str, int], ...]


def _pieces(nests: LoopNests, sizes: dict[str, int], loops: Loops) -> list[dict[str, int]]:
    """Return the tiles of every piece in the order of some loops, each of which goes on by so many tiles at a time."""
    tiles = {axis: range(-(-nests.space.axes[axis] // sizes[axis])) for axis, _ in loops}
    points = [dict(zip(tiles, at, strict=True)) for at in product(*tiles.values())]
    return sorted(points, key=lambda point: [point[axis] // step for axis, step in loops])


def _simulated(nests: LoopNests, op: int, sizes: dict[str, int], loops: Loops) -> float:
    """Return what an op moves if its pieces run one by one and the fast level throws out what is needed last."""
    one, extents = nests.graph.ops[op], nests.space.axes
    touched, size = [], {}
    for point in _pieces(nests, sizes, loops):
        tiles = []
        for name in dict.fromkeys((*one.reads, *one.writes)):
            axes = [axis for axis, _ in nests.graph.tensor_named(name).axes or () if axis in point]
            tiles.append((name, *(point[axis] for axis in axes)))
            whole = nests.graph.tensor_named(name).size
            size[tiles[-1]] = whole // math.prod(extents[axis] // sizes[axis] for axis in axes)
        touched.append(tiles)
    uses: dict[tuple[object, ...], list[int]] = {}
    for turn, tiles in enumerate(touched):
        for tile in tiles:
            uses.setdefault(tile, []).append(turn)
    held, begun, energy = set(), set(), 0.0
    for tiles in touched:
        for tile in tiles:
            uses[tile].pop(0)
            if tile not in held and (tile[0] in one.reads or tile in begun):
                energy += nests.load * size[tile]
            held.add(tile)
            begun.add(tile)
        while sum(size[tile] for tile in held) > nests.room:
            out = max(held - set(tiles), key=lambda tile: (uses[tile] or [math.inf])[0])
            held.remove(out)
            energy += nests.store * size[out] if out[0] in one.writes else 0.0
    return energy + sum(nests.store * size[tile] for tile in held if tile[0] in one.writes)


@pytest.mark.parametrize("seed", range(6))
def test_an_estimate_is_close_to_a_simulation(seed: int) -> None:
    rng = random.Random(seed)
    nests = _nests("attention:tokens=16,width=32,heads=4", rng.choice([200, 400, 800]))
    sizes = {"tokens": rng.choice([1, 2, 4]), "keys": rng.choice([2, 4]), "width": 8, "heads": 1}
    checked = 0
    for op, one in enumerate(nests.graph.ops):
        own = nests.nested(op, sizes)
        if own.share > 1 or one.whole or any(name in one.reads for name in one.writes):
            continue
        checked += 1
        simulated = _simulated(nests, op, sizes, own.loops)
        assert own.energy <= 1.6 * simulated  # what is left over from one block may be found again by the next
        assert simulated <= 1.05 * own.energy
        axes = dict.fromkeys(axis for axis, _ in own.loops)
        plain = [_simulated(nests, op, sizes, tuple((axis, 1) for axis in order)) for order in permutations(axes)]
        assert simulated <= 1.2 * min(plain)
    assert checked > 5


def test_blocks_of_sums_stay_while_a_product_passes_by() -> None:
    # 12 x 12 sums of one unit fit into 200 units, beside a row of one operand: 2 * 48^3 / 12 units pass by, and the sums once.
    nests = _nests("mlp:n=48,hidden=48,batch=48", 200)
    own = nests.nested(0, {"n": 1, "hidden": 1, "batch": 1})
    assert own.energy <= nests.load * (2 * 48**3 / 12 + 4 * 48) + nests.store * 48**2
    assert {axis for axis, _ in own.loops[:2]} == {"batch", "hidden"}
    assert own.loops[2] == ("n", 1)


def _naive_nest(
    tiles: list[int], uses: list[list[bool]], units: list[float], whole: list[float], price: list[float],
    summed: list[int], choices: list[list[int]], room: float,
) -> float:  # fmt: skip
    """Return the least that an op moves: every operand that may stay, every order, every block."""
    axes, best = range(len(tiles)), math.inf
    for stays in range(len(units)):
        own = [axis for axis in axes if uses[stays][axis]]
        passing = [axis for axis in axes if not uses[stays][axis]]
        if len(summed) > 1 and any(a > b for a in summed if a in own for b in summed if b in passing):
            continue  # the terms would not be added in turn
        for inner in permutations(own):
            for blocks in product(*([1] if len(summed) > 1 and axis in summed else choices[axis] for axis in inner)):
                block = dict(zip(inner, blocks, strict=True))
                held = 0.0
                for one in range(len(units)):
                    kept = [
                        axis
                        for place, axis in enumerate(inner)
                        if uses[one][axis]
                        and (one == stays or any(not uses[one][o] and block[o] > 1 for o in inner[:place]))
                    ]
                    held += units[one] * math.prod(block[axis] for axis in kept)
                if held > room:
                    continue
                moved = whole[stays] * price[stays]
                for one in range(len(units)):
                    if one != stays:
                        turns = [-(-tiles[axis] // block.get(axis, 1)) for axis in axes if not uses[one][axis]]
                        moved += whole[one] * price[one] * math.prod(turns)
                best = min(best, moved)
    return best


@pytest.mark.parametrize("seed", range(60))
def test_the_best_nest_is_the_best_of_all(seed: int) -> None:
    rng = random.Random(seed)
    axes, operands = rng.randint(0, 3), rng.randint(1, 4)
    tiles = [rng.randint(1, 7) for _ in range(axes)]
    uses = [[rng.random() < 0.6 for _ in range(axes)] for _ in range(operands)]
    units = [float(rng.randint(1, 5)) for _ in range(operands)]
    whole = [
        unit * math.prod(t for t, used in zip(tiles, row, strict=True) if used)
        for unit, row in zip(units, uses, strict=True)
    ]
    price = [float(rng.randint(1, 3)) for _ in range(operands)]
    summed = [axis for axis in range(axes) if rng.random() < 0.3]
    choices = [sorted({1, count, rng.randint(1, count)}) for count in tiles]
    room = rng.choice([sum(units) - 1, sum(units) * rng.randint(1, 8)])
    in_turn = np.array([axis in summed and len(summed) > 1 for axis in range(axes)], np.bool_)
    found, _, _, blocks = best_nest(
        np.array(list(permutations(range(axes))), np.int64), np.array(tiles, np.int64),
        np.array(uses, np.bool_).reshape(operands, axes), np.array(units), np.array(whole), np.array(price), in_turn,
        np.cumsum([0, *map(len, choices)]), np.array([one for some in choices for one in some], np.int64), room,
    )  # fmt: skip
    assert found == _naive_nest(tiles, uses, units, whole, price, summed, choices, room)
    assert all(1 <= block <= count for block, count in zip(blocks.tolist(), tiles, strict=True))


def test_what_the_fastest_level_cannot_hold_is_moved_on_every_turn() -> None:
    nests = _nests("mlp:n=100,hidden=100", 10_000)  # W1 is 10,000 units: it stays, but for what else is touched
    once = nests.nested(0, {"hidden": 10})
    assert once.energy == nests.load * (10_000 + 100 + 100) + nests.store * 100
    assert nests.nested(0, {}).share > 1
    assert once.share < 1


@pytest.mark.parametrize(("workload", "room"), [("attention", 2_000), ("mlp:n=30,hidden=40,batch=50", 300)])
def test_sizes_fit_and_their_order_is_legal(workload: str, room: int) -> None:
    nests = _nests(workload, room)
    sizes = nests.fitting_sizes(4_000)
    assert sizes is not None
    graph = nests.space.transformed(Transform().with_sizes(**sizes))
    assert graph is not None
    order = nests.order(graph, sizes)
    flow = graph.dataflow
    assert sorted(order.tolist()) == list(range(flow.ops))
    done: set[int] = set()
    for op in order.tolist():
        assert done.issuperset(flow.before.row(op).tolist())
        done.add(op)
    room_of = np.zeros(len(graph.tensors), np.int64)
    np.maximum.at(room_of, flow.storage, flow.tensor_size)
    for op in range(flow.ops):
        values = [*flow.op_reads.row(op).tolist(), *flow.op_writes.row(op).tolist()]
        assert room_of[np.unique(flow.storage[flow.value_tensor[values]])].sum() <= room


def test_more_pieces_than_wanted_are_taken_only_where_fewer_do_not_fit() -> None:
    nests = _nests("attention", 2_000)
    few, many = nests.fitting_sizes(1_000), nests.fitting_sizes(10)
    assert few is not None
    assert many is not None
    counts = [nests.space.count_ops(Transform().with_sizes(**sizes)) for sizes in (few, many)]
    assert counts[1] > 10
    assert counts[1] <= counts[0]


def test_there_are_no_sizes_where_single_elements_do_not_fit_or_ops_are_too_many() -> None:
    assert _nests("mlp:n=3,hidden=5,batch=7", 2).fitting_sizes(100_000) is None
    assert _nests("attention", 150).fitting_sizes(1_000) is None  # a row of scores, of weights and of their gradients


def test_a_machine_without_limits_needs_no_tiles() -> None:
    problem = Problem.of(workloads.load("mlp:n=3,hidden=5"), machine("cortex-m").in_unit("float32"))
    assert LoopNests(problem, TransformSpace(problem.graph)).fitting_sizes(100) == {}
