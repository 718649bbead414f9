"""Training steps of models for `torch_models`, full size and tiny: language, vision, convolutions with group norm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.plain_llama import PlainLlama
from benchmarks.torch_gpu import SMALL, Language, Size

__all__ = ["MODELS", "SIX", "Training", "adamw", "llama_of", "pictures"]

MLP_WIDTH = {1024: 2816, 1536: 4096, 2048: 8192}  # by the width of a Llama; twice the width elsewhere


@dataclass
class Training:
    """A model, its optimizer, and the loss of one batch for the model or a compiled form of it."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[Callable[..., Any]], torch.Tensor]
    clip: float | None = None

    @property
    def state_bytes(self) -> int:
        """What the optimizer will hold from the end of the first step on."""
        tensors = 2 if isinstance(self.optimizer, torch.optim.AdamW) else 1
        return tensors * sum(p.nbytes for p in self.model.parameters() if p.requires_grad)

    @property
    def resident_bytes(self) -> int:
        """What is held between two steps: weights, buffers, gradients, optimizer state."""
        held = [*self.model.parameters(), *self.model.buffers()]
        return sum(x.nbytes + (x.grad.nbytes if x.grad is not None else 0) for x in held) + self.state_bytes

    def step(self, run: Callable[..., Any]) -> torch.Tensor:
        """Do one whole training step."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(run)
        loss.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        # A copy: the scalar of `mse_loss` is in a storage as large as its operands, and whoever keeps losses would keep them all.
        return loss.detach().clone()


class Stage(nn.Module):
    """Two convolutions with group norm, on a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(2))
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for norm, layer in zip(self.norms, self.layers, strict=True):
            y = layer(functional.silu(norm(y)))
        return x + y


class UNet(nn.Module):
    """Down and up again with skips, as denoising models do."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [width << level for level in range(depth)]
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.down = nn.ModuleList(nn.Sequential(Stage(w), Stage(w)) for w in widths)
        self.shrink = nn.ModuleList(nn.Conv2d(w, 2 * w, 3, 2, 1) for w in widths[:-1])
        self.grow = nn.ModuleList(nn.Conv2d(2 * w, w, 1) for w in widths[:-1])
        self.up = nn.ModuleList(nn.Sequential(Stage(w), Stage(w)) for w in widths[:-1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, skips = self.first(x), []
        for level, stage in enumerate(self.down):
            x = stage(x)
            if level < len(self.shrink):
                skips.append(x)
                x = self.shrink[level](x)
        for level in reversed(range(len(self.shrink))):
            x = functional.interpolate(self.grow[level](x), scale_factor=2.0, mode="nearest") + skips[level]
            x = self.up[level](x)
        return self.last(x)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer that most models are trained with."""
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def _gpt(device: str, tiny: bool) -> Training:
    size = SMALL if tiny else Size()
    model = Language(size).to(device, torch.bfloat16)
    tokens, targets = (torch.randint(size.words, (size.batch, size.length), device=device) for _ in range(2))
    return Training(model, adamw(model), lambda run: run(tokens, targets))


def _llama(device: str, tiny: bool) -> Training:
    if tiny:
        return llama_of(device, 2, 32, words=256, shape=(2, 32))
    return llama_of(device, 12, 1536, words=32000, shape=(8, 2048))


def _deep_llama(device: str, tiny: bool) -> Training:
    """The model of pytorch issue 197838."""
    if tiny:
        return llama_of(device, 32, 32, words=256, shape=(2, 32))
    return llama_of(device, 32, 1024, words=32000, shape=(4, 1024))


def llama_of(device: str, layers: int, width: int, words: int, shape: tuple[int, int], plain: bool = False) -> Training:
    """Return a Llama of some size and a batch of random words; `plain` needs no transformers."""
    heads = max(2, width // 128)
    shared = next(count for count in range(max(1, heads // 3), 0, -1) if heads % count == 0)
    wide = MLP_WIDTH.get(width, 2 * width)
    if plain:
        made: nn.Module = PlainLlama(layers, width, wide, heads, shared, words)
    else:
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            hidden_size=width, intermediate_size=wide, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=shared, vocab_size=words, use_cache=False,
            max_position_embeddings=max(2048, shape[1]),
        )  # fmt: skip
        made = LlamaForCausalLM(config)
    model = made.to(device, torch.bfloat16)
    ids = torch.randint(words, shape, device=device)
    return Training(model, adamw(model), lambda run: run(input_ids=ids, labels=ids).loss, clip=1.0)


def _gpt2(device: str, tiny: bool) -> Training:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 256} if tiny else {"n_layer": 12, "n_embd": 768}
    config = GPT2Config(**{"n_head": 12, **sizes}, use_cache=False)
    model = GPT2LMHeadModel(config).to(device)
    ids = torch.randint(config.vocab_size, (2, 32) if tiny else (16, 1024), device=device)

    def loss(run: Callable[..., Any]) -> torch.Tensor:
        with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16):
            result: torch.Tensor = run(input_ids=ids, labels=ids).loss
        return result

    return Training(model.train(), adamw(model), loss)


def pictures(model: nn.Module, device: str, batch: int, side: int, classes: int, clip: float | None = None) -> Training:
    """Return a model of pictures with autocast, and a random batch; with `clip`, AdamW and gradients that are clipped."""
    model = model.to(device, memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    optimizer = adamw(model) if clip is not None else sgd
    x = torch.randn(batch, 3, side, side, device=device).to(memory_format=torch.channels_last)
    y = torch.randint(classes, (batch,), device=device)

    def loss(run: Callable[..., Any]) -> torch.Tensor:
        with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16):
            return functional.cross_entropy(run(x), y)

    return Training(model, optimizer, loss, clip)


def _resnet(device: str, tiny: bool) -> Training:
    from torchvision.models import ResNet, resnet50
    from torchvision.models.resnet import BasicBlock

    if tiny:
        return pictures(ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10), device, 4, 32, 10)
    return pictures(resnet50(), device, 192, 224, 1000)


def _vit(device: str, tiny: bool) -> Training:
    from torchvision.models import VisionTransformer, vit_b_16

    if tiny:
        return pictures(VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=10), device, 4, 32, 10)
    return pictures(vit_b_16(), device, 192, 224, 1000)


def _unet(device: str, tiny: bool) -> Training:
    model = UNet(8 if tiny else 128, 2 if tiny else 3).to(device, memory_format=torch.channels_last)
    shape = (2, 3, 16, 16) if tiny else (16, 3, 128, 128)
    x, y = (torch.randn(shape, device=device).to(memory_format=torch.channels_last) for _ in range(2))

    def loss(run: Callable[..., Any]) -> torch.Tensor:
        with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16):
            return functional.mse_loss(run(x), y)

    return Training(model, adamw(model), loss)


MODELS: dict[str, Callable[[str, bool], Training]] = {
    "gpt": _gpt, "llama": _llama, "gpt2": _gpt2, "resnet50": _resnet, "vit": _vit, "unet": _unet,
    "llama32": _deep_llama,
}  # fmt: skip
SIX = ("gpt", "llama", "gpt2", "resnet50", "vit", "unet")  # those that are measured if nothing is said
