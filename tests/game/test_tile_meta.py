"""What a tile is stands in `meta["tile"]`, whatever names look like."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import pebbler as pb
from pebbler.game.tile_meta import origin, tile_of, without_tiles
from pebbler.game.transform import fuse, fuse_all, tile
from pebbler.run.numbers import verify


def test_tensors_and_ops_say_which_part_of_what_they_are() -> None:
    tiled = tile(tile(pb.workloads.get("mlp:n=2,hidden=4,batch=3"), "batch", 2), "hidden", 3)
    assert tiled.tensor_named("h[1][0]").meta["tile"] == {"of": "h", "at": {"batch": [2, 3], "hidden": [0, 3]}}
    assert tiled.op_named("fwd_relu[0][1]").meta["tile"] == {
        "of": "fwd_relu",
        "at": {"batch": [0, 2], "hidden": [3, 4]},
    }
    assert tile_of(tiled.op_named("fwd_loss[0]")).at == {"batch": (0, 2)}
    assert tile_of(tiled.tensor_named("b2")) is None


def test_a_fused_tile_is_a_tile_of_the_fused_op_whichever_comes_first() -> None:
    step = pb.workloads.mlp(n=2, hidden=4)
    first, then = tile(fuse(step, "dW1"), "hidden", 2), tile(step, "hidden", 2)
    for i in range(2):
        then = fuse(then, f"dW1[{i}]")
    for graph, name in ((first, "bwd_dW1+upd_W1[1]"), (then, "bwd_dW1[1]+upd_W1[1]")):
        assert graph.op_named(name).meta["tile"] == {"of": "bwd_dW1+upd_W1", "at": {"hidden": [2, 4]}}


def test_an_op_that_needs_an_axis_whole_stays_a_tile_along_the_others() -> None:
    graph = pb.Graph("norm")
    for name, kind in (("x", "input"), ("y", "output")):
        graph.tensor(name, 24, kind=kind, axes=[("row", 4), ("col", 6)])
    graph.op("scale", ["x"], ["y"], whole=["col"], meta={"kernel": "relu"})
    for axes in (("row", "col"), ("col", "row")):
        tiled = graph
        for axis in axes:
            tiled = tile(tiled, axis, 3)
        assert [op.meta["tile"] for op in tiled.ops] == [
            {"of": "scale", "at": {"row": part}} for part in ([0, 3], [3, 4])
        ]


def test_brackets_in_a_name_make_no_tile() -> None:
    graph = pb.Graph("brackets")
    graph.tensor("x[0]", 1, kind="input")
    graph.tensor("x[1]", 1, kind="output")
    graph.op("f[0]", ["x[0]"], ["x[1]"])
    assert tile_of(graph.tensors[0]) is tile_of(graph.ops[0]) is None
    assert [origin(one) for one in graph.tensors] == ["x[0]", "x[1]"]
    assert without_tiles(graph) is graph


def test_new_names_are_never_those_of_the_users_tensors_and_ops() -> None:
    graph = pb.Graph("alike")
    for name, kind in (("W", "param"), ("W[0]", "param"), ("g", "temp"), ("g[0]", "temp")):
        graph.tensor(name, 4, kind=kind, axes=[("i", 4)])
    graph.op("f", ["W"], ["g"], pointwise=True, meta={"kernel": "relu"})
    graph.op("f+u", ["W[0]"], ["g[0]"], pointwise=True, meta={"kernel": "relu"})
    graph.op("u", ["W", "g"], ["W"], pointwise=True, meta={"kernel": "sgd", "lr": 0.1, "wd": 0.0})
    graph.op("f[0]", ["W[0]", "g[0]"], ["W[0]"], pointwise=True, meta={"kernel": "sgd", "lr": 0.1, "wd": 0.0})
    for steps in (["i"], ["g", "i"], ["g", "g[0]", "i"], ["g[0]", "g", "i"]):
        changed = graph
        for step in steps:
            changed = tile(changed, "i", 2) if step == "i" else fuse(changed, step)
        assert {origin(one) for one in changed.tensors if one.kind == "param"} == {"W", "W[0]"}
        assert len({origin(op) for op in changed.ops}) == 5 - len(steps)
        assert verify(pb.Plan.in_order(changed, pb.machine("notes"), source=graph)).identical


def test_several_temps_are_fused_in_the_order_of_their_declaration() -> None:
    step = pb.workloads.mlp(n=2, hidden=4)
    one_by_one = fuse(fuse(step, "dh"), "dW1")
    together = fuse_all(step, ["dW1", "dh"])
    assert together.ops == one_by_one.ops
    assert (one_by_one.name, together.name) == ("mlp:n=2,hidden=4 fused dh, dW1", "mlp:n=2,hidden=4 fused dW1, dh")
    assert fuse_all(step, []) is step


def test_a_wrong_tile_is_refused_with_the_tensor_and_what_is_wrong() -> None:
    graph = pb.Graph("wrong")
    graph.tensor("x", 2, kind="input", axes=[("i", 2)], meta={"tile": {"of": "X", "at": {"i": [0]}}})
    with pytest.raises(pb.InputError, match=r"tensor x: meta tile: .*length 2"):
        tile(graph, "i", 1)


def test_a_wrong_tile_in_a_file_is_refused_with_the_file(tmp_path: Path) -> None:
    graph = pb.Graph("wrong")
    graph.tensor("x", 2, kind="input").tensor("y", 1, kind="output").op("f", ["x"], ["y"])
    for broken in ("tensors", "ops"):
        told = msgspec.json.decode(msgspec.json.encode(graph.to_file()))
        told[broken][0]["meta"] = {"tile": {"at": {"i": [0, 1]}}}
        path = tmp_path / f"{broken}.json"
        path.write_bytes(msgspec.json.encode(told))
        with pytest.raises(pb.InputError, match=rf"{broken}\.json.*meta tile: .*`of`"):
            pb.Graph.load(path)
