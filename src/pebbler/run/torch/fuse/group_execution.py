"""Running one group of calls, or its compiled kernel, by itself on sample operands: to measure it, and to compile it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

from pebbler.run.torch.capture.call_groups import CallGroup
from pebbler.run.torch.capture.calls import Constant, Record, Scalar, TensorRef
from pebbler.run.torch.capture.operand_trees import map_leaves
from pebbler.run.torch.capture.phases import Phase
from pebbler.run.torch.capture.scalars import evaluate
from pebbler.run.torch.capture.settings import SAMPLES
from pebbler.run.torch.capture.views import view_of
from pebbler.run.torch.fuse.inductor import Kernel, KernelInterface, Kernels

__all__ = ["compile_kernels", "own_random_numbers", "run_group", "sample_operands"]


def compile_kernels(kernels: Kernels, groups: Iterable[tuple[Phase, CallGroup]], device: str) -> None:
    """Compile the kernels of fused groups that have not been compiled yet."""
    with own_random_numbers(device):
        for phase, group in groups:
            kernels.kernel(phase.record, group, partial(_sample_operand, phase))


def own_random_numbers(device: str) -> AbstractContextManager[None]:
    """Keep sample operands and trial runs from advancing the generators that a training loop has seeded."""
    place = torch.device(device)
    return torch.random.fork_rng([place] if place.type == "cuda" else [])  # type: ignore[no-any-return]


def sample_operands(phase: Phase, storages: list[int]) -> dict[int, torch.Tensor]:
    """Return tensors in place of storages; workspaces, masks and indices come from the call that makes them."""
    record = phase.record
    made: dict[int, torch.Tensor] = {}
    for s in storages:
        opaque = not record.root(s).dtype.is_floating_point
        maker = next((g for g in phase.groups if s in g.makes and len(g.makes) > 1), None) if opaque else None
        if maker is not None and s not in made:
            made.update(run_group(record, maker, sample_operands(phase, sorted(KernelInterface(record, maker).reads))))
    return {s: made[s] if s in made else _sample_storage(record, s) for s in storages}


def _sample_operand(phase: Phase, storage: int) -> torch.Tensor:
    return sample_operands(phase, [storage])[storage]


def _sample_storage(record: Record, storage: int) -> torch.Tensor:
    """Return a tensor in place of a storage: small random numbers, and zeros for whole numbers, which may be indices."""
    info = record.root(storage)
    device = record.storages[storage].device
    root = torch.empty_strided(info.shape, info.stride, dtype=info.dtype, device=device)
    return root.normal_(0, 0.5) if info.dtype.is_floating_point else root.zero_()


def run_group(
    record: Record,
    group: CallGroup,
    roots: dict[int, torch.Tensor],
    kernel: Kernel | None = None,
    calling: list[float] | None = None,
) -> dict[int, torch.Tensor]:
    """Run the calls of a group, or their kernel, on given storages; return the storages that it makes.

    Seconds that each call takes until it returns, its operands at hand, are appended to `calling`.
    """
    calling = [] if calling is None else calling
    made: dict[int, torch.Tensor] = {}
    if kernel is not None:
        interface = KernelInterface(record, group)
        inputs = [roots[s] for s in interface.reads] + [record.constants[n] for n in interface.constants]
        with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
            began = time.perf_counter()
            results = kernel(*inputs)
            calling.append(time.perf_counter() - began)
            return dict(zip(interface.makes, results, strict=True))

    def operand(leaf: Any) -> Any:
        if isinstance(leaf, TensorRef):
            info = record.tensors[leaf.number]
            root = made.get(info.storage, roots.get(info.storage))
            return view_of(record, root, leaf.number)
        if isinstance(leaf, Scalar):
            return evaluate(leaf.expression, _AnyNumber())
        return record.constants[leaf.number] if isinstance(leaf, Constant) else leaf

    for call in group.calls:
        if call.scalar is not None:
            continue
        with torch.set_grad_enabled(call.grad), torch._C._AutoDispatchBelowAutograd():
            args, kwargs = map_leaves(operand, (call.args, call.kwargs))
            began = time.perf_counter()
            result = call.func(*args, **kwargs)
            calling.append(time.perf_counter() - began)
        for storage, _, index in record.results(call):
            made[storage] = result if index is None else result[index]
    return {s: tensor for s, tensor in made.items() if s in group.makes}


class _AnyNumber(dict[str, float]):
    """Stands for learning rates and step counters where only the time counts."""

    def __missing__(self, key: str) -> float:
        return SAMPLES.get(key.split("_")[0], 3.0)
