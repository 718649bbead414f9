"""The values and hazards of a program as flat arrays, with queries on them.

A *value* is one version of one tensor. Tensors that overwrite one another share a *storage*, which holds at most one value
at a time; writing into a storage destroys the value that it held. All hazards follow from this rule: a value must exist
before it is read (RAW), and the op that destroys a value must wait for all readers (WAR) and for the maker (WAW).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from pebbler.arrays import Bools, Floats, Ints
from pebbler.errors import quoted

__all__ = ["NONE", "Dataflow", "Hazard", "Rows"]

NONE = -1


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

    @classmethod
    def of_pairs(cls, pairs: Sequence[tuple[int, int]], count: int) -> Rows:
        """Return `count` rows from (row, item) pairs; each row is sorted and has every item once.

        >>> Rows.of_pairs([(1, 5), (0, 2), (1, 3), (1, 5)], 2).lists()
        [[2], [3, 5]]
        """
        found = np.unique(np.array(pairs, np.int64).reshape(-1, 2), axis=0)
        return cls.flat(np.bincount(found[:, 0], minlength=count), found[:, 1])

    def transposed(self, count: int) -> Rows:
        """Return, for each of `count` items, the rows that have it.

        >>> Rows.of([[1], [0, 1]]).transposed(2).lists()
        [[1], [0, 1]]
        """
        row = np.repeat(np.arange(len(self)), np.diff(self.start))
        order = np.lexsort((row, self.items))
        return Rows.flat(np.bincount(self.items, minlength=count), row[order])

    def lists(self) -> list[list[int]]:
        """Return the rows as lists."""
        items, start = self.items.tolist(), self.start.tolist()
        return [items[a:b] for a, b in pairwise(start)]

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


@dataclass(frozen=True, eq=False)
class Dataflow:
    """The values of a program and what each op does to them, as flat arrays.

    Values, tensors and ops are numbered; values in the order in which the program makes them, start values first.
    """

    tensor_names: list[str]
    op_names: list[str]
    tensor_size: Ints
    value_tensor: Ints
    value_version: Ints
    value_size: Ints
    value_maker: Ints  # the op that makes the value, NONE for what is there at the start
    value_destroyer: Ints  # the op that overwrites it, NONE for the last value in its storage
    value_must_survive: Bools  # needed at the end
    start_value: Ints  # per tensor: its value at the start, NONE for temps and outputs
    final_value: Ints  # per tensor: the last value in its storage, NONE when it never holds one
    storage: Ints  # per tensor: the tensor whose room it lives in, itself unless it overwrites another
    op_cost: Floats
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
        for kind, before, after, value in self._hazards(war):
            names = self.op_names[before], self.op_names[after], self.tensor_names[self.value_tensor[value]]
            found.append((after, before, Hazard(kind, *names, int(self.value_version[value]))))
        found.sort(key=lambda item: item[:2])
        return [hazard for _, _, hazard in found]

    # Graph questions, answered once -----------------------------------------------------------------------------------

    @cached_property
    def before(self) -> Rows:
        """Per op, the ops that must run before it: direct hazards only, sorted, each once."""
        return self._ops_before(war=True)

    @cached_property
    def after(self) -> Rows:
        """Per op, the ops that must wait for it: direct hazards only, sorted, each once."""
        return self.before.transposed(self.ops)

    def predecessors(self, *, war: bool = True) -> list[list[int]]:
        """Return `before` as lists; without `war` the anti-dependencies are left out, as the notes did."""
        return (self.before if war else self._ops_before(war=False)).lists()

    def without_war(self) -> Dataflow:
        """Return the same values with the anti-dependencies left out of `before` and all that follows from it.

        >>> from pebbler.workloads import note_mlp
        >>> flow = note_mlp().dataflow
        >>> len(flow.before.items), len(flow.without_war().before.items)
        (22, 17)
        """
        other = replace(self)
        other.__dict__["before"] = self._ops_before(war=False)
        return other

    @cached_property
    def ancestors(self) -> list[int]:
        """Per op, all ops that must run before it, as the bits of an integer."""
        return _reach(self.before.lists(), range(self.ops))

    @cached_property
    def descendants(self) -> list[int]:
        """Per op, all ops that must run after it, as the bits of an integer."""
        return _reach(self.after.lists(), range(self.ops - 1, -1, -1))

    def read_by(self, ops: Bools) -> Bools:
        """Return, per value, whether one of these ops reads it."""
        rows = self.value_readers
        count = np.concatenate([np.zeros(1, np.int64), np.cumsum(ops[rows.items])])
        return np.asarray(count[rows.start[1:]] > count[rows.start[:-1]])

    @cached_property
    def op_can_rerun(self) -> Bools:
        """Per op, whether it may run again: it neither overwrites anything nor is marked `once`."""
        return ~(self.op_once | self.op_in_place)

    @cached_property
    def value_can_be_remade(self) -> Bools:
        """Per value, whether an op makes it that may run again."""
        made = self.value_maker != NONE
        found = np.zeros(self.values, np.bool_)
        found[made] = self.op_can_rerun[self.value_maker[made]]
        return found

    def _ops_before(self, *, war: bool) -> Rows:
        pairs = [(after, before) for _, before, after, _ in self._hazards(war)]
        return Rows.of_pairs(pairs, self.ops)

    def _hazards(self, war: bool) -> Iterator[tuple[Literal["RAW", "WAR", "WAW"], int, int, int]]:
        makers, destroyers = self.value_maker.tolist(), self.value_destroyer.tolist()
        for value, (maker, destroyer) in enumerate(zip(makers, destroyers, strict=True)):
            readers = self.value_readers.row(value).tolist()
            if maker != NONE:
                yield from (("RAW", maker, reader, value) for reader in readers)
            if destroyer != NONE:
                if war:
                    yield from (("WAR", reader, destroyer, value) for reader in readers if reader != destroyer)
                if maker != NONE:
                    yield "WAW", maker, destroyer, value


def _reach(neighbours: list[list[int]], order: Iterable[int]) -> list[int]:
    """Return per op all that can be reached through its neighbours, which come before it in `order`, as bits."""
    found = [0] * len(neighbours)
    for op in order:
        bits = 0
        for other in neighbours[op]:
            bits |= found[other] | 1 << other
        found[op] = bits
    return found
