"""Graphs of exported programs: operators are ops, views are none, buffers are written at the end."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import pebbler.torch as pt
from pebbler import InputError, check, solve, verify

# Of torch's own, in copying a program that it decomposes.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")


class Counted(nn.Module):
    """A layer, a view of its result, a result in two parts, and a buffer that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 6)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> Any:
        self.count.add_(1)
        most, where = self.layer(x).view(2, 2, 6).max(dim=2)
        return most.t() * self.count[0], where


def exported() -> torch.export.ExportedProgram:
    return torch.export.export(Counted(), (torch.ones(4, 8),)).run_decompositions({})


def test_operators_views_parts_and_updates() -> None:
    graph = pt.from_export(exported(), name="counted")
    kinds = {tensor.name: (tensor.kind, tensor.size) for tensor in graph.tensors}
    assert kinds["layer.weight"] == ("param", 6 * 8 * 4)
    assert kinds["count"] == ("param", 12)
    assert kinds["x"] == ("input", 4 * 8 * 4)
    assert {name for name, (kind, _) in kinds.items() if kind == "output"} == {"mul", "max_1.1"}
    reads = {op.name: op.reads for op in graph.ops}
    (product,) = (op for op in graph.ops if op.meta.get("operator") == "aten.mul.Tensor")
    assert {"max_1.0"} < set(product.reads)  # through the transpose
    assert not any("view" in name or "getitem" in name or "permute" in name for name in reads)
    assert graph.ops[-1].name == "update count"
    assert graph.ops[-1].writes == ("count",)
    assert graph.updates_params


def test_a_plan_of_an_exported_program_is_legal_and_computes_the_same() -> None:
    graph = pt.from_export(exported())
    plan = solve(graph, "laptop", time_limit=1)
    assert check(plan).legal
    assert verify(plan).identical


def test_random_operators_run_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    graph = pt.from_export(torch.export.export(model, (torch.ones(2, 4),)))
    assert {op.name: op.once for op in graph.ops} == {"linear": False, "dropout": True}


def test_what_is_no_exported_program_is_refused() -> None:
    with pytest.raises(InputError, match=r"expected the result of torch\.export\.export, got Linear"):
        pt.from_export(nn.Linear(2, 2))  # type: ignore[arg-type]
    batch = torch.export.Dim("batch")
    dynamic = torch.export.export(nn.Linear(2, 2), (torch.ones(4, 2),), dynamic_shapes=({0: batch},))
    with pytest.raises(InputError, match="is not fixed; export without dynamic shapes"):
        pt.from_export(dynamic)
    changing = torch.export.export(Counted(), (torch.ones(4, 8),))
    with pytest.raises(
        InputError, match=r"add_\.Tensor changes its operand in place; pass program\.run_decompositions\(\)"
    ):
        pt.from_export(changing)
