"""Tiling and fusion: the pieces compute what the whole computes."""

from __future__ import annotations

import random

import pytest

import pebbler as pb
from pebbler.game.transform import fusable, fuse, tile
from pebbler.run.numbers import verify

SPECS = [
    "mlp:n=6,hidden=10",
    "mlp:n=6,hidden=10,batch=5",
    "deep-mlp:n=4,hidden=7,layers=2",
    "deep-mlp:n=3,hidden=5,layers=3,batch=4",
]


def axes_of(graph: pb.Graph) -> list[str]:
    return sorted({axis for tensor in graph.tensors for axis, _ in tensor.axes or ()})


def check_same(graph: pb.Graph, source: pb.Graph) -> None:
    """The transformed program is legal as it stands and computes the source's params."""
    plan = pb.Plan.in_order(graph, pb.machine("notes"), source=source)
    assert pb.check(plan).legal
    comparison = verify(plan)
    assert set(comparison.compared) == {t.name for t in source.tensors if t.kind in ("param", "output")}
    assert comparison.largest_difference <= 1e-12


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("seed", range(12))
def test_any_sequence_of_tilings_and_fusions_computes_the_same(spec: str, seed: int) -> None:
    rng = random.Random(f"{spec} {seed}")
    source = graph = pb.workloads.get(spec)
    for _ in range(rng.randrange(1, 5)):
        if rng.random() < 0.5 and (temps := fusable(graph)):
            graph = fuse(graph, rng.choice(temps))
        else:
            axis = rng.choice(axes_of(source))
            reverse = [op.name for op in graph.ops if rng.random() < 0.5]
            try:
                graph = tile(graph, axis, rng.randrange(1, 8), reverse=reverse)
            except pb.InputError as error:  # a fused sum over the axis, or an axis that is tiled already
                assert "whole" in str(error) or "extents" in str(error)  # noqa: PT017
    check_same(graph, source)


@pytest.mark.parametrize("spec", SPECS)
def test_tiles_keep_sizes_and_costs(spec: str) -> None:
    source = pb.workloads.get(spec)
    costly = pb.Graph("costly", source.unit, source.tensors, [])
    for i, op in enumerate(source.ops):
        costly.op(op.name, op.reads, op.writes, cost=float(i + 1), pointwise=op.pointwise, meta=op.meta)
    for axis in axes_of(source):
        tiled = tile(costly, axis, 3)
        assert sum(t.size for t in tiled.tensors) == sum(t.size for t in source.tensors)
        assert sum(op.cost for op in tiled.ops) == pytest.approx(sum(op.cost for op in costly.ops))


def test_an_op_that_needs_the_whole_axis_reads_and_writes_all_tiles() -> None:
    source = pb.Graph("norm")
    source.tensor("x", 12, kind="input", axes=[("row", 2), ("col", 6)])
    source.tensor("h", 12, axes=[("row", 2), ("col", 6)])
    source.tensor("y", 12, kind="output", axes=[("row", 2), ("col", 6)])
    source.op("scale", ["x"], ["h"], whole=["col"], meta={"kernel": "relu"})
    source.op("shift", ["h"], ["y"], pointwise=True, meta={"kernel": "relu"})
    tiled = tile(source, "col", 4)
    assert tiled.op_named("scale").reads == ("x[0]", "x[1]")
    assert tiled.op_named("scale").writes == ("h[0]", "h[1]")
    assert tiled.op_named("shift[1]").reads == ("h[1]",)
    check_same(tiled, source)


def test_functional_updates_are_tiled_with_the_storage_they_take_over() -> None:
    source = pb.workloads.note_mlp()
    tiled = tile(source, "hidden", 400)
    assert tiled.tensor_named("W1_new[2]").overwrites == "W1[2]"
    check_same(tiled, source)


def test_a_tile_as_large_as_the_axis_changes_nothing() -> None:
    graph = pb.workloads.mlp(n=3, hidden=4)
    assert tile(graph, "hidden", 4) is graph


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: tile(g, "hiden", 2), "did you mean hidden"),
        (lambda g: tile(g, "hidden", 0), "at least 1"),
        (lambda g: tile(g, "hidden", 2.5), "whole number"),
        (lambda g: tile(g, "hidden", 2, reverse=["nope"]), "no op nope"),
        (lambda g: tile(tile(g, "hidden", 3), "hidden", 2), "different extents"),
        (lambda g: fuse(g, "h"), "exactly one op must read it, not 2"),
        (lambda g: fuse(g, "W1"), "of kind param"),
        (lambda g: fuse(g, "y_hat"), "exactly one op"),
        (lambda g: fuse(g, "nope"), "no tensor nope"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(call, message: str) -> None:
    with pytest.raises(pb.InputError, match=message):
        call(pb.workloads.mlp(n=3, hidden=4))


def test_fusion_is_refused_where_the_update_would_overwrite_what_its_maker_still_reads() -> None:
    graph = pb.Graph("smear")
    graph.tensor("W", 4, kind="param", axes=[("i", 4)])
    graph.tensor("d", 4, axes=[("i", 4)])
    graph.op("blur", ["W"], ["d"])  # element i needs its neighbours
    graph.op("upd", ["W", "d"], ["W"], pointwise=True)
    with pytest.raises(pb.InputError, match="out of step"):
        fuse(graph, "d")


def test_fusion_is_refused_where_an_op_in_between_needs_one_and_changes_the_other() -> None:
    graph = pb.Graph("between")
    for name, kind in (("a", "param"), ("x", "input"), ("t", "temp"), ("s", "temp"), ("u", "temp"), ("o", "output")):
        graph.tensor(name, 2, kind=kind, axes=[("i", 2)])
    graph.op("make", ["a", "x"], ["t", "s"])
    graph.op("change", ["s", "a"], ["a"])
    graph.op("mid", ["a"], ["u"])
    graph.op("use", ["t", "u"], ["o"], pointwise=True)
    with pytest.raises(pb.InputError, match="between"):
        fuse(graph, "t")


def test_what_is_added_once_to_a_sum_must_not_have_the_axis_that_is_summed_over() -> None:
    """Its other tiles were left out: no piece read them."""
    graph = pb.Graph("sum", unit="pebble")
    graph.tensor("a", 4, "input", axes=[("k", 4)]).tensor("s", 1, "output", axes=[])
    graph.op("sum", ["a"], ["s"], meta={"adds": ["a"]})
    with pytest.raises(pb.InputError, match="`adds` a, which has it"):
        pb.tile(graph, "k", 2)
