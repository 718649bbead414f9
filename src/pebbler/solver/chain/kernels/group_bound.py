"""The bound of `segment_bound` without its one simplification, for short chains: what waits is followed node by node.

The recurrence is proven in docs/chains.md. Node i + 1 is N_i, as there. A *group* are the backward steps t .. f, done from a node
y that is red when step t's phase begins and may be given up on the way; nothing else of the group is there at first, and `m` units
are for all of it, y included.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Floats
from pebbler.compiled import kernel
from pebbler.solver.chain.kernels.segment_bound import BoundChain

__all__ = ["GroupTables", "close_groups", "fill_node", "group_tables"]


class GroupTables(NamedTuple):
    """What groups cost at least, by their last step, their first, and units of memory."""

    swept: Floats  # [t, f, m]: the least of all nodes above y, with the steps from N_0
    loaded: Floats  # the same with the cheapest load instead
    group: Floats  # [f, t, m]: of the node y at hand
    inside: Floats  # [t, f, m]: the groups of nodes above y, with y red beside them


@kernel
def group_tables(tops: int, units: int) -> GroupTables:
    """Return tables of groups with nothing filled in."""
    shape = (tops + 1, tops + 1, units)
    return GroupTables(np.full(shape, np.inf), np.full(shape, np.inf), np.full(shape, np.inf), np.full(shape, np.inf))


@kernel(fastmath={"nnan", "nsz"}, _nrt=False, no_cpython_wrapper=True)
def _lower_by_groups(group: Floats, inside: Floats, f: int, t: int) -> None:
    """Lower group (f, t) by all groups t .. g inside, followed by the steps g - 1 .. f from the same node."""
    for g in range(f + 1, t):
        for m in range(group.shape[2]):
            group[f, t, m] = min(group[f, t, m], inside[t, g, m] + group[f, g - 1, m])


@kernel
def _alone(chain: BoundChain, t: int, third: int, room: int) -> float:
    """Return what the step t alone costs beyond having N_t: the node above, if it has to be made again."""
    if room < chain.need[t]:
        return np.inf
    return 0.0 if room >= chain.need[t] + third else float(chain.again[t])


@kernel
def _load_price(chain: BoundChain, cheapest: float, y: int, t: int, f: int) -> float:
    """Return the least price of having y by way of a load, with the share of its store for the steps t .. f."""
    least = np.inf
    for j in range(y, 1, -1):
        steps = chain.prefix[y] - chain.prefix[j]
        if cheapest + steps >= least:
            break
        share = min(chain.store[j], chain.prefix[t + 1] - chain.prefix[j])
        share -= min(chain.store[j], chain.prefix[f] - chain.prefix[j])
        least = min(least, chain.load[j] + steps + share)
    return least


@kernel
def _look_inside(chain: BoundChain, tables: GroupTables, cheapest: float, y: int) -> None:
    """Set what groups above y cost while y stays red: `m` units less the room of y."""
    swept, loaded, inside = tables.swept, tables.loaded, tables.inside
    tops, units = swept.shape[0] - 1, swept.shape[2]
    for t in range(y + 1, tops + 1):
        third = 0 if t - 1 == y else chain.third[t]
        price = _load_price(chain, cheapest, t, t, t) if t < tops and t > 1 else np.inf
        for m in range(units):
            room = m - chain.size[y]
            inside[t, t, m] = np.inf
            if room >= chain.need[t]:
                steps = chain.prefix[t] - chain.prefix[y]
                inside[t, t, m] = min(steps + _alone(chain, t, third, room), price)
        for g in range(y + 1, t):
            for m in range(units):
                inside[t, g, m] = np.inf
            for m in range(chain.size[y], units):
                room = m - chain.size[y]
                inside[t, g, m] = min(swept[t, g, room] - chain.prefix[y], loaded[t, g, room])


@kernel
def fill_node(chain: BoundChain, tables: GroupTables, y: int) -> None:
    """Fill in the groups of node y; those of higher nodes are in `swept` and `loaded`."""
    swept, loaded, group, inside = tables.swept, tables.loaded, tables.group, tables.inside
    tops, units = swept.shape[0] - 1, swept.shape[2]
    cheapest = np.min(chain.load)
    _look_inside(chain, tables, cheapest, y)
    for f in range(y, tops + 1):
        for t in range(f, tops + 1):
            group[f, t, :] = np.inf
            steps = chain.prefix[t] - chain.prefix[y]
            for m in range(units):
                if t == y:
                    if m >= chain.need[y]:
                        group[f, t, m] = 0.0
                elif t == f:  # y is given up for the last step
                    group[f, t, m] = steps + _alone(chain, t, chain.third[t], m)
                else:  # y is given up, or stays while t is done alone
                    alone = inside[t, t, m] + group[f, t - 1, m]
                    group[f, t, m] = min(alone, swept[t, f, m] - chain.prefix[y])
            _lower_by_groups(group, inside, f, t)
    for t in range(y, tops + 1):
        for f in range(y, t):
            price = _load_price(chain, cheapest, y, t, f) if y > 1 and t < tops else np.inf
            for m in range(units):
                swept[t, f, m] = min(swept[t, f, m], chain.prefix[y] + group[f, t, m])
                loaded[t, f, m] = min(loaded[t, f, m], price + group[f, t, m])


@kernel
def close_groups(chain: BoundChain, tables: GroupTables, store_of_first: float) -> float:
    """Return the bound of the whole chain once N_0's groups are filled in: N_0 stays in fast memory, or it is stored."""
    swept, loaded, group = tables.swept, tables.loaded, tables.group
    tops, most = swept.shape[0] - 1, swept.shape[2] - 1
    least = float(group[1, tops, most])
    cheapest = np.min(chain.load)
    below: Floats = np.full(tops + 1, np.inf)  # the steps t .. 1 with nothing red at first
    below[0] = 0.0
    for t in range(1, tops if store_of_first + chain.first < np.inf else 0):
        third = 0 if t == 1 else chain.third[t]
        price = _load_price(chain, cheapest, t, t, t) if t > 1 else np.inf
        if most >= chain.need[t]:
            alone = chain.first + chain.prefix[t] + _alone(chain, t, third, most)
            below[t] = min(alone, price) + below[t - 1]
        for g in range(1, t):
            run = min(chain.first + swept[t, g, most], loaded[t, g, most])
            below[t] = min(below[t], run + below[g - 1])
    for f in range(1, tops + 1):
        least = min(least, store_of_first + float(group[f, tops, most]) + below[f - 1])
    return least
