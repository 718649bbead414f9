"""Cases of tilings leave none out, and say of each tiling in them nothing that its graph does not have."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import pebbler as pb
from attacks import random_products, random_tilable
from pebbler.errors import InputError
from pebbler.game.tile_meta import origin
from pebbler.game.transform import tile
from pebbler.referee.rows.elements import Elements
from pebbler.referee.rows.tile_range import AxisRange, TileRange
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.tiling_bound import RangeSearch, tiled_bound


def test_a_range_says_what_holds_for_each_of_its_sizes() -> None:
    for extent in range(2, 30):
        for least in range(1, extent + 1):
            for most in range(least, extent + 1):
                one = AxisRange(extent, least, most)
                sizes = range(least, most + 1)
                tiles = [[min(size, extent - at) for at in range(0, extent, size)] for size in sizes]
                assert one.tiles == min(map(len, tiles))
                full = [sum(t for t in cut if t == size) for size, cut in zip(sizes, tiles, strict=True)]
                assert (one.full, one.rest) == (min(full), min(map(min, tiles)))


def test_halves_leave_no_size_out_and_have_none_twice() -> None:
    open_ranges = [AxisRange(50, 1, 50)]
    while open_ranges:
        one = open_ranges.pop()
        halves = one.halves()
        if halves is None:
            assert one.least == one.most
            continue
        sizes = [size for half in halves for size in range(half.least, half.most + 1)]
        assert sizes == list(range(one.least, one.most + 1))
        open_ranges += halves


@pytest.mark.parametrize("make", [random_tilable, random_products])
@pytest.mark.parametrize("seed", range(40))
def test_pieces_read_and_write_every_element_as_often_as_the_case_says(make, seed: int) -> None:
    """Counted in the tiled graph: what is read by pieces of an op, and how often each result is written and added to."""
    rng = random.Random(seed)
    graph = make(rng)
    sizes = {axis: rng.randint(1, one.extent) for axis, one in TileRange.all_of(graph).ranges.items()}
    form = graph
    try:
        for axis, size in sizes.items():
            form = tile(form, axis, size)
        _ = form.dataflow
    except InputError:
        return
    case, size_of = TileRange.of_sizes(graph, sizes), {t.name: t.size for t in form.tensors}
    whole = {tensor.name: origin(tensor) for tensor in form.tensors}
    read: Counter[tuple[str, str]] = Counter()
    written: Counter[tuple[str, str]] = Counter()
    for op in form.ops:
        for name in op.reads:
            read[origin(op), whole[name]] += size_of[name]
        for name in op.writes:
            written[origin(op), whole[name]] += size_of[name]
    elements = Elements(graph, case.open, case.cut)
    for number, op in enumerate(graph.ops):
        for value in set(elements.op_reads[number]):
            tensor = elements.tensor(value)
            if tensor.name in op.writes:
                continue
            assert read[op.name, tensor.name] >= tensor.size * case.tiles(elements.shared(number, value))
        for value in elements.op_writes[number]:
            tensor, times = elements.tensor(value), case.tiles(elements.summed(value))
            assert written[op.name, tensor.name] >= tensor.size * times
            if tensor.name not in op.reads:
                assert read[op.name, tensor.name] >= tensor.size * (times - 1)
    for tensor in form.tensors:
        source = graph.tensor_named(whole[tensor.name])
        assert case.smallest(source) <= tensor.size


@pytest.mark.slow
def test_weights_are_read_once_per_piece_of_the_batch_and_large_tiles_are_in_no_register() -> None:
    problem = Problem.of("mlp:n=20,hidden=1000,batch=32", pb.machine("notes-explicit"))
    of_all = RangeSearch(problem).run(0).energy
    tiny, coarse = (
        tiled_bound(problem, sizes=sizes).energy for sizes in ({"batch": 4, "hidden": 4, "n": 5}, {"hidden": 32})
    )
    assert of_all < 5e6  # grants every element the registers
    assert tiny > 10e6
    assert coarse > 11e6
    assert of_all < tiled_bound(problem, 3_000).energy < min(tiny, coarse)  # all tilings, in a few cases
