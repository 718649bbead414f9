"""Training steps of real models for `energy_truth`: `make_model(name, device)` returns the model, its step and a batch.

Random weights and random data. `step(run, *batch)` is one whole training step, where `run` is the model or a compiled form of it.
With `small` every model is tiny, for a try on a CPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from benchmarks.torch_gpu import SMALL, Language, Size
from benchmarks.torch_model_steps import UNet

__all__ = ["MODELS", "make_model"]

Made = tuple[torch.nn.Module, Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]


def _autocast(device: str) -> contextlib.AbstractContextManager[Any]:
    return torch.autocast(device.split(":")[0], dtype=torch.bfloat16)


def _llama(device: str, small: bool) -> Made:
    """HF Llama with grouped queries, bf16, gradient clipping, fused AdamW."""
    from transformers import LlamaConfig, LlamaForCausalLM

    width, layers, words, shape = (64, 2, 128, (2, 32)) if small else (1536, 12, 32000, (8, 2048))
    config = LlamaConfig(
        hidden_size=width, intermediate_size=width * 8 // 3, num_hidden_layers=layers, num_attention_heads=width // 128 or 2,
        num_key_value_heads=4 if not small else 1, vocab_size=words, use_cache=False, max_position_embeddings=shape[1],
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(words, shape, device=device)

    def step(run: Any, ids: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = run(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return model, step, (ids,)


def _labelled(model: torch.nn.Module, words: int, shape: tuple[int, int], device: str) -> Made:
    """A language model of transformers under autocast, fused AdamW."""
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(words, shape, device=device)

    def step(run: Any, ids: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with _autocast(device):
            loss = run(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        return loss

    return model, step, (ids,)


def _gpt2(device: str, small: bool) -> Made:
    """HF GPT-2 with dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    size = {
        "n_layer": 2,
        "n_embd": 48,
        "n_head": 4,
        "vocab_size": 128,
        "n_positions": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    config = GPT2Config(use_cache=False, **(size if small else {"n_layer": 12, "n_embd": 768, "n_head": 12}))
    words, shape = (128, (2, 32)) if small else (50257, (16, 1024))
    return _labelled(GPT2LMHeadModel(config), words, shape, device)


def _bert(device: str, small: bool) -> Made:
    """HF BERT-base with dropout, masked language model."""
    from transformers import BertConfig, BertForMaskedLM

    size = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "vocab_size": 128,
    }
    words, shape = (128, (2, 32)) if small else (30522, (64, 512))
    return _labelled(BertForMaskedLM(BertConfig(**(size if small else {}))), words, shape, device)


def _image(model: torch.nn.Module, device: str, batch: int, pixels: int, classes: int) -> Made:
    """An image classifier under autocast, channels last, SGD with momentum."""
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    x = torch.randn(batch, 3, pixels, pixels, device=device).to(memory_format=torch.channels_last)
    y = torch.randint(classes, (batch,), device=device)

    def step(run: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with _autocast(device):
            loss = functional.cross_entropy(run(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step, (x, y)


def _resnet50(device: str, small: bool) -> Made:
    """torchvision ResNet-50."""
    import torchvision

    return _image(torchvision.models.resnet50(), device, *((2, 32, 1000) if small else (192, 224, 1000)))


def _vit(device: str, small: bool) -> Made:
    """torchvision ViT-B/16."""
    import torchvision

    return _image(torchvision.models.vit_b_16(), device, *((1, 224, 1000) if small else (192, 224, 1000)))


def _gpt(device: str, small: bool) -> Made:
    """The GPT of `torch_gpu`, bf16, fused AdamW."""
    size = SMALL if small else Size()
    model = Language(size).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batch = tuple(torch.randint(size.words, (size.batch, size.length), device=device) for _ in range(2))

    def step(run: Any, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss: torch.Tensor = run(tokens, targets)
        loss.backward()
        optimizer.step()
        return loss

    return model, step, batch


def _unet(device: str, small: bool) -> Made:
    """The U-Net of `torch_models`: convolutions and group norms under autocast, channels last, fused AdamW."""
    width, depth, shape = (8, 2, (2, 3, 16, 16)) if small else (128, 3, (16, 3, 128, 128))
    model = UNet(width, depth).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    noisy, clean = (torch.randn(shape, device=device).to(memory_format=torch.channels_last) for _ in range(2))

    def step(run: Any, noisy: torch.Tensor, clean: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with _autocast(device):
            loss = functional.mse_loss(run(noisy), clean)
        loss.backward()
        optimizer.step()
        return loss

    return model, step, (noisy, clean)


MODELS = {
    "resnet50": _resnet50, "gpt2": _gpt2, "gpt": _gpt, "llama": _llama, "vit": _vit, "unet": _unet, "bert": _bert,
}  # fmt: skip


def make_model(name: str, device: str, *, small: bool = False) -> Made:
    """Return a fresh model, its step and a batch, all from the same seed."""
    if name not in MODELS:
        raise SystemExit(f"unknown model {name}: {', '.join(MODELS)}")
    torch.manual_seed(0)
    return MODELS[name](device, small)
