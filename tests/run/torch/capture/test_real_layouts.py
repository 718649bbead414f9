"""Results are recorded with the strides that kernels really give them, so that views of them are the right ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import pebbler.torch as pt
from pebbler.run.torch.capture.captured import capture

_OPERATORS = {
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "softmax": lambda x: functional.softmax(x, dim=1),
    "cumsum": lambda x: x.cumsum(-1),
    "pool": lambda x: functional.adaptive_avg_pool2d(x, 2),
    "max_pool": lambda x: functional.max_pool2d(x, 2, padding=1),
    "conv": lambda x: functional.conv2d(x, torch.ones(3, x.shape[1], 1, 1)),
    "group_norm": lambda x: functional.group_norm(x, 1),
    "batch_norm": lambda x: functional.batch_norm(x, None, None, training=True),
    "matmul": lambda x: x @ x.transpose(-1, -2),
    "interpolate": lambda x: functional.interpolate(x, scale_factor=2.0),
    "pad": lambda x: functional.pad(x, (1, 1)),
    "roll": lambda x: x.roll(1, 2),
    "flip": lambda x: x.flip(1),
    "cat": lambda x: torch.cat([x, x + 1], 1),
    "sum": lambda x: x.sum(1, keepdim=True) * x,
    "sort": lambda x: x.sort(1).values,
    "attention": lambda x: functional.scaled_dot_product_attention(x, x, x),
    "index": lambda x: x.index_select(1, torch.tensor([1, 0])),
    "copy": lambda x: x.contiguous(memory_format=torch.channels_last),
}
_LAYOUTS = st.permutations([0, 1, 2, 3])


@given(st.data())
@settings(max_examples=8)
def test_recorded_strides_are_those_of_the_kernels(data: st.DataObject) -> None:
    _compare_strides(data)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=400)
def test_many_recorded_strides_are_those_of_the_kernels(data: st.DataObject) -> None:
    _compare_strides(data)


def _compare_strides(data: st.DataObject) -> None:
    order, names = data.draw(_LAYOUTS), data.draw(st.lists(st.sampled_from(sorted(_OPERATORS)), min_size=1, max_size=3))
    orders = [data.draw(_LAYOUTS) for _ in names]
    x = torch.randn(2, 3, 4, 5).permute(order)

    def step(x: torch.Tensor) -> list[torch.Tensor]:
        first = y = x.detach().requires_grad_()
        made = []
        for name, turned in zip(names, orders, strict=True):
            y = _OPERATORS[name](y)
            made.append(y)
            y = y.permute(turned)
        return [*made, *torch.autograd.grad((y * y).sum(), first)]

    real = [(tuple(y.shape), y.stride()) for y in step(x)]
    record = capture(step, x).phases[-1].record
    recorded = [record.tensors[ref.number] for ref in record.result]
    assert [(info.shape, info.stride) for info in recorded] == real


class SwinHead(nn.Module):
    """What follows the last stage of a Swin transformer: a layer norm over channels that have been moved to the end."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(3, 8, 2), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.gelu(self.norm(self.conv(x).permute(0, 2, 3, 1)))
        return self.last(functional.adaptive_avg_pool2d(y.permute(0, 3, 1, 2), 1).flatten(1))


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_layer_norm_over_moved_channels_trains_alike(channels_last: bool) -> None:
    losses: list[list[float]] = []
    for planned in (False, True):
        torch.manual_seed(0)
        model = SwinHead()
        x = torch.randn(4, 3, 9, 9)
        if channels_last:
            model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        optimizer = torch.optim.AdamW(model.parameters())

        def step(x: torch.Tensor, model: nn.Module = model, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = (model(x) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        run = pt.step(step, strict=True) if planned else step
        losses.append([run(x).item() for _ in range(5)])
    assert losses[0] == losses[1]
