"""Plans that cost less than what bounds have claimed of them once, each with the step of the proof that was wrong."""

from __future__ import annotations

from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import Compute, Drop, Move, Moves
from pebbler.game.plan import Plan
from pebbler.game.transform import fuse, tile
from pebbler.referee.judgement import check
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.tiling_bound import tiled_bound


def test_results_of_ops_that_are_fused_are_made_again_by_one_run():
    """A and B were each charged for reading X again: 435,403 was stated; the fused op reads it once for both."""
    rows, columns = 20, 100
    graph = Graph("two results", unit="pebble")
    graph.tensor("X", rows * columns, "input", axes=[("i", rows), ("k", columns)])
    for name in ("T", "A", "B"):
        graph.tensor(name, rows, "temp", axes=[("i", rows)])
    graph.tensor("s", 1, "temp", axes=[]).tensor("y", 1, "output", axes=[])
    graph.op("first", ["X"], ["T", "A"], whole=["k"])
    graph.op("second", ["T", "X"], ["B"], whole=["k"], pointwise=True)
    graph.op("sum", ["A", "B"], ["s"]).op("use", ["A", "B", "s"], ["y"])
    two = Machine("two", "pebble", (Level("near", 1, 1, capacity=6), Level("far", 100, 10**6)), "explicit", "any")
    form = tile(fuse(graph, "T"), "i", 1)
    moves: list[Move] = []
    for reader in ("sum", "use"):
        for row in range(rows):
            moves += [Compute(f"first+second[{row}]", "near"), Compute(f"{reader}[{row}]", "near")]
            moves += [Drop(f"A[{row}]", "near"), Drop(f"B[{row}]", "near")]
    plan = Plan(form, two, Moves.of(form, two, moves), source=graph)
    problem = Problem.of(graph, two)
    assert check(plan).energy == 400_258
    assert 350_000 < tiled_bound(problem, 3_000).energy <= 400_258
    assert 350_000 < tiled_bound(problem, sizes={"i": 1}).energy <= 400_258


def test_what_is_overwritten_by_something_smaller_leaves_room_for_other_results():
    """H and Z were taken to be in memory at once: 636 was stated."""
    graph = Graph("smaller", unit="pebble")
    graph.tensor("x", 1, "input").tensor("H", 10).tensor("less", 4, overwrites="H").tensor("Z", 6)
    graph.tensor("y", 1, "output")
    graph.op("make", ["x"], ["H"]).op("shrink", ["H"], ["less", "Z"]).op("end", ["less", "Z"], ["y"])
    two = Machine("two", "pebble", (Level("near", 1, 1, capacity=11), Level("far", 100, 100)), "explicit", "any")
    plan = Plan(graph, two, Moves.of(graph, two, [Compute(op.name, "near") for op in graph.ops]))
    assert check(plan).energy == 141
    assert tiled_bound(Problem.of(graph, two)).energy == 141


def test_what_a_sum_adds_once_may_be_read_by_its_smallest_piece():
    """The piece that touches b was taken to touch ten of X, too, and to push P out of the near level: 658 was claimed."""
    graph = Graph("backwards", unit="pebble")
    graph.tensor("P", 5, "param").tensor("x", 1, "input").tensor("X", 11, axes=[("k", 11)]).tensor("b", 10)
    graph.tensor("C", 1, axes=[]).tensor("z1", 1).tensor("z2", 1).tensor("y", 1, "output")
    graph.op("see1", ["P"], ["z1"]).op("make_b", ["x"], ["b"]).op("make_X", ["x"], ["X"])
    graph.op("sum", ["X", "b"], ["C"], meta={"adds": ["b"]})
    graph.op("see2", ["P"], ["z2"]).op("end", ["C", "z1", "z2"], ["y"])
    two = Machine("two", "pebble", (Level("near", 1, 1, capacity=20), Level("far", 100, 100)), "lru", "any")
    form = tile(graph, "k", 10, reverse=["sum"])
    order = ["see1", "make_b", "make_X[1]", "sum[1]", "see2", "make_X[0]", "sum[0]", "end"]
    energy = check(Plan.in_order(form, two, order, source=graph, steady=True)).energy
    assert energy == 64
    assert tiled_bound(Problem.of(graph, two, steady=True), sizes={"k": 10}).energy <= energy


def test_small_pieces_of_two_readers_may_both_read_near():
    """The last tile is read near before b is made and again after it; one of the two was counted as far: 10,905 was claimed."""
    size, rest, count, room = 3, 1, 24, 30
    graph = Graph("two readers", unit="pebble")
    axes, values = [("i", size + rest)], [f"v{number}" for number in range(count)]
    for name in (*values, "T", "u", "Y"):
        graph.tensor(name, size + rest, axes=axes)
    graph.tensor("b", 1, axes=[]).tensor("y", 1, "output", axes=[])
    for name in values:
        graph.op(f"make_{name}", [], [name])
    graph.op("before", values, ["T", "u"]).op("sum", ["u"], ["b"])
    graph.op("after", [*values, "T", "b"], ["Y"], pointwise=True).op("end", ["Y"], ["y"])
    two = Machine("two", "pebble", (Level("near", 1, 1, capacity=room), Level("far", 100, 1)), "explicit", "any")
    where = ["near" if number < 7 else "far" for number in range(count)]
    moves: list[Move] = [Compute(f"make_{name}[1]", "near") for name in values]
    moves += [Compute("before[1]", "near"), *(Drop(f"{name}[1]", "near") for name in values)]
    moves += [Compute(f"make_{name}[0]", level) for name, level in zip(values, where, strict=True)]
    moves += [Compute("before[0]", "near"), Compute("sum[0]", "near"), Compute("sum[1]", "near")]
    moves += [Drop("u[0]", "near"), Drop("u[1]", "near"), Compute("after[0]", "near"), Drop("T[0]", "near")]
    moves += [Drop(f"{name}[0]", level) for name, level in zip(values, where, strict=True)]
    moves += [Compute("end[0]", "near"), Drop("Y[0]", "near")]
    moves += [Compute(f"make_{name}[1]", "near") for name in values]
    moves += [Compute("after[1]", "near"), Compute("end[1]", "near")]
    form = tile(graph, "i", size)
    energy = check(Plan(form, two, Moves.of(form, two, moves), source=graph)).energy
    assert energy == 10_442
    assert 0 < tiled_bound(Problem.of(graph, two), sizes={"i": size}).energy <= energy
