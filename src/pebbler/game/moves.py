"""Moves: compute an op, copy a value from one level to another, drop a copy.

A move is a small object that holds names: `Compute("c1")`, `Copy("N0", "slow", "fast")`, `Drop("N1", "fast")`. A plan stores its
moves as flat arrays of numbers (`Moves`), which solvers write and the referee reads directly. `Moves` is also a sequence of moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import msgspec
import numpy as np
import numpy.typing as npt

from pebbler.errors import InputError, quoted

if TYPE_CHECKING:
    from pebbler.game.graph import Graph
    from pebbler.game.machine import Machine

__all__ = ["COMPUTE", "COPY", "DROP", "KINDS", "Compute", "Copy", "Drop", "Move", "MoveList", "Moves"]

COMPUTE, COPY, DROP = 0, 1, 2
KINDS = ("compute", "copy", "drop")
_SHAPES = {
    "compute": '["compute", op] or ["compute", op, level]',
    "copy": '["copy", tensor, from, to]',
    "drop": '["drop", tensor, level]',
}
_LENGTHS = {"compute": (2, 3), "copy": (4,), "drop": (3,)}


class Compute(msgspec.Struct, frozen=True, gc=False):
    """Run an op; its results go to `level`, by default the fastest.

    >>> Compute("c1"), Compute("c1", "L2")
    (Compute('c1'), Compute('c1', 'L2'))
    """

    op: str
    level: str | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The move as it stands in a file."""
        return ("compute", self.op) if self.level is None else ("compute", self.op, self.level)

    def __repr__(self) -> str:
        return f"Compute({self.op!r})" if self.level is None else f"Compute({self.op!r}, {self.level!r})"


class Copy(msgspec.Struct, frozen=True, gc=False):
    """Copy the value of a tensor from the level `source` to the level `target`.

    >>> Copy("N0", "slow", "fast").words
    ('copy', 'N0', 'slow', 'fast')
    """

    tensor: str
    source: str
    target: str

    @property
    def words(self) -> tuple[str, ...]:
        """The move as it stands in a file."""
        return ("copy", self.tensor, self.source, self.target)

    def __repr__(self) -> str:
        return f"Copy({self.tensor!r}, {self.source!r}, {self.target!r})"


class Drop(msgspec.Struct, frozen=True, gc=False):
    """Give up the copy of a tensor's value that is in a level.

    >>> Drop("N1", "fast")
    Drop('N1', 'fast')
    """

    tensor: str
    level: str

    @property
    def words(self) -> tuple[str, ...]:
        """The move as it stands in a file."""
        return ("drop", self.tensor, self.level)

    def __repr__(self) -> str:
        return f"Drop({self.tensor!r}, {self.level!r})"


Move: TypeAlias = Compute | Copy | Drop


@dataclass(frozen=True, eq=False, repr=False)
class Moves(Sequence[Move]):
    """Moves as flat arrays: what kind, which op or tensor, and the levels; and the names that the numbers stand for.

    >>> from pebbler import machine, workloads
    >>> graph = workloads.chain(2)
    >>> moves = Moves.of(graph, machine("red-blue"), [("copy", "N0", "slow", "fast"), Compute("c1")])
    >>> moves[1], moves.kind.tolist(), moves.subject.tolist()
    (Compute('c1'), [1, 0], [0, 0])
    """

    kind: npt.NDArray[np.int8]
    subject: npt.NDArray[np.int64]  # the op of a compute, the tensor of a copy or drop
    level: npt.NDArray[np.int8]  # where a compute's results go, where a copy comes from, where a drop happens
    to: npt.NDArray[np.int8]  # where a copy goes
    op_names: Sequence[str]
    tensor_names: Sequence[str]
    level_names: Sequence[str]

    @classmethod
    def of(cls, graph: Graph, machine: Machine, moves: Iterable[Move | Sequence[str]]) -> Moves:
        """Return moves, or their words as they stand in files, as numbers; or say which one names what does not exist."""
        if isinstance(moves, Moves) and moves.is_for(graph, machine):
            return moves
        given = [move.words if isinstance(move, Compute | Copy | Drop) else move for move in moves]
        count = len(given)
        ops, tensors = graph.op_numbers, graph.tensor_numbers
        levels = {name: i for i, name in enumerate(machine.names)}
        kind, subject, level, to = [0] * count, [0] * count, [0] * count, [0] * count
        for i, words in enumerate(given):
            try:
                what = words[0]
                if what == "compute" and len(words) <= 3:
                    subject[i] = ops[words[1]]
                    level[i] = levels[words[2]] if len(words) == 3 else 0
                elif what == "copy" and len(words) == 4:
                    kind[i], subject[i], level[i], to[i] = COPY, tensors[words[1]], levels[words[2]], levels[words[3]]
                elif what == "drop" and len(words) == 3:
                    kind[i], subject[i], level[i] = DROP, tensors[words[1]], levels[words[2]]
                else:
                    raise IndexError
            except (IndexError, KeyError, TypeError):
                raise _explain(graph, machine, i, words) from None
        return cls._named(graph, machine, kind, subject, level, to)

    @classmethod
    def computes(cls, graph: Graph, machine: Machine, order: npt.ArrayLike) -> Moves:
        """Return the moves that only compute: the ops, as positions in program order, one after the other."""
        ops = np.asarray(order, np.int64)
        nothing = np.zeros(len(ops), np.int8)
        return cls._named(graph, machine, nothing, ops, nothing, nothing)

    @classmethod
    def numbered(
        cls, graph: Graph, machine: Machine, kind: npt.ArrayLike, subject: npt.ArrayLike, level: npt.ArrayLike | None = None,
        to: npt.ArrayLike | None = None,
    ) -> Moves:  # fmt: skip
        """Return moves that a kernel made: kinds, and the numbers of ops or tensors and of levels (all 0 where not given)."""
        nothing = np.zeros(len(np.asarray(kind)), np.int8)
        return cls._named(
            graph, machine, kind, subject, nothing if level is None else level, nothing if to is None else to
        )

    @classmethod
    def _named(cls, graph: Graph, machine: Machine, kind: Any, subject: Any, level: Any, to: Any) -> Moves:
        return cls(
            np.asarray(kind, np.int8),
            np.asarray(subject, np.int64),
            np.asarray(level, np.int8),
            np.asarray(to, np.int8),
            graph.op_names,
            graph.tensor_names,
            machine.names,
        )

    def is_for(self, graph: Graph, machine: Machine) -> bool:
        """Return whether the numbers mean the same in a graph and on a machine."""
        pairs = ((self.op_names, graph.op_names), (self.tensor_names, graph.tensor_names))
        return all(a is b or list(a) == list(b) for a, b in pairs) and list(self.level_names) == machine.names

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """The ops in the order in which they run, as positions in program order."""
        ops: npt.NDArray[np.int64] = self.subject[self.kind == COMPUTE]
        return ops

    @overload
    def __getitem__(self, index: int) -> Move: ...
    @overload
    def __getitem__(self, index: slice) -> Moves: ...
    def __getitem__(self, index: int | slice) -> Move | Moves:
        if isinstance(index, slice):
            columns = (self.kind[index], self.subject[index], self.level[index], self.to[index])
            return Moves(*columns, self.op_names, self.tensor_names, self.level_names)
        return self._read(int(self.kind[index]), int(self.subject[index]), int(self.level[index]), int(self.to[index]))

    def __iter__(self) -> Iterator[Move]:
        columns = (self.kind.tolist(), self.subject.tolist(), self.level.tolist(), self.to.tolist())
        return (self._read(*row) for row in zip(*columns, strict=True))

    def __len__(self) -> int:
        return len(self.kind)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3]))
        return f"Moves([{shown}{', ...' if len(self) > 3 else ''}], {len(self)} moves)"

    def words(self) -> list[tuple[str, ...]]:
        """Return the moves as they stand in a file."""
        return [move.words for move in self]

    def _read(self, kind: int, subject: int, level: int, to: int) -> Move:
        if kind == COMPUTE:
            return Compute(self.op_names[subject], self.level_names[level] if level else None)
        if kind == COPY:
            return Copy(self.tensor_names[subject], self.level_names[level], self.level_names[to])
        return Drop(self.tensor_names[subject], self.level_names[level])


@dataclass
class MoveList:
    """Moves as they are thought of, number by number: ops, tensors and levels.

    >>> from pebbler import machine, workloads
    >>> found = MoveList()
    >>> found.copy(0, 1, 0); found.compute(0); found.drop(0, 0)
    >>> list(found.moves(workloads.chain(2), machine("red-blue")))
    [Copy('N0', 'slow', 'fast'), Compute('c1'), Drop('N0', 'fast')]
    """

    kind: list[int] = field(default_factory=list)
    subject: list[int] = field(default_factory=list)
    level: list[int] = field(default_factory=list)
    to: list[int] = field(default_factory=list)

    def compute(self, op: int, level: int = 0) -> None:
        """Run an op; its results go to a level."""
        self._add(COMPUTE, op, level, 0)

    def copy(self, tensor: int, source: int, target: int) -> None:
        """Copy a tensor's value from level to level."""
        self._add(COPY, tensor, source, target)

    def drop(self, tensor: int, level: int) -> None:
        """Give up a tensor's value in a level."""
        self._add(DROP, tensor, level, 0)

    def moves(self, graph: Graph, machine: Machine) -> Moves:
        """Return the moves of a plan of this graph on this machine."""
        return Moves._named(graph, machine, self.kind, self.subject, self.level, self.to)

    def _add(self, kind: int, subject: int, level: int, to: int) -> None:
        self.kind.append(kind)
        self.subject.append(subject)
        self.level.append(level)
        self.to.append(to)

    def __len__(self) -> int:
        return len(self.kind)


def _explain(graph: Graph, machine: Machine, i: int, words: Sequence[Any]) -> InputError:
    """Return a description of the error in the words of a move."""
    place = f"moves[{i}]"
    said = [word if isinstance(word, str) else repr(word) for word in words[:5]]
    got = f"got [{', '.join(map(quoted, said))}{', ...' if len(words) > 5 else ''}]"
    if len(words) == 0 or words[0] not in _SHAPES:
        return InputError(f"{place}: expected one of {', '.join(_SHAPES.values())}; {got}")
    if len(words) in _LENGTHS[words[0]] and all(isinstance(word, str) for word in words):
        try:
            graph.op_index(words[1]) if words[0] == "compute" else graph.tensor_index(words[1])
            for name in words[2:]:
                machine.level_index(name)
        except InputError as error:
            return InputError(f"{place}: {error}")
    return InputError(f"{place}: expected {_SHAPES[words[0]]}; {got}")
