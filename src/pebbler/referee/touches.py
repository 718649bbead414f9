"""The memory accesses of an order of ops, as runs of addresses, one address per unit.

Addresses come from one of two allocators, the same for every schedule that is compared. Both start every block on a line.

- `own`: every storage has addresses of its own, in the order in which the tensors are declared.
- `reuse`: inputs and params have addresses of their own; any other storage takes the lowest free block when an op writes it
  afresh (first fit, lowest address), and gives it back after the op that uses it last. A result never takes the block of
  something its own op reads. An op that reads and writes a storage updates it where it is. Outputs keep their block.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from pebbler.arrays import Bools, Ints
from pebbler.game.dataflow import NONE, Dataflow
from pebbler.game.graph import Graph
from pebbler.referee.kernels.allocation import OpTouches, allocate
from pebbler.referee.kernels.lru_stack import Runs, cut_runs

__all__ = ["Touches", "touch", "touches_of_ops"]

# Per graph, by allocator and line: searches have many orders of one graph judged.
_known: WeakKeyDictionary[Dataflow, dict[tuple[str, int], OpTouches]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Touches:
    """Blocks of units in the order in which a schedule touches them: per step the op's reads in order, then its writes."""

    address: Ints  # the first unit
    units: Ints
    write: Bools
    tensor: Ints
    step: Ints  # position in the schedule

    @classmethod
    def of(cls, ops: OpTouches, order: Ints) -> Touches:
        """Return the touches of the ops run in `order`."""
        touched, where, _ = allocate(ops, order)
        counts = np.diff(ops.start)[order]
        return cls(
            where * ops.line,
            ops.units[touched],
            ops.write[touched],
            ops.tensor[touched],
            np.repeat(np.arange(len(order)), counts),
        )

    def in_lines(self, line: int) -> tuple[Runs, Ints, Ints]:
        """Return the touches cut into runs of lines that are equal or share no line, the touch and the first line of each.

        Then every run is touched whole whenever it is touched, so all its lines are at one depth of an LRU stack.
        """
        runs, touched, edges = cut_runs(self.address // line, -(-self.units // line), self.units, self.write, line)
        return runs, touched, edges[runs.item]


def touch(graph: Graph, order: npt.ArrayLike, allocator: str = "own", line: int = 1) -> Touches:
    """Return the touches of the ops run in `order` (positions in program order).

    >>> from pebbler.workloads import chain
    >>> t = touch(chain(2), [0, 1])
    >>> t.address.tolist(), t.write.tolist()
    ([0, 1, 1, 2], [False, True, False, True])
    """
    return Touches.of(touches_of_ops(graph, allocator, line), np.asarray(order, np.int64))


def touches_of_ops(graph: Graph, allocator: str, line: int) -> OpTouches:
    """Return the touches of each op of a graph, and the way its storages get their addresses.

    >>> from pebbler.workloads import chain
    >>> touches_of_ops(chain(2), "reuse", 1).home.tolist()[:2]  # N0 is there at the start, N1 comes and goes
    [0, -1]
    """
    known = _known.setdefault(graph.dataflow, {})
    if (allocator, line) not in known:
        known[allocator, line] = _touches_of_ops(graph, allocator, line)
    return known[allocator, line]


def _touches_of_ops(graph: Graph, allocator: str, line: int) -> OpTouches:
    flow = graph.dataflow
    sizes = flow.tensor_size
    room = -(-sizes // line)
    start, storage, tensor, write, fresh = [0], [], [], [], []
    owner, root = flow.value_tensor.tolist(), flow.storage.tolist()
    for reads, writes in zip(flow.op_reads, flow.op_writes, strict=True):
        tensors = [owner[value] for value in (*reads.tolist(), *writes.tolist())]
        roots = [root[one] for one in tensors]
        tensor += tensors
        storage += roots
        write += [False] * len(reads) + [True] * len(writes)
        read_roots = set(roots[: len(reads)])
        fresh += [False] * len(reads) + [one not in read_roots for one in roots[len(reads) :]]
        start.append(len(storage))
    home = np.full(len(sizes), NONE, np.int64)
    lasting = np.zeros(len(sizes), np.bool_)
    if allocator == "own":
        fixed = np.unique(flow.storage)
        lasting[:] = True
    else:
        fixed = np.unique(flow.storage[np.flatnonzero(flow.start_value != NONE)])
        lasting[flow.storage[[i for i, one in enumerate(graph.tensors) if one.kind != "temp"]]] = True
    home[fixed] = np.cumsum(room[fixed]) - room[fixed]
    touched = np.array(tensor, np.int64)
    return OpTouches(
        start=np.array(start, np.int64),
        storage=np.array(storage, np.int64),
        tensor=touched,
        lines=room[touched],
        units=sizes[touched],
        write=np.array(write, np.bool_),
        fresh=np.array(fresh, np.bool_),
        room=room,
        home=home,
        lasting=lasting,
        top=int(room[fixed].sum()),
        line=line,
    )
