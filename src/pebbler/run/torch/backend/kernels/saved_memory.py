"""Peak and cost of a step for a choice of saved values, on flat arrays; which values are never written, as Inductor decides it.

Inductor computes a value inside every kernel that reads it, unless a call reads it, it is a result, or it is read more than once
and is itself made from many values; what it then writes is still left out where all readers join the same kernel. `step_traffic`
says what all of that costs.
"""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Array, Bools, Ints
from pebbler.compiled import kernel
from pebbler.run.torch.backend.kernels.copy_timing import time_loads, time_stores
from pebbler.run.torch.backend.kernels.step_arrays import CALL, GIVEN, INLINED, VIEW, StepArrays, depths
from pebbler.run.torch.backend.kernels.step_traffic import step_traffic

__all__ = ["END", "simulate_saved"]

END = -1  # instead of a node: after the last one

_READS = 4  # values that a value read more than once may be made from without being written
_MOST_READS = 8  # the same where it is read once
_OPERATIONS = 30  # operations in one expression


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
def _written(step: StepArrays, order: Ints, place: Ints, results: Bools, fusing: bool) -> tuple[Bools, Ints, Ints]:
    """Return which nodes are in memory of their own when they run in this order, and what their expressions read.

    Of what is read the first rows are told: for every node how many, and the nodes.
    """
    nodes = len(step.kind)
    written = np.zeros(nodes, np.bool_)
    reads = np.empty((nodes, _MOST_READS + 1), np.int64)
    count = np.zeros(nodes, np.int64)
    weight = np.zeros(nodes, np.int64)
    for node in order:
        kind = step.kind[node]
        users, called = 0, False
        for k in range(step.first_user[node], step.first_user[node + 1]):
            user = step.users[k]
            if place[user] >= 0:
                users += 1
                called |= step.kind[user] == CALL
        for k in range(step.first_input[node], step.first_input[node + 1]):
            source = step.inputs[k]
            inlined = place[source] >= 0 and not written[source]
            weight[node] += weight[source] if inlined else 1
            for r in range(count[source] if inlined else 1):
                value = reads[source, r] if inlined else source
                known = count[node] > _MOST_READS
                for other in range(count[node]):
                    known |= step.storage[reads[node, other]] == step.storage[value]
                if not known:
                    reads[node, count[node]] = value
                    count[node] += 1
        weight[node] += step.operations[node]
        if kind == VIEW:
            written[node] = written[step.storage[node]] or place[step.storage[node]] < 0
            if called and not written[node]:
                _write_below(step, place, written, node)
            continue
        large = weight[node] > _OPERATIONS or count[node] > _READS
        written[node] = (
            kind != INLINED or not fusing or called or results[node] or users == 0
            or (users > 1 and large) or count[node] > _MOST_READS
        )  # fmt: skip
    return written, count, reads


@kernel
def _write_below(step: StepArrays, place: Ints, written: Bools, view: int) -> None:
    """Write the value that a view looks at, because a call reads the view."""
    i = view
    while True:
        written[i] = True
        if step.kind[i] != VIEW or step.first_input[i] == step.first_input[i + 1]:
            return
        i = step.inputs[step.first_input[i]]
        if place[i] < 0:
            return


@kernel
def _peak(
    step: StepArrays, order: Ints, results: Bools, held: Bools, donated: Bools, left: Ints, fetched: Ints, fusing: bool
) -> tuple[int, float]:
    """Return the most bytes held while nodes run in this order, what the graph was given not counted, and what that costs.

    `held` is there at the start, or from the place where it is `fetched`; it and what is made goes after its last use, `results`
    apart, and not before the place where it has `left`. All are about storages; `donated` may be written over.
    """
    nodes = len(step.kind)
    place = np.full(nodes, -1, np.int64)
    for t in range(len(order)):
        place[order[t]] = t
    shown = results | (left >= 0)
    written, count, reads = _written(step, order, place, shown, fusing)
    stored = written.copy()
    level = depths(step, order, place, step.kind == CALL)  # how many calls there are at most on a way to a node
    last = np.full(nodes, -1, np.int64)  # when a node is read last, through views and through what is not written
    for t in range(len(order) - 1, -1, -1):
        node = order[t]
        until, together = -1, fusing and not shown[step.storage[node]]
        for k in range(step.first_user[node], step.first_user[node + 1]):
            user = step.users[k]
            if place[user] < 0:
                continue
            through = step.kind[user] == VIEW or not written[user]
            until = max(until, last[user] if through else place[user])
            together &= step.kind[user] != CALL and level[user] == level[node]
        last[node] = t if until < 0 else until
        if written[node] and together and until >= 0 and step.kind[node] == INLINED:
            written[node] = False
    cost: float = step_traffic(step, order, place, stored, written, count, reads)
    return _highest(step, order, place, written, last, results, held, donated, left, fetched, fusing), cost


@kernel
def _highest(
    step: StepArrays, order: Ints, place: Ints, written: Bools, last: Ints, results: Bools, held: Bools, donated: Bools,
    left: Ints, fetched: Ints, fusing: bool,
) -> int:  # fmt: skip
    nodes = len(step.kind)
    gone = np.zeros(len(order) + 1, np.int64)  # bytes that go after each node
    come = np.zeros(len(order) + 1, np.int64)  # bytes that are fetched before it
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
            if results[i]:
                now += step.size[i]
            elif until[i] >= 0:
                if fetched[i] >= 0:
                    come[fetched[i]] += step.size[i]
                else:
                    now += step.size[i]
                gone[until[i]] += step.size[i]
                if donated[i]:
                    free[until[i]] = max(free[until[i]], step.size[i])
        if place[i] >= 0 and step.storage[i] == i and written[i] and not results[i]:
            gone[max(last[i], left[i])] += step.size[i]
            if last[i] > place[i] and left[i] < last[i]:
                free[last[i]] = max(free[last[i]], step.size[i])
    most = now
    for t in range(len(order)):
        node = order[t]
        now += come[t]
        new = step.size[node] if step.storage[node] == node and written[node] else 0
        inside = fusing and step.kind[node] != CALL and new and free[t] == new
        most = max(most, now if inside else now + new)
        now += new - gone[t]
    return most


@kernel
def simulate_saved(
    step: StepArrays, saved: Bools, sent: Bools, seconds: Array, out: float, into: float, overlap: bool, ahead: int,
    resident: int, fusing: bool,
) -> tuple[int, float, bool, float, Ints, Ints]:  # fmt: skip
    """Return the peak, what the step costs, whether backward may run what it would, and what copies to the host do.

    Values that are `sent` go there, of those that are saved; nodes take `seconds`, bytes `out` and `into`, and at most `ahead`
    copies are under way.

    That is the time spent waiting for them, and for every value that is sent the nodes before which it has left and is fetched.
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
    use = np.full(nodes, -1, np.int64)
    for t in range(len(backward)):
        for k in range(step.first_input[backward[t]], step.first_input[backward[t] + 1]):
            source = step.inputs[k]
            if sent[source] and saved[source] and use[source] < 0:
                use[source] = t
    left, storing = time_stores(forward, step.size, sent & saved, seconds, out, overlap, ahead)
    fetched, loading = time_loads(backward, use, step.size, seconds, into, overlap, ahead)
    here = kept & (left < 0)
    first, cost = _peak(step, forward, here, nothing, nothing, left, np.full(nodes, -1, np.int64), fusing)
    second, more = _peak(step, backward, results, held, donated, np.full(nodes, -1, np.int64), fetched, fusing)
    for i in range(nodes):  # places become nodes
        if left[i] >= 0:
            left[i] = forward[left[i] + 1] if left[i] + 1 < len(forward) else END
        if fetched[i] >= 0:
            fetched[i] = backward[fetched[i]]
    return resident + max(first, second), cost + more, legal, storing + loading, left, fetched
