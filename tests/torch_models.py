"""Small training steps of the kinds people have, each made anew from the same seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

__all__ = ["Training", "gpt2", "lstm", "mlp", "normed", "resnet"]


class Training:
    """A model, its optimizer, one step, and batches; `reset` takes it back to the start."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[..., torch.Tensor], batches: list[Any]
    ) -> None:
        self.model, self.optimizer, self.loss, self.batches = model, optimizer, loss, batches
        self.start = {name: value.clone() for name, value in model.state_dict().items()}
        self.rate = optimizer.param_groups[0]["lr"]

    def step(self, *batch: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(self.model, *batch)
        loss.backward()
        self.optimizer.step()
        return loss

    def reset(self) -> None:
        self.model.load_state_dict(self.start)
        self.model.zero_grad()
        self.optimizer.state.clear()
        self.optimizer.param_groups[0]["lr"] = self.rate
        torch.manual_seed(7)

    def tensors(self) -> list[torch.Tensor]:
        state = [value for values in self.optimizer.state.values() for value in values.values()]
        return [*self.model.state_dict().values(), *(value for value in state if isinstance(value, torch.Tensor))]

    def resident(self) -> int:
        """Bytes of everything that outlives a step."""
        tensors = [*self.tensors(), *self.batches[0]]
        return sum({t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}.values())


def _entropy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(x), y)


def _classes(shape: tuple[int, ...], classes: int) -> list[Any]:
    torch.manual_seed(1)
    return [(torch.randn(shape), torch.randint(classes, shape[:1])) for _ in range(4)]


def mlp(depth: int = 6, width: int = 32, batch: int = 512, **options: Any) -> Training:
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(width, 4))
    optimizer = torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, **options})
    return Training(model, optimizer, _entropy, _classes((batch, width), 4))


class _Feed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.widen, self.narrow = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(nn.functional.gelu(self.widen(self.norm(x))))


def normed(depth: int = 3, width: int = 64, batch: int = 256) -> Training:
    """A residual network with normalization and a wide head: most of its ops are there to be fused."""
    torch.manual_seed(0)
    model = nn.Sequential(*(_Feed(width) for _ in range(depth)), nn.LayerNorm(width), nn.Linear(width, 256))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, fused=True)
    return Training(model, optimizer, _entropy, _classes((batch, width), 256))


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.relu(self.norm(self.first(x)), inplace=True)
        return nn.functional.relu(x + self.norm2(self.second(y)))


def resnet() -> Training:
    torch.manual_seed(0)
    body = [_Residual(8) for _ in range(3)]
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, foreach=True)
    return Training(model, optimizer, _entropy, _classes((16, 3, 12, 12), 4))


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(16, 32), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        for word in x.unbind(1):
            state = self.cell(word, state)
        return self.head(state[0])


class _Fused(_Recurrent):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(16, 32, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0][:, -1])


def lstm(fused: bool = False) -> Training:
    torch.manual_seed(0)
    model = _Fused() if fused else _Recurrent()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    return Training(model, optimizer, _entropy, _classes((64, 12, 16), 4))


def gpt2() -> Training:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=64, n_positions=48, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0, use_cache=False
    )
    model = GPT2LMHeadModel(config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, foreach=True)
    torch.manual_seed(1)
    batches = [(torch.randint(64, (8, 48)),) for _ in range(4)]
    return Training(model, optimizer, lambda model, x: model(input_ids=x, labels=x).loss, batches)
