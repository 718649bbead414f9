"""Training steps of further models for `torch_models`: what nobody here had planned for when the planner was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.torch_model_steps import Training, adamw, llama_of, pictures

__all__ = ["MORE"]


def _cast(device: str) -> torch.autocast:
    return torch.autocast(device.partition(":")[0], dtype=torch.bfloat16)


def _t5(device: str, tiny: bool) -> Training:
    """An encoder and a decoder with dropout and relative positions: attention is computed in parts, none of them a kernel."""
    from transformers import T5Config, T5ForConditionalGeneration

    width, layers, words, shape = (32, 1, 256, (2, 16)) if tiny else (768, 8, 32128, (16, 512))
    config = T5Config(
        d_model=width, d_kv=width // (2 if tiny else 12), d_ff=4 * width, num_layers=layers, num_heads=2 if tiny else 12,
        vocab_size=words, dropout_rate=0.1, decoder_start_token_id=0, use_cache=False,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config).to(device, torch.bfloat16).train()
    ids, labels = (torch.randint(words, shape, device=device) for _ in range(2))
    return Training(model, adamw(model), lambda run: run(input_ids=ids, labels=labels).loss)


def _swin(device: str, tiny: bool) -> Training:
    from torchvision.models import swin_t
    from torchvision.models.swin_transformer import SwinTransformer

    model = SwinTransformer([4, 4], 16, [1, 1], [2, 2], [4, 4], num_classes=10) if tiny else swin_t()
    return pictures(model, device, *((4, 32, 10) if tiny else (128, 224, 1000)), clip=1.0)


def _convnext(device: str, tiny: bool) -> Training:
    from torchvision.models import convnext_small
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    small = [CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 1)]
    model = ConvNeXt(small, num_classes=10) if tiny else convnext_small()
    return pictures(model, device, *((4, 32, 10) if tiny else (96, 224, 1000)), clip=1.0)


def _whisper(device: str, tiny: bool) -> Training:
    """Whisper-small's shape, with dropout; transformers' code breaks its graph."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    width, layers, words, frames, length = (32, 1, 256, 16, 8) if tiny else (768, 12, 51865, 1500, 448)
    config = WhisperConfig(
        d_model=width, encoder_layers=layers, decoder_layers=layers, encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width, encoder_attention_heads=width // (16 if tiny else 64),
        decoder_attention_heads=width // (16 if tiny else 64), vocab_size=words, dropout=0.1, use_cache=False,
        max_source_positions=frames, max_target_positions=length, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, begin_suppress_tokens=None,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config).to(device).train()
    batch = 2 if tiny else 12
    sound = torch.randn(batch, config.num_mel_bins, 2 * frames, device=device)
    labels = torch.randint(3, words, (batch, length), device=device)

    def loss(run: Callable[..., Any]) -> torch.Tensor:
        with _cast(device):
            result: torch.Tensor = run(input_features=sound, labels=labels).loss
        return result

    return Training(model, adamw(model), loss)


def _masked(device: str, tiny: bool) -> Training:
    """A masked language model on padded rows."""
    from transformers import BertConfig, BertForMaskedLM

    small = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "vocab_size": 256,
    }
    config = BertConfig(**(small if tiny else {}))
    model = BertForMaskedLM(config).to(device).train()
    rows, length = (2, 16) if tiny else (48, 512)
    ids = torch.randint(config.vocab_size, (rows, length), device=device)
    lengths = torch.randint(length // 2, length + 1, (rows, 1), device=device)
    mask = (torch.arange(length, device=device) < lengths).long()
    labels = torch.where((torch.rand(rows, length, device=device) < 0.15) & (mask > 0), ids, -100)

    def loss(run: Callable[..., Any]) -> torch.Tensor:
        with _cast(device):
            result: torch.Tensor = run(input_ids=ids, attention_mask=mask, labels=labels).loss
        return result

    return Training(model, adamw(model), loss)


class Adapted(nn.Module):
    """A frozen linear layer and a product of two narrow ones that is trained."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer
        weight = layer.weight
        self.down = nn.Parameter(torch.randn(rank, weight.shape[1], device=weight.device, dtype=weight.dtype) / rank)
        self.up = nn.Parameter(torch.zeros(weight.shape[0], rank, device=weight.device, dtype=weight.dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + (x @ self.down.t()) @ self.up.t()


def _adapters(device: str, tiny: bool) -> Training:
    """A Llama whose weights are frozen, with adapters in its attention."""
    training = llama_of(device, *((2, 32, 256, (2, 32)) if tiny else (16, 2048, 32000, (8, 2048))))
    model = training.model.requires_grad_(False)
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(layer.self_attn, name, Adapted(getattr(layer.self_attn, name), 4 if tiny else 16))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    return Training(model, optimizer, training.loss, clip=1.0)


def _decoder(device: str, tiny: bool) -> Training:
    """A decoder of a billion weights with a large vocabulary and long rows."""
    return llama_of(device, *((2, 32, 512, (1, 64)) if tiny else (16, 2048, 128256, (4, 4096))))


MORE: dict[str, Callable[[str, bool], Training]] = {
    "t5": _t5, "swin": _swin, "convnext": _convnext, "whisper": _whisper, "masked": _masked, "adapters": _adapters,
    "decoder": _decoder,
}  # fmt: skip
