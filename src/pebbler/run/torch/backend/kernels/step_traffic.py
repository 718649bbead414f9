"""The cost of a pass: its calls, and the bytes that its fused kernels read and write, with each kernel launched once.

Kernels that Inductor would join are taken together: those between the same calls. There a value is read once, and not at all
where it is made. A reduction over much ends a kernel as a call does, since nothing can read its result before it is done.
"""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Bools, Ints
from pebbler.compiled import kernel
from pebbler.run.torch.backend.kernels.step_arrays import CALL, GIVEN, VIEW, StepArrays, depths

__all__ = ["step_traffic"]


@kernel
def step_traffic(
    step: StepArrays, order: Ints, place: Ints, stored: Bools, written: Bools, count: Ints, reads: Ints
) -> float:
    """Return the cost of nodes that run in this order.

    `stored` are those that run as expressions of their own, each reading `count` nodes, the first of `reads`; of these, only
    `written` are sure to be in memory, the others where another kernel reads them.
    """
    nodes = len(step.kind)
    stage = depths(step, order, place, step.apart)  # how many kernels must have ended before a node, at least
    at = np.full(nodes, -1, np.int64)  # the stage in which a storage was read last
    done = np.zeros(nodes, np.int64)  # bytes of it that were read there
    needed = written.copy()
    moved, launches, before = 0, 0, -1
    cost = 0.0
    for node in order:
        kind = step.kind[node]
        if kind == CALL:
            cost += step.cost[node]
        if kind in (CALL, VIEW) or not stored[node]:
            continue
        if stage[node] != before:
            before = stage[node]
            launches += 1
        for r in range(count[node]):
            value = reads[node, r]
            place_of = step.storage[value]
            if place[place_of] >= 0 and step.kind[place_of] != CALL:
                if stage[place_of] == stage[node]:
                    continue
                needed[place_of] = True
            if at[place_of] != stage[node]:
                at[place_of] = stage[node]
                done[place_of] = 0
            most = min(step.size[place_of], step.extent[value], step.reach[node])
            more = max(0, min(most, step.size[place_of] - done[place_of]))
            done[place_of] += more
            moved += more
    for node in order:
        if needed[node] and step.storage[node] == node and step.kind[node] != CALL and step.kind[node] != GIVEN:
            moved += step.size[node]
    return cost + moved * step.byte_cost + launches * step.launch_cost
