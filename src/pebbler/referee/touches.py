"""What an order of ops touches in memory: whole runs of addresses, one address per unit.

Addresses come from one of two allocators, the same for every schedule that is compared. Both start every block on a line.

- `own`: every storage has addresses of its own, in the order in which the tensors are declared.
- `reuse`: inputs and params have addresses of their own; any other storage takes the lowest free block when an op writes it
  afresh (first fit, lowest address), and gives it back after the op that uses it last. A result never takes the block of
  something its own op reads. An op that reads and writes a storage updates it where it is. Outputs keep their block.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph

__all__ = ["Touches", "touch"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Touches:
    """Runs of units in the order in which a schedule touches them: per step the op's reads in order, then its writes."""

    address: Ints  # the first unit
    units: Ints
    write: npt.NDArray[np.bool_]
    tensor: Ints
    step: Ints  # position in the schedule

    def in_lines(self, line: int) -> tuple[Ints, Ints, Ints, Ints]:
        """Return the runs cut so that any two are equal or share no line: first line, lines, units, and the run cut.

        Then every piece is touched whole whenever it is touched, so all its lines are at one depth of an LRU stack.
        """
        first = self.address // line
        lines = -(-self.units // line)
        bounds = np.unique(np.concatenate([first, first + lines]))
        low, high = np.searchsorted(bounds, first), np.searchsorted(bounds, first + lines)
        pieces = high - low
        run = np.repeat(np.arange(len(first)), pieces)
        index = low[run] + np.arange(len(run)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        length = bounds[index + 1] - bounds[index] if len(index) else np.zeros(0, np.int64)
        before = (bounds[index] - first[run]) * line
        return bounds[index], length, np.minimum(self.units[run] - before, length * line), run


def touch(graph: Graph, order: npt.ArrayLike, allocator: str = "own", line: int = 1) -> Touches:
    """Return what running the ops in `order` (positions in program order) touches.

    >>> from pebbler.workloads import chain
    >>> t = touch(chain(2), [0, 1])
    >>> t.address.tolist(), t.write.tolist()
    ([0, 1, 1, 2], [False, True, False, True])
    """
    flow = graph.dataflow
    steps = np.asarray(order, np.int64)
    tensor: list[int] = []
    write: list[bool] = []
    step: list[int] = []
    reads = [row.tolist() for row in flow.op_reads]
    writes = [row.tolist() for row in flow.op_writes]
    owner = flow.value_tensor.tolist()
    for i, op in enumerate(steps.tolist()):
        values = reads[op] + writes[op]
        tensor += [owner[value] for value in values]
        write += [False] * len(reads[op]) + [True] * len(writes[op])
        step += [i] * len(values)
    tensors = np.array(tensor, np.int64)
    sizes = np.array([one.size for one in graph.tensors], np.int64)
    storage = flow.storage[tensors]
    room = -(-sizes // line) * line
    address = np.zeros(len(sizes), np.int64)
    if allocator == "own":
        roots = np.unique(flow.storage)
        address[roots] = np.cumsum(room[roots]) - room[roots]
        where = address[storage]
    else:
        where = _reuse(graph, room, storage, np.array(write, np.bool_), np.array(step, np.int64))
    return Touches(where, sizes[tensors], np.array(write, np.bool_), tensors, np.array(step, np.int64))


def _reuse(graph: Graph, room: Ints, storage: Ints, write: npt.NDArray[np.bool_], step: Ints) -> Ints:
    """Return the address of every touch under the `reuse` allocator."""
    flow = graph.dataflow
    lasting = np.zeros(len(room), np.bool_)  # storages that keep their block to the end
    lasting[flow.storage[[i for i, tensor in enumerate(graph.tensors) if tensor.kind != "temp"]]] = True
    starts = flow.storage[np.flatnonzero(flow.start_value != NONE)]
    blocks: dict[int, int] = {}
    top = 0
    for root in np.unique(starts).tolist():
        blocks[root] = top
        top += int(room[root])
    free = _FreeList(top)
    fresh = _fresh_writes(storage, write, step)
    last = _last_uses(storage, fresh)
    where = np.empty(len(storage), np.int64)
    waiting: list[int] = []
    roots, steps = storage.tolist(), step.tolist()
    for i, root in enumerate(roots):
        if root not in blocks:
            blocks[root] = free.take(int(room[root]))
        where[i] = blocks[root]
        if last[i] and not lasting[root]:
            waiting.append(root)
        if i + 1 == len(roots) or steps[i + 1] != steps[i]:
            # Only now, after the op has its results, do the blocks that it used last become free.
            for done in waiting:
                free.give(blocks.pop(done), int(room[done]))
            waiting.clear()
    return where


def _fresh_writes(storage: Ints, write: npt.NDArray[np.bool_], step: Ints) -> npt.NDArray[np.bool_]:
    """Return which touches are writes whose op does not read the same storage: they begin a new life there."""
    key = step * (int(storage.max(initial=0)) + 1) + storage
    return write & ~np.isin(key, key[~write])


def _last_uses(storage: Ints, fresh: npt.NDArray[np.bool_]) -> list[bool]:
    """Return which touches are the last before their storage is written afresh or never touched again."""
    last = [False] * len(storage)
    begins_anew: dict[int, bool] = {}
    for i in range(len(storage) - 1, -1, -1):
        root = int(storage[i])
        last[i] = begins_anew.get(root, True)
        begins_anew[root] = bool(fresh[i])
    return last


class _FreeList:
    """Free blocks of an endless memory, by address; neighbours are merged."""

    def __init__(self, top: int) -> None:
        self.top = top
        self.blocks: list[tuple[int, int]] = []  # (address, length), sorted

    def take(self, length: int) -> int:
        for i, (address, room) in enumerate(self.blocks):
            if room >= length:
                rest = (address + length, room - length)
                self.blocks[i : i + 1] = [rest] if rest[1] else []
                return address
        if self.blocks and sum(self.blocks[-1]) == self.top:
            address, _ = self.blocks.pop()
            self.top = address + length
            return address
        self.top += length
        return self.top - length

    def give(self, address: int, length: int) -> None:
        if length == 0:
            return
        i = bisect_left(self.blocks, (address, length))
        if i < len(self.blocks) and self.blocks[i][0] == address + length:
            length += self.blocks.pop(i)[1]
        if i > 0 and sum(self.blocks[i - 1]) == address:
            before = self.blocks.pop(i - 1)
            address, length = before[0], before[1] + length
        insort(self.blocks, (address, length))
