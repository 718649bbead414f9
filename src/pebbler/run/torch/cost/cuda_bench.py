"""Probes of an NVIDIA GPU: reads and copies at growing footprints, matrix products, launches, the link to the host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from pebbler.joules.probes import Probe
from pebbler.run.torch.cost.cuda_work import CudaWork
from pebbler.run.torch.cost.triton_reads import read_chunks

__all__ = ["CudaBench", "device_uuid"]

_KIB, _MIB = 2**10, 2**20
_COPIES = (
    8,
    12,
    16,
    20,
    24,
    28,
    32,
    40,
    48,
    64,
    96,
    192,
    384,
    768,
    1536,
)  # MiB touched by copies, half read and half written
_READS = (8, 16, 24, 33, 41, 50, 58, 66, 99, 198, 396, 1024)  # MiB read by all cores in turn
_OWN = (32, 48, 64, 96, 128, 160, 192, 224, 256, 384, 512)  # KiB that each core reads again and again
_PRODUCTS = {"bfloat16": (4096, 8192), "float16": (8192,), "float32": (4096,)}
_READ_BYTES = 4 * 2**30  # by one run of the reading kernel
_LINK = 256 * _MIB
_SPIN = 2_000_000  # cycles


def device_uuid(device: str) -> str:
    """Return the UUID of a GPU as NVML writes it."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


class CudaBench:
    """One GPU. Its first-level caches show only where Triton can be used; `notes` says when it cannot."""

    kind = "cuda"
    own_cache = "L1"
    caches: tuple[str, ...] = ("L2", "L2 far")  # in some GPUs the L2 has two halves, and the other one is further away
    memory = "HBM"

    def __init__(self, device: str) -> None:
        self.device = str(torch.device(device))
        properties = torch.cuda.get_device_properties(self.device)
        self.name, self._cores = str(properties.name), int(properties.multi_processor_count)
        self.notes: list[str] = ["registers are not told apart: no probe of ours reads them alone"]

    def probes(self) -> Sequence[Probe]:
        """Return all probes; each keeps its own tensors until it has run."""
        found = [self._spin(), self._launches(), *self._products(), *self._links()]
        copies = [self._copy(size * _MIB) for size in _COPIES]
        try:
            reads = self._reads()
        except Exception as error:  # whatever a compiler raises that is missing, too old or too new
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            self.notes.append(f"first-level caches and reads alone are not told apart: Triton: {reason}")
            return [*found, *copies]
        return [*found, *(replace(copy, sweep="") for copy in copies), *reads]

    def _work(self, *calls: Callable[[], object]) -> CudaWork:
        return CudaWork(calls, self.device)

    def _spin(self) -> Probe:
        """Return one thread that counts cycles: the GPU is awake, and does nothing."""
        return Probe("one thread spins", self._work(functools.partial(torch.cuda._sleep, _SPIN)))

    def _launches(self) -> Probe:
        one = torch.ones(1, device=self.device)
        return Probe("launches", self._work(functools.partial(one.add_, 1.0)), launches=1)

    def _products(self) -> list[Probe]:
        found = []
        for name, widths in _PRODUCTS.items():
            for width in widths:
                a, b, out = (torch.randn(width, width, device=self.device).to(getattr(torch, name)) for _ in range(3))
                work = self._work(functools.partial(torch.mm, a, b, out=out))
                found.append(
                    Probe(
                        f"product {name} {width}", work, reads=2 * a.nbytes, writes=a.nbytes, footprint=3 * a.nbytes,
                        flops=2.0 * width**3, dtype=name, launches=1,
                    )
                )  # fmt: skip
        return found

    def _links(self) -> list[Probe]:
        there = torch.empty(_LINK, dtype=torch.uint8, device=self.device)
        host = torch.empty(_LINK, dtype=torch.uint8, pin_memory=True)
        out, into = (functools.partial(a.copy_, b, non_blocking=True) for a, b in ((host, there), (there, host)))
        return [Probe(f"link {way}", self._work(copy), link_bytes=_LINK) for way, copy in (("out", out), ("in", into))]

    def _copy(self, size: int) -> Probe:
        source, target = (torch.randn(size // 8, device=self.device) for _ in range(2))
        work = self._work(functools.partial(target.copy_, source))
        half = source.nbytes
        name = f"copy {size // _MIB} MiB"
        return Probe(name, work, reads=half, writes=half, footprint=2 * half, launches=1, sweep="shared")

    def _reads(self) -> list[Probe]:
        """Return reads by a kernel of our own: each core in its own part, or all of them through the same memory in turn."""
        own = [self._read(self._cores * size * _KIB, 2 * self._cores, 2048, "private") for size in _OWN]
        shared = [self._read(size * _MIB, 4 * self._cores, 4096, "shared") for size in _READS]
        return list({probe.name: probe for probe in (*own, *shared)}.values())  # sizes are rounded, and may come twice

    def _read(self, size: int, programs: int, block: int, sweep: str) -> Probe:
        chunk = max(1, size // (4 * programs * block)) * block  # floats
        data = torch.randn(chunk * programs, device=self.device)
        out = torch.empty(programs * block, device=self.device)
        rounds = max(2, _READ_BYTES // data.nbytes)
        shift = 0 if sweep == "private" else 37  # a prime: every core sees every part before it sees its own again
        launch = read_chunks[(programs,)]
        call = functools.partial(
            launch, data, out, chunk, programs, shift, rounds, BLOCK=block, num_warps=8, num_stages=1
        )
        name = f"read {data.nbytes / _MIB:.4g} MiB" + (", each core its own part" if sweep == "private" else "")
        return Probe(name, self._work(call), reads=rounds * data.nbytes, footprint=data.nbytes, launches=1, sweep=sweep)
