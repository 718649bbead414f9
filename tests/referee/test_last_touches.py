"""How deep lies what a piece reads: bounds by hand, no plan below them, and wrong ones that plans undercut."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from attacks import cheapest_order, transforms
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import Moves
from pebbler.game.plan import Plan
from pebbler.game.transform import fuse, tile
from pebbler.referee.judgement import check
from pebbler.referee.rows.last_touches import LastTouches
from pebbler.referee.rows.tile_range import TileRange
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.tiling_bound import RangeSearch, tiled_bound
from row_attacks import few_touches


def random_touches(rng: random.Random) -> tuple[Graph, Machine]:
    """Return ops that read the same few tensors in different orders, and a near level that holds what one or two pieces touch."""
    graph = few_touches(rng)
    sizes = [tensor.size for tensor in graph.tensors]
    room = max(1, rng.choice([1, 1, 2, 3]) * max(sizes) // rng.choice([1, 2]) + rng.randint(-1, 3))
    levels = Level("near", 1, 0, capacity=room), Level("far", rng.choice([10, 100]), rng.choice([0, 1, 10]))
    return graph, Machine("touches", graph.unit, levels, "lru", "any", allocator=rng.choice(["own", "reuse"]))


def attack(seed: int) -> None:
    rng = random.Random(seed)
    graph, machine = random_touches(rng)
    steady = rng.random() < 0.5
    for form, sizes in transforms(rng, graph, 4):
        energy = check(cheapest_order(rng, form, machine, graph, steady=steady, tries=60)).energy
        bound = tiled_bound(Problem.of(graph, machine, steady=steady), sizes=sizes).energy
        assert energy >= bound, f"seed {seed}: {energy} is below {bound} of tiles {sizes}"


def test_no_plan_finds_what_it_reads_nearer():
    for seed in range(40):
        attack(seed)


def test_a_read_at_a_time_unknown_may_be_the_one_that_comes_from_far():
    """A parameter that is first read by an op on neither side of the barrier, and counted as found far there, pays for it once."""
    attack(1111)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(50))
def test_no_plan_finds_what_it_reads_nearer_in_thousands_of_cases(chunk):
    for seed in range(1_000 + 100 * chunk, 1_100 + 100 * chunk):
        attack(seed)


def test_a_bound_that_puts_everything_one_deeper_is_undercut(monkeypatch):
    depth = LastTouches._level

    def deeper(self, tiles, size, *rest):
        return depth(self, tiles, size + 1, *rest)

    monkeypatch.setattr(LastTouches, "_level", deeper)
    with pytest.raises(AssertionError, match="is below"):
        attack(2)


def test_a_bound_that_forgets_who_touched_it_in_the_step_before_is_undercut(monkeypatch):
    touching = LastTouches._touching
    monkeypatch.setattr(
        LastTouches,
        "_touching",
        lambda self, value, readers: [
            op for op in touching(self, value, readers) if op in self.elements.readers[value]
        ],
    )
    with pytest.raises(AssertionError, match="is below"):
        attack(7)


def between_two(*, cut: bool) -> Graph:
    """Return u, which reads x between two tensors of six, and w, which reads x as well; w runs once, in pieces, or as one op."""
    graph = Graph("between", unit="pebble")
    graph.tensor("x", 1, "input", axes=[])
    for name in ("a", "b"):
        graph.tensor(name, 24, "input", axes=[("i", 4), ("k", 6)])
    graph.tensor("s", 4 if cut else 1, "output", axes=[("i", 4)] if cut else [])
    graph.tensor("t", 4, "output", axes=[("i", 4)])
    graph.tensor("g", 4, "input", axes=[("i", 4)])
    graph.op("w", ["x", "g"] if cut else ["x"], ["s"], once=cut)
    graph.op("u", ["a", "x", "b"], ["t"], whole=["k"])
    return graph


def same_place() -> Graph:
    """Return u, which reads t and then v; w has read v and then made s, which may have been where t is now."""
    graph = Graph("same place", unit="pebble")
    for name, size, kind in (
        ("v", 1, "input"),
        ("q", 1, "input"),
        ("s", 5, "temp"),
        ("r", 1, "output"),
        ("t", 5, "temp"),
        ("y", 6, "output"),
    ):
        graph.tensor(name, size, kind)  # type: ignore[arg-type]
    graph.op("w", ["v"], ["s"])
    graph.op("z", ["s"], ["r"])
    graph.op("m", ["q"], ["t"])
    graph.op("u", ["t", "v"], ["y"])
    return graph


def fused_order() -> Graph:
    """Return r, which reads v before c; fused with m it reads c first. Then u reads v."""
    graph = Graph("fused order", unit="pebble")
    for name, size, kind in (("v", 1, "input"), ("c", 6, "input"), ("z", 6, "output")):
        graph.tensor(name, size, kind, axes=[(f"along {name}", size)])  # type: ignore[arg-type]
    graph.tensor("t", 1, "temp", axes=[])
    graph.tensor("y", 1, "output", axes=[])
    graph.op("m", ["c"], ["t"])
    graph.op("r", ["t", "v", "c"], ["y"], pointwise=True)
    graph.op("u", ["v"], ["z"])
    return graph


def reruns_forgotten(self: LastTouches, value: int, group: int) -> Iterator[object]:
    """Take it that ops touch an element once, whether they can run again or are cut."""
    for one in READING(self, value, group):
        yield one if one.same else replace(one, pieces=(1, frozenset()))


def after_as_written(self: LastTouches, group: int, ops: list[int], value: int) -> list[object]:
    """Take it that fusing changes no order of touches."""
    return [self._after(op, value) for op in ops]


class Everything(set[int]):
    """Takes all storages for such that never change places."""

    def intersection(self, *others: object) -> set[int]:
        return set(*others)  # type: ignore[arg-type]


READING = LastTouches._reading
HAND_MADE: list[tuple[Graph, dict[str, int], str, list[str], int, Callable[[pytest.MonkeyPatch], None]]] = [
    (
        between_two(cut=False),
        {"i": 1},
        "x",
        ["w", "u[0]", "w", "u[1]", "w", "u[2]", "w", "u[3]"],
        8,
        lambda patch: patch.setattr(LastTouches, "_reading", reruns_forgotten),
    ),
    (
        between_two(cut=True),
        {"i": 1},
        "x",
        ["w[0]", "u[0]", "w[1]", "u[1]", "w[2]", "u[2]", "w[3]", "u[3]"],
        9,
        lambda patch: patch.setattr(LastTouches, "_reading", reruns_forgotten),
    ),
    (
        same_place(),
        {},
        "v",
        ["w", "z", "m", "u"],
        10,
        lambda patch: patch.setattr(LastTouches, "_tiles", fixed_places),
    ),
    (
        fused_order(),
        {},
        "v",
        ["m+r", "u"],
        4,
        lambda patch: patch.setattr(LastTouches, "_afters", after_as_written),
    ),
]
TILES = LastTouches._tiles


def fixed_places(self: LastTouches, *arguments: object) -> object:
    """Take it that no two storages ever have the same place."""
    self.fixed = Everything()
    return TILES(self, *arguments)  # type: ignore[arg-type]


def far(problem: Problem, sizes: dict[str, int], name: str, reader: str) -> bool:
    """Whether some read of an element of a tensor by an op certainly comes from far."""
    tiles = TileRange.of_sizes(problem.graph, sizes)
    family = RangeSearch(problem)._family(tiles)
    value = int(family.flow.start_value[problem.graph.tensor_index(name)])
    group = family.elements.group[problem.graph.op_index(reader)]
    number = max(tiles.tiles(axes) for axes in family.reads[value][group])
    near = family.last_touches.near(tiles, value, group, full=frozenset(), full_piece=False)[0]
    return near is not None and near < number


@pytest.mark.parametrize(("graph", "sizes", "name", "order", "room", "break_it"), HAND_MADE)
def test_what_may_have_happened_since_the_last_touch(monkeypatch, graph, sizes, name, order, room, break_it):
    form = fuse(graph, "t") if "m+r" in order else graph
    for axis, size in sizes.items():
        form = tile(form, axis, size)
    levels = Level("near", 1, 0, capacity=room), Level("far", 100, 0)
    machine = Machine("two", graph.unit, levels, "lru", "any")
    moves = Moves.computes(form, machine, [form.op_index(name) for name in order])
    touched = sum(name in form.op_named(op).reads for op in order)
    assert check(Plan(form, machine, moves, steady=False)).tensors[name] == 100 + touched - 1  # near but for the first
    problem = Problem.of(graph, machine, steady=False)
    assert not far(problem, sizes, name, "u")
    break_it(monkeypatch)
    assert far(problem, sizes, name, "u")
