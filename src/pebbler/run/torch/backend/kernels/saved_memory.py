"""Peak and cost of a step for a choice of saved values, on flat arrays: quick enough to rank thousands of choices.

What is fused is guessed by one rule (`_peak`), and so are the bytes that kernels move. Schedules of a few choices say what is
really held and taken, and correct all others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Bools, Ints
from pebbler.compiled import kernel
from pebbler.run.torch.backend.kernels.step_arrays import CALL, GIVEN, INLINED, VIEW, StepArrays

__all__ = ["SavedRun", "simulate_saved"]


class SavedRun(NamedTuple):
    """Forward or backward with a choice of saved values: its nodes in order, and what that holds and costs.

    `held` are the bytes at each place of the order, what the graph was given not counted; `until` says of the storages that are
    there at some time at which place they are read last, -1 for the others.
    """

    order: Ints
    held: Ints
    until: Ints
    cost: float


@kernel
def _backward_order(step: StepArrays, saved: Bools, order: Ints) -> int:
    """Write the nodes that run in backward: as traced, what is computed again just before it is read first; return how many."""
    nodes = len(step.kind)
    done = saved | (step.kind == GIVEN)
    stack = np.empty(len(step.inputs) + nodes + 1, np.int64)
    count = 0
    for node in range(nodes):
        if done[node] or not (step.tangent[node] or step.backward_end[node]):
            continue
        begin, depth = count, 1
        stack[0] = node
        while depth:
            depth -= 1
            i = stack[depth]
            if not done[i]:
                done[i] = True
                order[count] = i
                count += 1
                for k in range(step.first_input[i], step.first_input[i + 1]):
                    stack[depth] = step.inputs[k]
                    depth += 1
        if count - begin > 1:
            order[begin:count] = np.sort(order[begin:count])
    return count


@kernel
def _forward_order(step: StepArrays, saved: Bools, order: Ints) -> int:
    nodes = len(step.kind)
    needed = saved | step.forward_end
    for i in range(nodes - 1, -1, -1):
        if needed[i]:
            for k in range(step.first_input[i], step.first_input[i + 1]):
                needed[step.inputs[k]] = True
    count = 0
    for i in range(nodes):
        if needed[i] and step.kind[i] != GIVEN:
            order[count] = i
            count += 1
    return count


@kernel
def _run(step: StepArrays, order: Ints, results: Bools, held: Bools, donated: Bools, fusing: bool) -> SavedRun:
    """Return the bytes held while nodes run in this order, and the cost of running them.

    `held` is there at the start; it and what is made goes after its last use, `results` apart. All are about storages; `donated`
    may be written over.

    A value that can be computed inside of its readers has no memory if no call reads it and it is read once, or by what runs
    between the same calls as itself: that is one kernel. The cost is that of calls, of bytes that kernels write and read, each
    kernel a value once, at most two of them counted, of random numbers, and of a launch for what runs between the same calls.
    """
    nodes = len(step.kind)
    place = np.full(nodes, -1, np.int64)
    level = np.zeros(nodes, np.int64)  # how many calls there are at most on a way to a node
    for t in range(len(order)):
        node = order[t]
        place[node] = t
        for k in range(step.first_input[node], step.first_input[node + 1]):
            source = step.inputs[k]
            if place[source] >= 0:
                level[node] = max(level[node], level[source] + (step.kind[source] == CALL))
    written = np.ones(nodes, np.bool_)
    last = np.full(nodes, -1, np.int64)  # when a node is read last, through views and through what is not written
    readers = np.zeros(nodes, np.int64)  # how many read it, through views too
    called = np.zeros(nodes, np.bool_)  # whether one of them is a call
    low, high = np.full(nodes, nodes, np.int64), np.full(nodes, -1, np.int64)  # levels of these
    first, final = np.full(nodes, nodes, np.int64), np.full(nodes, -1, np.int64)  # levels of the kernels that read it
    moved, cost = 0, 0.0
    for node in range(nodes - 1, -1, -1):
        for k in range(step.first_user[node], step.first_user[node + 1]):
            user = step.users[k]
            if place[user] < 0:
                continue
            view = step.kind[user] == VIEW
            inside = view or not written[user]
            last[node] = max(last[node], last[user] if inside else place[user])
            readers[node] += readers[user] if view else 1
            called[node] |= called[user] if view else step.kind[user] == CALL
            low[node] = min(low[node], low[user] if view else level[user])
            high[node] = max(high[node], high[user] if view else level[user])
            if inside or step.kind[user] != CALL:
                first[node] = min(first[node], first[user] if inside else level[user])
                final[node] = max(final[node], final[user] if inside else level[user])
        here = place[node] >= 0
        last[node] = max(last[node], place[node])
        if here and fusing and step.kind[node] == INLINED and readers[node] and not called[node]:
            apart = low[node] != level[node] or high[node] != level[node]
            written[node] = results[node] or (readers[node] > 1 and apart)
        if step.kind[node] == VIEW and here:
            continue
        fused = here and step.kind[node] != CALL
        if fused and written[node]:
            moved += step.size[node]
        if final[node] >= 0 and (written[node] or not fused):  # what the kernel that makes it reads of it is there
            kernels = 1 + (first[node] != final[node]) - (fused and first[node] == level[node])
            moved += step.size[step.storage[node]] * kernels
        if here:
            cost += step.cost[node] if step.kind[node] == CALL else step.drawing[node]
    launches, before = 0, -1
    for node in order:
        if written[node] and step.kind[node] != CALL and step.kind[node] != VIEW and level[node] != before:
            before = level[node]
            launches += 1
    cost += moved * step.byte_cost + launches * step.launch_cost
    bytes_held, until = _held(step, order, place, written, last, results, held, donated, fusing)
    return SavedRun(order, bytes_held, until, cost)


@kernel
def _held(
    step: StepArrays, order: Ints, place: Ints, written: Bools, last: Ints, results: Bools, held: Bools, donated: Bools,
    fusing: bool,
) -> tuple[Ints, Ints]:  # fmt: skip
    """Return the bytes held at each place of the order, and the place at which each storage is read last."""
    nodes = len(step.kind)
    gone = np.zeros(len(order) + 1, np.int64)  # bytes that go after each node
    free = np.zeros(len(order) + 1, np.int64)  # the largest of them that may be written over
    until = np.full(nodes, -1, np.int64)
    for i in range(nodes):  # a storage goes after the last use of whatever looks at it
        if not held[step.storage[i]]:
            continue
        if place[i] >= 0:  # where what a view looks at is made again, that is not what is held
            if step.kind[i] == VIEW and place[step.storage[i]] < 0:
                until[step.storage[i]] = max(until[step.storage[i]], last[i])
            continue
        for k in range(step.first_user[i], step.first_user[i + 1]):
            user = step.users[k]
            if place[user] >= 0:
                through = step.kind[user] == VIEW or not written[user]
                until[step.storage[i]] = max(until[step.storage[i]], last[user] if through else place[user])
    now = 0
    for i in range(nodes):
        if held[i]:
            if results[i] or until[i] >= 0:
                now += step.size[i]
            if until[i] >= 0 and not results[i]:
                gone[until[i]] += step.size[i]
                if donated[i]:
                    free[until[i]] = max(free[until[i]], step.size[i])
        if place[i] >= 0 and step.storage[i] == i and written[i]:
            until[i] = last[i]
            if not results[i]:
                gone[last[i]] += step.size[i]
                if last[i] > place[i]:
                    free[last[i]] = max(free[last[i]], step.size[i])
    most = np.full(max(1, len(order)), now, np.int64)
    for t in range(len(order)):
        node = order[t]
        new = step.size[node] if step.storage[node] == node and written[node] else 0
        inside = fusing and step.kind[node] != CALL and new and free[t] == new
        most[t] = now if inside else now + new
        now += new - gone[t]
    return most, until


@kernel
def simulate_saved(step: StepArrays, saved: Bools, fusing: bool) -> tuple[SavedRun, SavedRun, bool]:
    """Return forward and backward where values are saved, and whether backward may run what it would.

    `saved` becomes what is needed.
    """
    nodes = len(step.kind)
    order = np.empty(nodes, np.int64)
    backward = order[: _backward_order(step, saved, order)].copy()
    needed = step.backward_end.copy()
    legal = True
    for node in backward:
        legal &= not step.fixed[node]
        for k in range(step.first_input[node], step.first_input[node + 1]):
            needed[step.inputs[k]] = True
    for i in range(nodes):
        saved[i] = needed[i] and (saved[i] or (step.kind[i] == GIVEN and step.fixed[i]))
    forward = order[: _forward_order(step, saved, order)].copy()
    nothing, kept, held = np.zeros(nodes, np.bool_), np.zeros(nodes, np.bool_), np.zeros(nodes, np.bool_)
    donated, results = np.zeros(nodes, np.bool_), np.zeros(nodes, np.bool_)
    for i in range(nodes):
        place = step.storage[i]
        if saved[i] or step.forward_end[i]:
            kept[place] = kept[i] = True
        if saved[i] and step.kind[place] != GIVEN:
            held[place] = donated[place] = True
        if step.kind[i] == GIVEN and step.tangent[i]:
            held[i] = True
        if step.backward_end[i]:
            results[place] = results[i] = True
    for i in range(nodes):
        if step.forward_end[i]:  # whoever called may still hold it
            donated[step.storage[i]] = False
    first = _run(step, forward, kept, nothing, nothing, fusing)
    return first, _run(step, backward, results, held, donated, fusing), legal
