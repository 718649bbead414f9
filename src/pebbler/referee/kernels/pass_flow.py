"""The largest flow from values that some ops read to whatever brings these values: a load, what is there, or a run of their makers.

Dinic's algorithm. A value passes on to its maker as much as its capacity allows; an op keeps what it may absorb and passes the rest
on to what it reads. Values that nothing makes keep what they get. The caller checks the flow, so it does not have to trust this.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array, Ints
from pebbler.compiled import inner_kernel, kernel

__all__ = ["FlowNet", "largest_flow"]

_VALUE_DOWN, _UNDO_READ, _READ, _UNDO_VALUE, _KEEP = 0, 1, 2, 3, 4  # kinds of steps
_ENDLESS = 1 << 60


class FlowNet(NamedTuple):
    """The readers and makers of values."""

    maker: Ints  # per value, -1 for what is given
    read_start: Ints  # per op: its reads are numbered
    read_value: Ints  # per read
    read_op: Ints
    use_start: Ints  # per value: numbers of reads
    use_items: Ints
    write_start: Ints  # per op: values
    write_items: Ints


@inner_kernel(forceinline=False)
def _step(
    net: FlowNet, node: int, turn: int, capacity: Ints, absorb: Ints, forced: Array, flow: Ints, reads: Ints, kept: Ints
) -> tuple[int, int, int, int]:
    """Return the next node (-1 is the end, -2 none), how much more may go there, the kind of step, and what it is of."""
    values = len(net.maker)
    if node < values:
        if turn == 0:
            left = capacity[node] - flow[node]
            if net.maker[node] < 0:
                return -1, left, _VALUE_DOWN, node
            if forced[net.maker[node]]:
                return -2, 0, _VALUE_DOWN, node
            return values + net.maker[node], left, _VALUE_DOWN, node
        read = net.use_items[net.use_start[node] + turn - 1]
        if forced[net.read_op[read]]:
            return -2, 0, _UNDO_READ, read
        return values + net.read_op[read], reads[read], _UNDO_READ, read
    op = node - values
    if turn == 0:
        return -1, absorb[op] - kept[op], _KEEP, op
    count = net.read_start[op + 1] - net.read_start[op]
    if turn <= count:
        read = net.read_start[op] + turn - 1
        return net.read_value[read], _ENDLESS, _READ, read
    value = net.write_items[net.write_start[op] + turn - 1 - count]
    return value, flow[value], _UNDO_VALUE, value


@inner_kernel
def _turns(net: FlowNet, node: int) -> int:
    values = len(net.maker)
    if node < values:
        return int(1 + net.use_start[node + 1] - net.use_start[node])
    op = node - values
    reads = net.read_start[op + 1] - net.read_start[op]
    return int(1 + reads + net.write_start[op + 1] - net.write_start[op])


@kernel
def largest_flow(
    net: FlowNet, sources: Ints, capacity: Ints, absorb: Ints, forced: Array, work: int
) -> tuple[Ints, Ints, Ints]:
    """Return a flow through values, along reads and into ops: a largest one, or less after so many steps.

    `forced` ops are beyond the sources, which are values that they read: nothing goes through them.
    """
    values, ops = len(net.maker), len(net.read_start) - 1
    flow, reads, kept = np.zeros(values, np.int64), np.zeros(len(net.read_value), np.int64), np.zeros(ops, np.int64)
    level, turn = np.full(values + ops, -1, np.int64), np.zeros(values + ops, np.int64)
    queue, nodes = np.empty(values + ops, np.int64), np.empty(values + ops + 1, np.int64)
    kinds, subjects = np.empty(values + ops + 1, np.int64), np.empty(values + ops + 1, np.int64)
    rooms = np.empty(values + ops + 2, np.int64)
    while work > 0:
        head, tail, end = 0, 0, -1
        for source in sources:
            if level[source] < 0:
                level[source] = 0
                queue[tail] = source
                tail += 1
        while head < tail:
            node = queue[head]
            head += 1
            if end >= 0 and level[node] >= end:
                continue
            for number in range(_turns(net, node)):
                work -= 1
                target, left, _, _ = _step(net, node, number, capacity, absorb, forced, flow, reads, kept)
                if left <= 0 or target == -2:
                    continue
                if target == -1:
                    end = level[node]
                    break
                if level[target] < 0:
                    level[target] = level[node] + 1
                    queue[tail] = target
                    tail += 1
        if end >= 0:
            for source in sources:
                nodes[0], rooms[0], depth = source, _ENDLESS, 0
                while depth >= 0:
                    node, moved = nodes[depth], False
                    while turn[node] < _turns(net, node):
                        work -= 1
                        target, left, kind, of = _step(
                            net, node, turn[node], capacity, absorb, forced, flow, reads, kept
                        )
                        if left > 0 and (target == -1 or (target >= 0 and level[target] == level[node] + 1)):
                            kinds[depth], subjects[depth], rooms[depth + 1] = kind, of, min(rooms[depth], left)
                            moved = True
                            break
                        turn[node] += 1
                    if not moved:
                        depth -= 1
                        if depth >= 0:
                            turn[nodes[depth]] += 1
                        continue
                    if target >= 0:
                        depth += 1
                        nodes[depth] = target
                        continue
                    amount = rooms[depth + 1]
                    for at in range(depth + 1):
                        of = subjects[at]
                        if kinds[at] == _VALUE_DOWN:
                            flow[of] += amount
                        elif kinds[at] == _UNDO_READ:
                            reads[of] -= amount
                        elif kinds[at] == _READ:
                            reads[of] += amount
                        elif kinds[at] == _UNDO_VALUE:
                            flow[of] -= amount
                        else:
                            kept[of] += amount
                    depth = 0
        for number in range(tail):
            level[queue[number]], turn[queue[number]] = -1, 0
        if end < 0:
            break
    return flow, reads, kept
