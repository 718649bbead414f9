"""The best that any cache can keep: which values to hold from one read to the next."""

from __future__ import annotations

import numpy as np

from pebbler.compiled import kernel

__all__ = ["kept_reads", "next_reads"]


@kernel
def next_reads(words: np.ndarray, is_write: np.ndarray, distinct: int) -> np.ndarray:
    """Return for every access the next read of its word, or -1 when it is never touched again or written first."""
    after = np.full(distinct, -1, np.int64)
    result = np.empty(len(words), np.int64)
    for t in range(len(words) - 1, -1, -1):
        result[t] = after[words[t]]
        after[words[t]] = -1 if is_write[t] else t
    return result


@kernel
def kept_reads(until: np.ndarray, capacity: int) -> np.ndarray:
    """Return which accesses find their word kept, when as many as possible of the stays [t, until[t]] are kept.

    At most `capacity` words are held between two accesses. Taking stays as they come and giving up the one that ends
    last whenever there are too many is optimal: it is Belady's rule with bypassing.
    """
    n = len(until)
    found = np.zeros(n, np.bool_)
    given_up = np.zeros(n, np.bool_)  # by the end of the stay
    # A binary heap of ends, the last on top. Stays that have ended sink to the bottom and never come up again, because
    # whatever is given up ends in the future.
    heap = np.empty(n, np.int64)
    size = 0
    held = 0
    begins = np.zeros(n, np.bool_)  # by the end of the stay: whether one ends there
    for t in range(n):
        if begins[t] and not given_up[t]:
            found[t] = True
            held -= 1
        end = until[t]
        if end < 0:
            continue
        begins[end] = True
        held += 1
        child = size
        size += 1
        while child > 0 and heap[(child - 1) // 2] < end:
            heap[child] = heap[(child - 1) // 2]
            child = (child - 1) // 2
        heap[child] = end
        if held > capacity:
            given_up[heap[0]] = True
            held -= 1
            size -= 1
            last = heap[size]
            parent = 0
            while True:
                child = 2 * parent + 1
                if child >= size:
                    break
                if child + 1 < size and heap[child + 1] > heap[child]:
                    child += 1
                if heap[child] <= last:
                    break
                heap[parent] = heap[child]
                parent = child
            heap[parent] = last
    return found
