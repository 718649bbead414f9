"""The attention block: its step against plain numpy, and in pieces."""

from __future__ import annotations

import numpy as np
import pytest

import pebbler as pb
from pebbler.game.transform import fusable, fuse, tile
from pebbler.run.numbers import execute, verify
from pebbler.workloads.attention import LEARNING, attention

MEMORY = pb.Machine("memory", "float32", (pb.Level("memory", 0, 0),), operands="any")


def forward(values: dict[str, np.ndarray]) -> float:
    """The loss, written out with einsum."""
    q = np.einsum("tw,hdw->thd", values["x"], values["Wq"])
    k = np.einsum("kw,hdw->khd", values["context"], values["Wk"])
    v = np.einsum("kw,hdw->khd", values["context"], values["Wv"])
    scores = np.einsum("thd,khd->htk", q, k) / np.sqrt(q.shape[2])
    weight = np.exp(scores) / np.exp(scores).sum(axis=2, keepdims=True)
    y = np.einsum("htk,khd,ohd->to", weight, v, values["Wo"])
    return float(((y - values["target"]) ** 2).sum())


def start_values(graph: pb.Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    kept = [tensor for tensor in graph.tensors if tensor.kind in ("input", "param")]
    return {tensor.name: rng.normal(size=[extent for _, extent in tensor.axes]) for tensor in kept}


def test_the_step_goes_down_the_slope_of_the_loss() -> None:
    graph = attention(tokens=3, width=4, heads=2)
    values = start_values(graph)
    result = execute(pb.Plan.in_order(graph, MEMORY), values)
    assert float(result["loss"]) == pytest.approx(forward(values), rel=1e-12)
    lr, wd = LEARNING["lr"], LEARNING["wd"]
    for name in ("Wq", "Wk", "Wv", "Wo"):
        slope = (values[name] - result[name]) / lr - wd * values[name]
        for at in np.ndindex(*values[name].shape):
            shifted = [{**values, name: values[name].copy()} for _ in range(2)]
            shifted[0][name][at] += 1e-6
            shifted[1][name][at] -= 1e-6
            numeric = (forward(shifted[0]) - forward(shifted[1])) / 2e-6
            assert slope[at] * 3 == pytest.approx(numeric, rel=1e-5, abs=1e-6)  # the mean over 3 tokens


@pytest.mark.parametrize("axes", ["tokens", "keys", "heads", "tokens heads", "width out", "depth keys tokens"])
def test_tiles_compute_the_same(axes: str) -> None:
    graph = source = attention(tokens=5, width=6, heads=2)
    for temp in ("dWq", "dWk"):
        if "tokens" not in axes and "keys" not in axes:
            graph = fuse(graph, temp)
    for axis in axes.split():
        graph = tile(graph, axis, 2 if axis != "heads" else 1)
    plan = pb.Plan.in_order(graph, pb.machine("notes"), source=source)
    assert pb.check(plan).legal
    assert verify(plan).largest_difference <= 1e-12


def test_what_can_be_fused() -> None:
    assert fusable(attention()) == ["dWo", "dWq", "dWk", "dWv"]


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(pb.InputError, match="heads must divide width"):
        pb.workloads.get("attention:width=10,heads=4")
