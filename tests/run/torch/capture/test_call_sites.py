"""Where calls come from: modules, lines, parts of the step, and the names of parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import pebbler.torch as pt
from pebbler.run.torch.capture.captured import capture


class Block(nn.Module):
    def __init__(self, width: int, again: bool = False) -> None:
        super().__init__()
        self.norm, self.fc, self.again = nn.LayerNorm(width), nn.Linear(width, width), again

    def inside(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.fc(self.norm(x)))

    def forward(self, x: torch.Tensor) -> Any:
        return checkpoint(self.inside, x, use_reentrant=False) if self.again else self.inside(x)


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad.exp()


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return Doubling.apply(x)


def sites(model: nn.Module, *, optimizer: bool = True) -> list[tuple[str, str, str]]:
    """Return op, module and part of a training step."""
    rule = torch.optim.AdamW(model.parameters()) if optimizer else None

    def step(x: torch.Tensor) -> torch.Tensor:
        if rule is not None:
            rule.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        if rule is not None:
            rule.step()
        return loss

    graph = capture(step, torch.ones(3, 4)).graph
    return [(op.name.rpartition("_")[0], op.meta.get("module", "?"), op.meta.get("part", "?")) for op in graph.ops]


def test_calls_of_both_passes_belong_to_their_modules() -> None:
    found = sites(nn.Sequential(Block(4), Block(4)))
    assert ("addmm", "Block 0.fc", "forward") in found
    assert ("native_layer_norm", "Block 1.norm", "forward") in found
    assert ("relu", "Block 1", "forward") in found
    assert ("mm", "Block 0.fc", "backward") in found
    assert ("native_layer_norm_backward", "Block 1.norm", "backward") in found
    assert ("threshold_backward", "Block 0", "backward") in found
    parts = [part for name, _, part in found if name not in ("call_item",)]
    assert set(parts) == {"forward", "backward", "optimizer"}
    assert parts == sorted(parts, key=["forward", "backward", "optimizer"].index)
    assert all(module == "" for _, module, part in found if part == "optimizer")


def test_a_checkpointed_forward_pass_in_the_backward_pass_keeps_its_modules() -> None:
    found = sites(nn.Sequential(Block(4, again=True), Block(4)), optimizer=False)
    assert found.count(("addmm", "Block 0.fc", "forward")) == 1
    assert found.count(("addmm", "Block 0.fc", "backward")) == 1
    assert ("mm", "Block 0.fc", "backward") in found


def test_functions_with_their_own_backward_belong_to_the_module_that_applies_them() -> None:
    found = sites(nn.Sequential(nn.Linear(4, 4), Twice()), optimizer=False)
    assert ("mul", "Twice 1", "forward") in found
    assert ("exp", "Twice 1", "backward") in found


def test_a_backward_call_names_the_line_of_its_forward_call() -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.sigmoid(x * w)
        y.sum().backward()
        return y

    graph = capture(step, torch.ones(3), torch.ones(3, requires_grad=True)).graph
    lines = {op.name.rpartition("_")[0]: op.meta["line"] for op in graph.ops if "line" in op.meta}
    first = step.__code__.co_firstlineno
    assert lines["sigmoid"] == lines["sigmoid_backward"] == f"test_call_sites.py:{first + 1}"


def test_two_models_have_names_of_their_own() -> None:
    one, other = nn.Sequential(nn.Linear(4, 4)), Block(4)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = other(one(x)).sum()
        loss.backward()
        with torch.no_grad():
            for param in (*one.parameters(), *other.parameters()):
                param.sub_(param.grad)
                param.grad = None
        return loss

    graph = capture(step, torch.ones(3, 4)).graph
    labels = {tensor.meta.get("label") for tensor in graph.tensors}
    assert {"0.weight", "0.bias", "Block.fc.weight", "Block.norm.bias"} <= labels
    modules = {op.meta.get("module") for op in graph.ops}
    assert {"Linear 0", "Block.fc", "Block.norm", "Block"} <= modules


def test_optimizer_state_is_called_after_its_parameter() -> None:
    model = nn.Linear(2, 2)
    rule = torch.optim.Adam(model.parameters())

    def step(x: torch.Tensor) -> torch.Tensor:
        rule.zero_grad()
        loss = model(x).sum()
        loss.backward()
        rule.step()
        return loss

    captured = capture(step, torch.ones(1, 2))
    labels = {tensor.name: tensor.meta.get("label") for tensor in captured.graph.tensors}
    assert {"weight", "bias", "weight.exp_avg", "bias.exp_avg_sq"} <= set(labels.values())


def test_fused_ops_belong_to_the_module_that_holds_them() -> None:
    model = nn.Sequential(Block(4), Block(4))

    def step(x: torch.Tensor) -> torch.Tensor:
        return model(x).square().sum()

    planned = pt.plan(step, [torch.ones(3, 4)], device="cpu", kernels="compiled")
    metas = [op.meta for op in planned.plan.graph.ops]
    assert all(meta["part"] == "forward" for meta in metas if "part" in meta)
    assert {meta.get("module", "").split(".")[0] for meta in metas} <= {"Block 0", "Block 1", ""}
