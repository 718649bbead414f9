"""The contents of a recorded training step: tensors, storages and operator calls."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from pebbler.run.torch.capture.call_sites import CallSite
from pebbler.run.torch.capture.operand_trees import leaves_of
from pebbler.run.torch.capture.scalars import inputs_of

__all__ = [
    "Call",
    "Constant",
    "Place",
    "Record",
    "Scalar",
    "Storage",
    "TensorInfo",
    "TensorRef",
    "operator_name",
    "reference",
    "shown",
    "unique_refs",
]

# Where a tensor that outlives the step is found: ("arg", i), ("state", optimizer, group, param, key),
# ("grad", tensor), ("tensor", i) for any other tensor that the step refers to, ("constant", i).
Place = tuple[Any, ...]


@dataclass(frozen=True)
class TensorRef:
    """A tensor among the operands of a call, by number."""

    number: int


_references: list[TensorRef] = []


def reference(number: int) -> TensorRef:
    """Return the one object that stands for the tensor of this number, so that most comparisons are those of identities.

    >>> reference(3) is reference(3)
    True
    """
    while number >= len(_references):
        _references.append(TensorRef(len(_references)))
    return _references[number]


@dataclass(frozen=True)
class Scalar:
    """A number among the operands of a call that is computed again in every step."""

    expression: tuple[Any, ...]


@dataclass(frozen=True)
class Constant:
    """A small tensor that the step makes from Python values, by number."""

    number: int


@dataclass(frozen=True)
class TensorInfo:
    """One view of a storage."""

    storage: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    conjugated: bool = False  # bits of a complex tensor that kernels look at
    negated: bool = False

    @property
    def layout(self) -> tuple[Any, ...]:
        """The elements of the storage that it consists of, in order, with their type."""
        return self.shape, self.stride, self.offset, self.dtype, self.conjugated, self.negated


@dataclass
class Storage:
    """A piece of memory: its maker, and its place if it existed before the step."""

    bytes: int
    device: str
    root: int  # the tensor it was first seen as; every other one is a view of that
    maker: int | None  # call, None for what was there at the start
    place: Place | None = None


@dataclass
class Call:
    """One call of an operator; `args` and `kwargs` hold `TensorRef` in place of tensors."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Any  # the structure of the result, `TensorRef` in place of tensors
    reads: tuple[int, ...]  # storages
    makes: tuple[int, ...]
    mutates: tuple[int, ...]
    random: bool = False
    statistics: tuple[int, ...] = ()  # storages of running statistics: updated by the first run only
    scalar: str | None = None  # the name of the number that an `item` call reads
    where: str = ""
    backward: bool = False  # whether autograd's backward pass made it
    grad: bool = False  # whether gradients were enabled: a few kernels look
    site: CallSite | None = None  # module, line and part of the step, for people
    unless: str | None = None  # left out in steps where the number of this name is not zero

    @property
    def name(self) -> str:
        """The operator's name without its overload."""
        return operator_name(self.func)

    @functools.cached_property
    def leaves(self) -> list[Any]:
        """The operands as a flat list, without their structures."""
        return leaves_of((self.args, self.kwargs))


@functools.cache
def operator_name(func: Any) -> str:
    """Return an operator's name without its overload."""
    return str(func._schema.name).split("::")[-1] if hasattr(func, "_schema") else func.__name__


@dataclass
class Record:
    """One recording of a step."""

    tensors: list[TensorInfo] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    constants: list[torch.Tensor] = field(default_factory=list)
    result: Any = None  # what the step returns, `TensorRef` and `Scalar` in place of tensors and numbers from them
    binds: dict[Place, int] = field(default_factory=dict)  # tensors that must be found in these places afterwards
    drops: list[Place] = field(default_factory=list)  # gradients that were there before and are gone afterwards
    guards: dict[tuple[Any, ...], bool] = field(default_factory=dict)
    questions: list[Any] = field(default_factory=list)  # about values, which decided branches
    early: Any = None  # what answers them before every step
    labels: dict[Place, str] = field(default_factory=dict)  # what people call the tensors in these places

    def root(self, storage: int) -> TensorInfo:
        """Return the tensor that a storage was first seen as."""
        return self.tensors[self.storages[storage].root]

    def storages_of(self, numbers: Iterable[int]) -> list[int]:
        """Return the storages of some tensors, each once, in order."""
        return list(dict.fromkeys(self.tensors[n].storage for n in numbers))

    def kept(self, binds: Mapping[Place, int]) -> set[int]:
        """Return the storages that outlive the step: those of its results and of the places of `binds`."""
        returned = (leaf.number for leaf in tree_flatten(self.result)[0] if isinstance(leaf, TensorRef))
        return set(self.storages_of((*binds.values(), *returned)))

    @property
    def numbers(self) -> set[str]:
        """The names of the numbers from tensors that the step returns something of."""
        scalars = (leaf for leaf in tree_flatten(self.result)[0] if isinstance(leaf, Scalar))
        return {name for scalar in scalars for name in inputs_of(scalar.expression)}

    def results(self, call: Call) -> Iterator[tuple[int, TensorRef, int | None]]:
        """Yield the storages that a call makes, the first tensor on each, and where in the result that is (None: all of it)."""
        alone = isinstance(call.outputs, TensorRef)
        seen: set[int] = set()
        for i, ref in enumerate([call.outputs] if alone else call.outputs or []):
            storage = self.tensors[ref.number].storage if isinstance(ref, TensorRef) else -1
            if storage in call.makes and storage not in seen:
                seen.add(storage)  # a second tensor on the same storage is a view of the first
                yield storage, ref, None if alone else i

    def describe(self, call: Call) -> str:
        """Return a call as text that two recordings of the same step share."""
        parts = []
        for leaf in call.leaves:
            if isinstance(leaf, TensorRef):
                info = self.tensors[leaf.number]
                flags = "*" * info.conjugated + "-" * info.negated
                parts.append(f"{shown(info)}{flags}@{info.storage}+{info.offset}{info.stride}")
            else:
                parts.append(repr(leaf))
        target = call.name if call.scalar is not None else str(call.func)
        return f"{target}({', '.join(parts)})"


def shown(info: TensorInfo) -> str:
    """Return a tensor's type as people write it: float32[8, 3]."""
    return f"{str(info.dtype).removeprefix('torch.')}{list(info.shape)}"


def unique_refs(tree: Any) -> list[int]:
    """Return the numbers of the tensors among some operands, each once, in order."""
    return list(dict.fromkeys([leaf.number for leaf in leaves_of(tree) if type(leaf) is TensorRef]))
