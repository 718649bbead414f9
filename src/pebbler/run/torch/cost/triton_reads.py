"""A Triton kernel that only reads memory, for finding the cache levels of a GPU."""

from __future__ import annotations

from typing import Any

try:
    import triton
    import triton.language as tl
except ImportError:  # it comes with PyTorch for GPUs
    triton = None

__all__ = ["read_chunks"]


def _read_chunks(data, out, chunk, chunks, shift, rounds, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Read one of `chunks` chunks per round, `shift` further on each time; the sum keeps the reads from being left out."""
    program = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for step in range(rounds):
        base = data + ((program + step * shift) % chunks) * chunk
        for begin in range(0, chunk, BLOCK):
            total += tl.load(base + begin + offsets)
    tl.store(out + program * BLOCK + offsets, total)


read_chunks: Any = None if triton is None else triton.jit(_read_chunks)
