"""Graphs: building, checking, files."""

from __future__ import annotations

import pytest
from hypothesis import given

from pebbler.errors import InputError
from pebbler.game.graph import Graph, Op, Tensor
from strategies import graphs


def sgd() -> Graph:
    graph = Graph("sgd")
    graph.tensor("W", 6, kind="param", axes=[("out", 2), ("in", 3)])
    graph.tensor("x", 3, kind="input")
    graph.tensor("dW", 6)
    graph.op("grad", reads=["W", "x"], writes=["dW"], cost=6)
    graph.op("upd", reads=["W", "dW"], writes=["W"], once=True, meta={"lr": 0.1})
    return graph


def test_a_graph_survives_its_file(tmp_path):
    graph = sgd()
    graph.save(tmp_path / "g.json")
    loaded = Graph.load(tmp_path / "g.json")
    assert loaded == graph
    assert loaded.ops[1] == Op("upd", ("W", "dW"), ("W",), 0.0, once=True, meta={"lr": 0.1})
    assert loaded.tensors[0] == Tensor("W", 6, "param", axes=(("out", 2), ("in", 3)))


@given(graphs())
def test_random_graphs_survive_json(graph):
    import msgspec

    from pebbler.game.graph import GraphFile

    assert Graph.from_file(msgspec.json.decode(graph.to_json(), type=GraphFile)) == graph


def test_names_may_hold_anything_but_half_a_surrogate_pair(tmp_path):
    graph = Graph("<script>alert(1)</script>\n'\"")
    for name in ('"', "two\nlines", "<script>", "名前", "\u0000", " "):
        graph.tensor(name, 1, kind="input")
        graph.op(f"read {name}", reads=[name])
    graph.save(tmp_path / "g.json")
    assert Graph.load(tmp_path / "g.json") == graph
    with pytest.raises(InputError, match="not valid Unicode"):
        graph.tensor("\ud800", 1)
    with pytest.raises(InputError, match="not valid Unicode"):
        graph.op("\udfff", reads=["<script>"])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda g: g.tensor("W", 1), r"tensors\[3\] \(W\): the name is taken by tensors\[0\]"),
        (lambda g: g.tensor("t", -1), "tensor t: size: expected a whole number >= 0"),
        (lambda g: g.tensor("t", 1.5), "tensor t: size: expected a whole number, got a number"),
        (lambda g: g.tensor("t", 2**49), "tensor t: size: expected a whole number <="),
        (lambda g: g.tensor("", 1), "name: expected text of length >= 1"),
        (lambda g: g.tensor("t", 1, kind="weight"), "kind: weight is not one of input, output, param, temp"),
        (lambda g: g.tensor("t", 5, axes=[("a", 2), ("b", 3)]), "axes multiply to 6, but size is 5"),
        (lambda g: g.tensor("t", 4, axes=[("a", 2), ("a", 2)]), "an axis is named twice"),
        (lambda g: g.tensor("t", 0, axes=[("a", 0)]), r"axes\[0\]\[1\]: expected a whole number >= 1"),
        (lambda g: g.op("grad", reads=["W"]), r"ops\[2\] \(grad\): the name is taken by ops\[0\]"),
        (
            lambda g: g.op("f", reads=["dw"]),
            r"ops\[2\] \(f\): reads dw, which no tensor declares \(did you mean dW or W\?\)",
        ),
        (lambda g: g.op("f", writes=["q"]), "writes q, which no tensor declares"),
        (lambda g: g.op("f", writes=["W", "W"]), "writes the same tensor twice"),
        (lambda g: g.op("f"), "reads and writes nothing"),
        (lambda g: g.op("f", reads="W"), "reads must be a list of tensor names, got the string 'W'"),
        (lambda g: g.op("f", reads=["W"], cost=-1), "cost: expected a number >= 0"),
        (lambda g: g.op("f", reads=["W"], cost=float("nan")), "cost: expected a number >= 0"),
        (lambda g: g.op("f", reads=["W"], cost=float("inf")), "cost must be a number from 0 to 1e"),
    ],
)
def test_wrong_parts_are_refused_where_they_are(build, message):
    with pytest.raises(InputError, match=message):
        build(sgd())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda g: (g.tensor("t", 1), g.op("f", reads=["t"])), r"ops\[2\] \(f\): reads t before any op writes it"),
        (lambda g: g.tensor("t", 1, overwrites="q"), r"tensors\[3\] \(t\): overwrites q, which no tensor declares"),
        (lambda g: g.tensor("t", 1, overwrites="t"), r"tensors\[3\] \(t\): overwrites itself through t"),
        (
            lambda g: (g.tensor("t", 1, overwrites="u"), g.tensor("u", 1, overwrites="t")),
            r"tensors\[3\] \(t\): overwrites itself through t",
        ),
        (lambda g: g.tensor("t", 7, overwrites="W"), "size 7 does not fit in the storage of W, 6"),
        (lambda g: g.tensor("t", 1, kind="output"), "is an output that no op writes"),
        (lambda g: g.tensor("t", 1, kind="param", overwrites="W"), "starts with a value in storage that W fills"),
        (
            lambda g: (g.tensor("n", 6, overwrites="W"), g.op("f", writes=["n"]), g.op("h", reads=["W"])),
            r"ops\[3\] \(h\): reads W, which f has overwritten",
        ),
        (
            lambda g: (g.tensor("n", 6, overwrites="W"), g.op("f", writes=["W", "n"])),
            "writes the storage of n twice",
        ),
        (
            lambda g: (
                g.tensor("n", 6, kind="output", overwrites="W"),
                g.op("f", writes=["n"]),
                g.op("h", writes=["W"]),
            ),
            "is an output that h overwrites for good",
        ),
    ],
)
def test_programs_without_a_meaning_are_refused(build, message):
    graph = sgd()
    build(graph)
    with pytest.raises(InputError, match=message):
        _ = graph.dataflow


def test_sums_of_sizes_stay_within_64_bits():
    graph = Graph("huge")
    for i in range(5000):
        graph.tensor(f"t{i}", 2**48, kind="input")
    with pytest.raises(InputError, match="all values together have more than"):
        _ = graph.dataflow


def test_a_graph_that_grows_forgets_what_it_derived():
    graph = sgd()
    assert graph.dataflow.ops == 2
    graph.op("again", reads=["dW"])
    assert graph.dataflow.ops == 3


def test_updates_of_params_make_steady_the_default():
    graph = sgd()
    assert graph.updates_params
    functional = Graph("f")
    functional.tensor("W", 1, kind="param")
    functional.tensor("W_new", 1, kind="output", overwrites="W")
    functional.op("upd", reads=["W"], writes=["W_new"])
    assert functional.updates_params
    forward = Graph("forward")
    forward.tensor("W", 1, kind="param")
    forward.tensor("y", 1, kind="output")
    forward.op("f", reads=["W"], writes=["y"])
    assert not forward.updates_params


def test_a_message_about_a_large_graph_stays_short():
    graph = Graph("large")
    for i in range(5000):
        graph.tensor(f"activation{i}", 1, kind="input")
    with pytest.raises(InputError, match=r"and 4,988 more\)") as caught:
        graph.op("f", reads=["q"])
    assert len(str(caught.value)) < 400
    with pytest.raises(InputError, match="did you mean"):
        graph.op("f", reads=["activation50000"])
