"""Calls in a program that let a recomputed random op draw the same numbers again."""

from __future__ import annotations

import torch

__all__ = ["drawn_so_far", "restore_generator", "save_generator"]


def save_generator(device: str) -> torch.Tensor:
    """Return the state of the default random generator of a device."""
    return torch.cuda.get_rng_state(device) if device.startswith("cuda") else torch.get_rng_state()


def restore_generator(device: str, state: torch.Tensor) -> None:
    """Set the state of the default random generator of a device."""
    if device.startswith("cuda"):
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


def drawn_so_far(state: torch.Tensor) -> int:
    """Return the offset that a CUDA generator has reached; the state is its seed and that, in eight bytes each.

    >>> drawn_so_far(torch.tensor([7, 0, 0, 0, 0, 0, 0, 0, 12, 1, 0, 0, 0, 0, 0, 0], dtype=torch.uint8))
    268
    """
    return int.from_bytes(bytes(state[8:16].tolist()), "little")
