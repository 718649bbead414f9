"""Probes: small kernels with known bytes, flops and launches, whose measured joules and seconds give the prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pebbler.joules.power import Work

__all__ = ["Bench", "Probe"]


@dataclass(frozen=True)
class Probe:
    """One piece of work and what one run of it does; `footprint` is how many bytes it touches again and again.

    `sweep` says which sweep over footprints it belongs to: `shared` (all cores go through the same memory) or `private` (each
    core stays in its own part, which is how a cache per core shows); "" for none.
    """

    name: str
    work: Work = field(repr=False)
    reads: int = 0
    writes: int = 0
    footprint: int = 0
    flops: float = 0.0
    dtype: str = ""
    launches: int = 0
    link_bytes: int = 0
    sweep: str = ""


class Bench(Protocol):
    """A device that can be probed."""

    name: str  # as its maker calls it
    kind: str  # cuda or cpu
    own_cache: str  # the name of a cache that only one core sees
    caches: tuple[str, ...]  # names of those that all see, nearest first
    memory: str  # and of the last one
    notes: list[str]  # what could not be probed, and why

    def probes(self) -> Sequence[Probe]:
        """Return the work items, in order."""
