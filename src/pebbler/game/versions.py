"""Versions and hazards derived from program order: the ops that make, read and overwrite each value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pebbler.arrays import Bools
from pebbler.errors import InputError, quoted
from pebbler.game.dataflow import NONE, Dataflow, Rows

if TYPE_CHECKING:
    from pebbler.game.graph import Op, Tensor

__all__ = ["derive"]

_MOST_UNITS = 2**60  # sums of sizes are 64-bit integers


def derive(tensors: Sequence[Tensor], ops: Sequence[Op]) -> Dataflow:
    """Return the values and hazards of a program, or say which op reads what is not there.

    >>> from pebbler.game.graph import Graph
    >>> Graph("g").tensor("a", 1).op("f", reads=["a"]).dataflow
    Traceback (most recent call last):
    pebbler.errors.InputError: ops[0] (f): reads a before any op writes it
    """
    values = _Values(tensors, ops)
    values.start()
    start_value = np.array(values.latest, np.int64)
    for position, op in enumerate(ops):
        values.run(position, op)
    final_value = np.array([values.held[storage] for storage in values.storage], np.int64)
    sizes = np.array([tensor.size for tensor in tensors], np.int64)
    value_tensor = np.array(values.tensor, np.int64)
    if sum(tensors[i].size for i in values.tensor) > _MOST_UNITS:
        raise InputError(f"all values together have more than {_MOST_UNITS:,} units, the most that is supported")
    op_reads = Rows.flat([len(op.reads) for op in ops], values.reads)
    op_destroys = Rows.flat(np.bincount(np.array(values.destroyers, np.int64), minlength=len(ops)), values.destroyed)
    return Dataflow(
        tensor_names=[tensor.name for tensor in tensors],
        op_names=[op.name for op in ops],
        tensor_size=sizes,
        value_tensor=value_tensor,
        value_version=np.array(values.version, np.int64),
        value_size=sizes[value_tensor] if len(value_tensor) else np.zeros(0, np.int64),
        value_maker=np.array(values.maker, np.int64),
        value_destroyer=np.array(values.destroyer, np.int64),
        value_must_survive=values.surviving(),
        start_value=start_value,
        final_value=final_value,
        storage=np.array(values.storage, np.int64),
        op_cost=np.array([op.cost for op in ops], np.float64),
        op_once=np.array([op.once for op in ops], np.bool_),
        op_in_place=np.diff(op_destroys.start) > 0,
        op_reads=op_reads,
        op_writes=Rows.flat([len(op.writes) for op in ops], values.writes),
        op_destroys=op_destroys,
        value_readers=_readers(op_reads, len(value_tensor)),
    )


class _Values:
    """The values of a program while its ops run in order.

    Flat lists: a list per op and per value would cost more time than everything else.
    """

    def __init__(self, tensors: Sequence[Tensor], ops: Sequence[Op]) -> None:
        self.tensors, self.ops = tensors, ops
        self.index = {tensor.name: i for i, tensor in enumerate(tensors)}
        self.storage = _storages(tensors, self.index)
        self.tensor: list[int] = []
        self.version: list[int] = []
        self.maker: list[int] = []
        self.destroyer: list[int] = []
        self.held = [NONE] * len(tensors)  # per storage: the value it holds
        self.latest = [NONE] * len(tensors)  # per tensor: its newest value, overwritten or not
        self.writes_seen = [0] * len(tensors)
        self.reads: list[int] = []
        self.writes: list[int] = []
        self.destroyed: list[int] = []
        self.destroyers: list[int] = []

    def start(self) -> None:
        """Make the values that are there at the start."""
        for i, tensor in enumerate(self.tensors):
            if tensor.kind in ("input", "param"):
                if self.held[self.storage[i]] != NONE:
                    other = quoted(self.tensors[self.tensor[self.held[self.storage[i]]]].name)
                    raise InputError(f"{self._place(i)}: starts with a value in storage that {other} fills already")
                self._make(i, NONE)

    def run(self, position: int, op: Op) -> None:
        """Run the next op of the program."""
        for name in op.reads:
            value = self.latest[self.index[name]]
            if value == NONE or self.destroyer[value] != NONE:
                reason = " before any op writes it"
                if value != NONE:
                    reason = f", which {quoted(self.ops[self.destroyer[value]].name)} has overwritten"
                raise InputError(f"ops[{position}] ({quoted(op.name)}): reads {quoted(name)}{reason}")
            self.reads.append(value)
        for name in op.writes:
            i = self.index[name]
            old = self.held[self.storage[i]]
            if old != NONE:
                if self.maker[old] == position:
                    raise InputError(f"ops[{position}] ({quoted(op.name)}): writes the storage of {quoted(name)} twice")
                self.destroyer[old] = position
                self.destroyed.append(old)
                self.destroyers.append(position)
            self.writes.append(self._make(i, position))

    def surviving(self) -> Bools:
        """Return the values that must exist at the end."""
        survive = np.zeros(len(self.tensor), np.bool_)
        for i, tensor in enumerate(self.tensors):
            if tensor.kind == "output":
                self._check_output(i)
            if tensor.kind in ("param", "output"):
                survive[self.held[self.storage[i]]] = True
        return survive

    def _make(self, tensor: int, maker: int) -> int:
        value = len(self.tensor)
        self.tensor.append(tensor)
        self.version.append(self.writes_seen[tensor])
        self.maker.append(maker)
        self.destroyer.append(NONE)
        self.writes_seen[tensor] += 1
        self.latest[tensor] = self.held[self.storage[tensor]] = value
        return value

    def _check_output(self, i: int) -> None:
        value = self.latest[i]
        if value == NONE:
            raise InputError(f"{self._place(i)}: is an output that no op writes")
        if self.destroyer[value] != NONE:
            culprit = quoted(self.ops[self.destroyer[value]].name)
            raise InputError(
                f"{self._place(i)}: is an output that {culprit} overwrites for good, so it cannot be there at the end"
            )

    def _place(self, i: int) -> str:
        return f"tensors[{i}] ({quoted(self.tensors[i].name)})"


def _readers(op_reads: Rows, values: int) -> Rows:
    """Return the distinct ops that read each value, in program order."""
    ops = len(op_reads)
    reader = np.repeat(np.arange(ops), np.diff(op_reads.start))
    pairs = np.unique(op_reads.items * max(ops, 1) + reader)  # an op that reads a value twice is one reader
    return Rows.flat(np.bincount(pairs // max(ops, 1), minlength=values), pairs % max(ops, 1))


def _storages(tensors: Sequence[Tensor], index: dict[str, int]) -> list[int]:
    """Return the storage of every tensor, named by the tensor at the end of its `overwrites` chain."""
    root = list(range(len(tensors)))
    for i, tensor in enumerate(tensors):
        if tensor.overwrites is None:
            continue
        place = f"tensors[{i}] ({quoted(tensor.name)})"
        seen = {i}
        here = tensor
        while here.overwrites is not None:
            if here.overwrites not in index:
                raise InputError(f"{place}: overwrites {quoted(here.overwrites)}, which no tensor declares")
            step = index[here.overwrites]
            if step in seen:
                raise InputError(f"{place}: overwrites itself through {quoted(here.overwrites)}")
            seen.add(step)
            here = tensors[step]
        root[i] = index[here.name]
        if tensor.size > here.size:
            raise InputError(
                f"{place}: size {tensor.size} does not fit in the storage of {quoted(here.name)}, {here.size}"
            )
    return root
