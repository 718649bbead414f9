"""CUDA's caching allocator while a plan is recorded: blocks as large as what is asked for.

By default it hands out a free block whole where less than 1 MiB of it would remain. How much that comes to depends on what was
freed before, so it differs from step to step, and a plan that holds hundreds of values at once cannot count it. With segments that
grow, blocks are cut to multiples of 512 bytes, which plans do count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["fine_blocks"]

_within: list[str] = []  # whether blocks are cut to size already


@contextmanager
def fine_blocks(device: str) -> Iterator[None]:
    """Cut blocks to size; where the environment configures the allocator, it stays as it is.

    >>> with fine_blocks("cpu"):
    ...     pass
    """
    configured = any(os.environ.get(name) for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
    if configured or _within or not device.startswith("cuda"):
        yield
        return
    _set("expandable_segments:True")
    _within.append(device)
    try:
        yield
    finally:
        _within.clear()
        _set("expandable_segments:False")


def _set(settings: str) -> None:
    torch._C._accelerator_setAllocatorSettings(settings)
