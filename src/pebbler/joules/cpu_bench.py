"""Probes of a CPU core: reads and writes at growing footprints, and matrix products."""

from __future__ import annotations

import functools
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from pebbler.joules.kernels.memory_sweeps import read_again, write_again
from pebbler.joules.power import CallWork
from pebbler.joules.probes import Probe

__all__ = ["CpuBench"]

_LEAST, _MOST = 2**13, 2**28  # bytes of the sweeps
_LAUNCH = 0.004  # seconds that one launch takes about: short beside a counter's period
_WIDTH = 768  # of the products


class CpuBench:
    """This machine's CPU: one thread for memory, as many as numpy likes for products."""

    kind = "cpu"
    own_cache = "own cache"  # one thread sees every cache
    caches: tuple[str, ...] = ("L1", "L2", "L3", "L4")
    memory = "DRAM"

    def __init__(self, most: int = _MOST) -> None:
        self.name = _processor()
        self.notes = ["no kernel launches and no link: a CPU has neither"]
        self._most = most

    def probes(self) -> Sequence[Probe]:
        """Return reads at two footprints per doubling of memory, writes at one, and products of two dtypes."""
        found = []
        for size in _footprints(_LEAST, self._most):
            data = np.ones(size // 8)
            read = functools.partial(read_again, data)
            found.append(_repeated(f"read {_shown(size)}", read, size, reads=size, sweep="shared"))
        for size in _footprints(_LEAST, self._most)[::2]:
            write = functools.partial(write_again, np.ones(size // 8))
            found.append(_repeated(f"write {_shown(size)}", write, size, writes=size))
        for dtype in (np.float32, np.float64):
            a = np.random.default_rng(0).standard_normal((_WIDTH, _WIDTH)).astype(dtype)
            product = functools.partial(np.matmul, a, a.copy(), out=np.empty_like(a))
            name = np.dtype(dtype).name
            found.append(
                Probe(
                    f"product {name} {_WIDTH}", CallWork(product), reads=2 * a.nbytes, writes=a.nbytes, footprint=3 * a.nbytes,
                    flops=2.0 * _WIDTH**3, dtype=name,
                )
            )  # fmt: skip
        return found


def _repeated(
    name: str, sweep_rounds: Callable[[int], object], size: int, *, reads: int = 0, writes: int = 0, sweep: str = ""
) -> Probe:
    """Return a probe whose one run is as many rounds as fill a launch."""
    sweep_rounds(1)
    began = time.perf_counter()
    sweep_rounds(1)
    rounds = max(1, int(_LAUNCH / max(time.perf_counter() - began, 1e-7)))
    work = CallWork(functools.partial(sweep_rounds, rounds))
    return Probe(name, work, reads=rounds * reads, writes=rounds * writes, footprint=size, sweep=sweep)


def _footprints(least: int, most: int) -> list[int]:
    """Return sizes from `least` to `most`, two per doubling, in whole cache lines.

    >>> _footprints(8192, 20000)
    [8192, 11584, 16384]
    """
    steps = range(2 * (most // least).bit_length())
    sizes = (round(least * 2 ** (step / 2) / 64) * 64 for step in steps)
    return [size for size in sizes if size <= most]


def _shown(size: int) -> str:
    """Return a size as people read it.

    >>> _shown(8192), _shown(3 * 2**20)
    ('8 KiB', '3 MiB')
    """
    return f"{size / 2**20:.3g} MiB" if size >= 2**20 else f"{size / 2**10:.3g} KiB"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
