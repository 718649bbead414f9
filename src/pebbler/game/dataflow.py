"""Versions and hazards of a program, derived from its order.

A *value* is one version of one tensor. Tensors that overwrite one another share a *storage*, which holds at most one value
at a time; writing into a storage destroys the value that it held. From that alone follow the hazards: a reader needs the
value to be there (RAW), the op that destroys it must wait for all its readers (WAR) and for its maker (WAW).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from pebbler.errors import InputError, quoted

if TYPE_CHECKING:
    from pebbler.game.graph import Op, Tensor

__all__ = ["NONE", "Dataflow", "Hazard", "Rows", "derive"]

NONE = -1
_MOST_UNITS = 2**60  # sums of sizes are 64-bit integers
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """Lists of ints of differing lengths as two flat arrays: row i is `items[start[i]:start[i + 1]]`."""

    start: Ints
    items: Ints

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> Rows:
        """Return the flat form of a list of lists.

        >>> Rows.of([[1, 2], [], [3]]).row(2).tolist()
        [3]
        """
        return cls.flat([len(row) for row in lists], list(chain.from_iterable(lists)))

    @classmethod
    def flat(cls, lengths: npt.ArrayLike, items: npt.ArrayLike) -> Rows:
        """Return the rows of these lengths, cut from `items`."""
        counts = np.array(lengths, np.int64)
        return cls(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), np.array(items, np.int64))

    def row(self, index: int) -> Ints:
        """Return one row."""
        return self.items[self.start[index] : self.start[index + 1]]

    def __len__(self) -> int:
        return len(self.start) - 1

    def __iter__(self) -> Iterator[Ints]:
        return (self.row(i) for i in range(len(self)))


@dataclass(frozen=True)
class Hazard:
    """One reason why an op must follow another."""

    kind: Literal["RAW", "WAR", "WAW"]
    before: str
    after: str
    tensor: str
    version: int

    def why(self) -> str:
        """Return the reason as a sentence.

        >>> print(Hazard("WAR", "bwd_dh", "upd_W2", "W2", 0).why())
        upd_W2 must follow bwd_dh: bwd_dh reads W2 version 0, which upd_W2 overwrites
        """
        before, after, value = quoted(self.before), quoted(self.after), f"{quoted(self.tensor)} version {self.version}"
        reason = {
            "RAW": f"{after} reads {value}, which {before} writes",
            "WAR": f"{before} reads {value}, which {after} overwrites",
            "WAW": f"{before} writes {value}, which {after} overwrites",
        }[self.kind]
        return f"{after} must follow {before}: {reason}"


@dataclass(frozen=True)
class Dataflow:
    """The values of a program and what each op does to them, as flat arrays.

    Values, tensors and ops are numbered; values in the order in which the program makes them, start values first.
    """

    tensor_names: list[str]
    op_names: list[str]
    value_tensor: Ints
    value_version: Ints
    value_size: Ints
    value_maker: Ints  # the op that makes the value, NONE for what is there at the start
    value_destroyer: Ints  # the op that overwrites it, NONE for the last value in its storage
    value_must_survive: Bools  # needed at the end
    start_value: Ints  # per tensor: its value at the start, NONE for temps and outputs
    final_value: Ints  # per tensor: the last value in its storage, NONE when it never holds one
    storage: Ints  # per tensor: the tensor whose room it lives in, itself unless it overwrites another
    op_cost: npt.NDArray[np.float64]
    op_once: Bools
    op_in_place: Bools  # overwrites a value, so it can never run again
    op_reads: Rows  # values, in the order of the op's reads
    op_writes: Rows
    op_destroys: Rows
    value_readers: Rows  # distinct ops, in program order

    @property
    def values(self) -> int:
        """The number of values."""
        return len(self.value_tensor)

    @property
    def ops(self) -> int:
        """The number of ops."""
        return len(self.op_names)

    def destroyed_values(self) -> Ints:
        """Return the values that some op overwrites."""
        return np.flatnonzero(self.value_destroyer != NONE)

    def name_value(self, value: int) -> str:
        """Return a value's name for messages: `W2 (version 0)`."""
        return f"{quoted(self.tensor_names[self.value_tensor[value]])} (version {self.value_version[value]})"

    def hazards(self, *, war: bool = True) -> list[Hazard]:
        """Return every hazard once, in order of the op that must wait."""
        found = []
        for kind, before, after, value in self._edges():
            if war or kind != "WAR":
                names = self.op_names[before], self.op_names[after], self.tensor_names[self.value_tensor[value]]
                found.append((after, before, Hazard(kind, *names, int(self.value_version[value]))))
        found.sort(key=lambda item: item[:2])
        return [hazard for _, _, hazard in found]

    def predecessors(self, *, war: bool = True) -> list[list[int]]:
        """Return, for every op, the ops that must run before it (direct hazards only, sorted, each once)."""
        before: list[set[int]] = [set() for _ in self.op_names]
        for kind, first, second, _ in self._edges():
            if war or kind != "WAR":
                before[second].add(first)
        return [sorted(ops) for ops in before]

    def _edges(self) -> Iterator[tuple[Literal["RAW", "WAR", "WAW"], int, int, int]]:
        makers, destroyers = self.value_maker.tolist(), self.value_destroyer.tolist()
        for value, (maker, destroyer) in enumerate(zip(makers, destroyers, strict=True)):
            readers = self.value_readers.row(value).tolist()
            if maker != NONE:
                yield from (("RAW", maker, reader, value) for reader in readers)
            if destroyer != NONE:
                yield from (("WAR", reader, destroyer, value) for reader in readers if reader != destroyer)
                if maker != NONE:
                    yield "WAW", maker, destroyer, value


def derive(tensors: Sequence[Tensor], ops: Sequence[Op]) -> Dataflow:
    """Return the values and hazards of a program, or say which op reads what is not there.

    >>> from pebbler.game.graph import Graph
    >>> g = Graph("g"); _ = g.tensor("a", 1), g.op("f", reads=["a"])
    >>> g.dataflow
    Traceback (most recent call last):
    pebbler.errors.InputError: ops[0] (f): reads a before any op writes it
    """
    index = {tensor.name: i for i, tensor in enumerate(tensors)}
    storage = _storages(tensors, index)
    value_tensor: list[int] = []
    value_version: list[int] = []
    value_maker: list[int] = []
    value_destroyer: list[int] = []
    held = [NONE] * len(tensors)  # per storage: the value it holds
    latest = [NONE] * len(tensors)  # per tensor: its newest value, overwritten or not
    writes_seen = [0] * len(tensors)

    def make(tensor: int, maker: int) -> int:
        value = len(value_tensor)
        value_tensor.append(tensor)
        value_version.append(writes_seen[tensor])
        value_maker.append(maker)
        value_destroyer.append(NONE)
        writes_seen[tensor] += 1
        latest[tensor] = held[storage[tensor]] = value
        return value

    for i, tensor in enumerate(tensors):
        if tensor.kind in ("input", "param"):
            if held[storage[i]] != NONE:
                other = quoted(tensors[value_tensor[held[storage[i]]]].name)
                raise InputError(
                    f"tensors[{i}] ({quoted(tensor.name)}): starts with a value in storage that {other} fills already"
                )
            make(i, NONE)
    start_value = np.array(latest, np.int64)

    # Flat lists: a list per op and per value would cost more time than everything else.
    reads: list[int] = []
    writes: list[int] = []
    destroys: list[int] = []
    destroyers: list[int] = []
    for position, op in enumerate(ops):
        for name in op.reads:
            value = latest[index[name]]
            if value == NONE or value_destroyer[value] != NONE:
                reason = " before any op writes it"
                if value != NONE:
                    reason = f", which {quoted(ops[value_destroyer[value]].name)} has overwritten"
                raise InputError(f"ops[{position}] ({quoted(op.name)}): reads {quoted(name)}{reason}")
            reads.append(value)
        for name in op.writes:
            i = index[name]
            old = held[storage[i]]
            if old != NONE:
                if value_maker[old] == position:
                    raise InputError(f"ops[{position}] ({quoted(op.name)}): writes the storage of {quoted(name)} twice")
                value_destroyer[old] = position
                destroys.append(old)
                destroyers.append(position)
            writes.append(make(i, position))
    op_reads = Rows.flat([len(op.reads) for op in ops], reads)
    op_writes = Rows.flat([len(op.writes) for op in ops], writes)
    op_destroys = Rows.flat(np.bincount(np.array(destroyers, np.int64), minlength=len(ops)), destroys)

    survive = np.zeros(len(value_tensor), np.bool_)
    final_value = [held[storage[i]] for i in range(len(tensors))]
    for i, tensor in enumerate(tensors):
        if tensor.kind == "output":
            _check_output(i, tensors, ops, latest, value_destroyer)
        if tensor.kind in ("param", "output"):
            survive[final_value[i]] = True
    if sum(tensors[i].size for i in value_tensor) > _MOST_UNITS:
        raise InputError(f"all values together have more than {_MOST_UNITS:,} units, the most that is supported")
    sizes = np.array([tensor.size for tensor in tensors], np.int64)
    return Dataflow(
        tensor_names=[tensor.name for tensor in tensors],
        op_names=[op.name for op in ops],
        value_tensor=np.array(value_tensor, np.int64),
        value_version=np.array(value_version, np.int64),
        value_size=sizes[np.array(value_tensor, np.int64)] if value_tensor else np.zeros(0, np.int64),
        value_maker=np.array(value_maker, np.int64),
        value_destroyer=np.array(value_destroyer, np.int64),
        value_must_survive=survive,
        start_value=start_value,
        final_value=np.array(final_value, np.int64),
        storage=np.array(storage, np.int64),
        op_cost=np.array([op.cost for op in ops], np.float64),
        op_once=np.array([op.once for op in ops], np.bool_),
        op_in_place=np.diff(op_destroys.start) > 0,
        op_reads=op_reads,
        op_writes=op_writes,
        op_destroys=op_destroys,
        value_readers=_readers(op_reads, len(value_tensor)),
    )


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


def _check_output(
    i: int, tensors: Sequence[Tensor], ops: Sequence[Op], latest: list[int], value_destroyer: list[int]
) -> None:
    place = f"tensors[{i}] ({quoted(tensors[i].name)})"
    if latest[i] == NONE:
        raise InputError(f"{place}: is an output that no op writes")
    if value_destroyer[latest[i]] != NONE:
        culprit = quoted(ops[value_destroyer[latest[i]]].name)
        raise InputError(f"{place}: is an output that {culprit} overwrites for good, so it cannot be there at the end")
