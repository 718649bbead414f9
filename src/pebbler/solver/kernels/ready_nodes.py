"""The ready list of list scheduling inside kernels: nodes that wait for nothing more, in no particular order."""

from __future__ import annotations

from pebbler.arrays import Ints
from pebbler.compiled import kernel

__all__ = ["first_ready", "run_ready"]


@kernel(inline="always")
def first_ready(waits: Ints, ready: Ints) -> int:
    """Fill `ready` with the nodes that wait for nothing; return their number."""
    count = 0
    for node in range(len(waits)):
        if waits[node] == 0:
            ready[count] = node
            count += 1
    return count


@kernel(inline="always")
def run_ready(at: int, ready: Ints, count: int, waits: Ints, after_start: Ints, after: Ints) -> int:
    """Take the node at `ready[at]` off the list and put on it those that waited for it alone; return the new number."""
    node = ready[at]
    count -= 1
    ready[at] = ready[count]
    for k in range(after_start[node], after_start[node + 1]):
        waits[after[k]] -= 1
        if waits[after[k]] == 0:
            ready[count] = after[k]
            count += 1
    return count
