"""A Llama in plain PyTorch, of transformers' sizes and call: for machines where that package is missing."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

__all__ = ["PlainLlama"]

_BASE = 10_000.0  # of the rotations' wave lengths
_IGNORED = -100


class Answer(NamedTuple):
    """The loss and the logits."""

    loss: torch.Tensor
    logits: torch.Tensor


class GatedLayer(nn.Module):
    """Attention with fewer keys than queries and a gated MLP, both on the residual stream."""

    def __init__(self, width: int, wide: int, heads: int, shared: int) -> None:
        super().__init__()
        self.heads, self.shared, self.head = heads, shared, width // heads
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.merge = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(width, shared * self.head, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, wide, bias=False) for _ in range(2))
        self.down = nn.Linear(wide, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        normed, (rows, length, width) = self.before(x), x.shape
        query = self.query(normed).view(rows, length, self.heads, self.head).transpose(1, 2)
        key, value = (
            layer(normed).view(rows, length, self.shared, self.head).transpose(1, 2) for layer in (self.key, self.value)
        )
        query, key = _rotated(query, cos, sin), _rotated(key, cos, sin)
        # Nothing of length x length: no mask is made, and the kernels keep none.
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + self.merge(mixed.transpose(1, 2).reshape(rows, length, width))
        normed = self.between(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class PlainLlama(nn.Module):
    """Embeddings, layers, a head and its loss; `gradient_checkpointing_enable` as of transformers' models."""

    def __init__(self, layers: int, width: int, wide: int, heads: int, shared: int, words: int) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.layers = nn.ModuleList(GatedLayer(width, wide, heads, shared) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)
        self.checkpointed = False
        head = width // heads
        waves = _BASE ** (-torch.arange(0, head, 2, dtype=torch.float32) / head)
        self.register_buffer("waves", waves, persistent=False)

    def gradient_checkpointing_enable(self) -> None:
        """Have every layer computed again in backward."""
        self.checkpointed = True

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Answer:
        """Return the loss of every next word."""
        x = self.table(input_ids)
        places = torch.arange(input_ids.shape[1], device=x.device, dtype=torch.float32)
        angles = places[:, None] * self.waves.float()
        cos, sin = (torch.cat((wave, wave), -1).to(x.dtype) for wave in (angles.cos(), angles.sin()))
        for layer in self.layers:
            x = checkpoint(layer, x, cos, sin, use_reentrant=False) if self.checkpointed else layer(x, cos, sin)
        logits = self.head(self.norm(x))
        wanted = functional.pad(labels, (0, 1), value=_IGNORED)[:, 1:].reshape(-1)
        loss = functional.cross_entropy(logits.float().view(-1, logits.shape[-1]), wanted, ignore_index=_IGNORED)
        return Answer(loss, logits)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin
