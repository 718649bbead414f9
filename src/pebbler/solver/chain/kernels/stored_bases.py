"""The choice of chain nodes that the first sweep stores, and their use by the backward steps above them."""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Floats, Ints, Shorts
from pebbler.compiled import kernel
from pebbler.solver.chain.kernels.general_table import least_split, reach_table

__all__ = ["stored_bases"]


@kernel
def stored_bases(
    size: Ints,
    prefix: Floats,
    width: Ints,
    memory: int,
    adjoint: bool,
    store: Floats,
    load: Floats,
    drop: Floats,
    keep: Floats,
    monotone: bool,
) -> tuple[Floats, Ints, Shorts]:
    """Return, for t = 0..n, the least cost of serving the steps t-1 .. 0 from stored bases; the topmost base; and how.

    How, by base x and top t: 0 where x is loaded once and stays red; otherwise the split up to which the loaded x is carried,
    negative when the node above is made again.
    """
    n = size.size - 1
    slide = reach_table(size, width, width, memory, False)
    how = np.zeros((n, n), np.int16)
    total, base = np.full(n + 1, np.inf), np.full(n + 1, -1, np.int64)
    total[0] = 0.0
    both = np.minimum(drop, keep)
    segment = np.empty(n)
    # Bases from the bottom up: total[x] is final before x is tried, because it takes only bases below x.
    for x in range(n):
        if total[x] == np.inf or store[x] == np.inf or load[x] == np.inf:
            continue
        start = x + 1
        far = n if adjoint else slide[x, memory]
        for t in range(x, n):
            at = t * (t + 1) // 2
            least, split = both[at + x], 0
            # Up to `kept` a sweep that gives up x leaves room for the node above t. If `monotone`, a longer carry overtakes a
            # shorter one once and for good (`both` satisfies the quadrangle inequality): the search starts where it last ended.
            kept = min(t, far)
            if not adjoint:
                kept = min(kept, slide[x, memory - size[t + 1]]) if size[t + 1] <= memory else x
            carried, z = least_split(start, kept, at, prefix, both, segment)
            again, y = least_split(max(start, kept + 1), min(t, far), at, prefix, drop, segment)
            if again < carried:
                carried, z = again, y
            if z > 0:
                if monotone:
                    start = z
                if carried - prefix[x] < least:
                    least = carried - prefix[x]
                    split = z if z <= kept and keep[at + z] <= drop[at + z] else -z
            segment[t] = load[x] + least
            how[x, t] = split
            cost = total[x] + store[x] + segment[t]
            if cost < total[t + 1]:
                total[t + 1], base[t + 1] = cost, x
    return total, base, how
