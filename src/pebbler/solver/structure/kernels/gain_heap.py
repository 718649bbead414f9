"""A heap of ops by what moving them gains; of equal gains, what changed last is on top."""

from __future__ import annotations

from pebbler.arrays import Floats, Ints
from pebbler.compiled import inner_kernel

__all__ = ["insert", "remove", "sift_down", "sift_up"]


@inner_kernel(forceinline=False)
def sift_up(heap: Ints, place: Ints, key: Floats, stamp: Ints, at: int) -> None:
    one = heap[at]
    while at > 0:
        up = (at - 1) >> 1
        other = heap[up]
        if key[one] < key[other] or (key[one] == key[other] and stamp[one] <= stamp[other]):
            break
        heap[at], place[other] = other, at
        at = up
    heap[at], place[one] = one, at


@inner_kernel(forceinline=False)
def sift_down(heap: Ints, place: Ints, key: Floats, stamp: Ints, at: int, count: int) -> None:
    one = heap[at]
    while True:
        down = 2 * at + 1
        if down >= count:
            break
        other = heap[down]
        if down + 1 < count:
            right = heap[down + 1]
            if key[right] > key[other] or (key[right] == key[other] and stamp[right] > stamp[other]):
                down, other = down + 1, right
        if key[other] < key[one] or (key[other] == key[one] and stamp[other] <= stamp[one]):
            break
        heap[at], place[other] = other, at
        at = down
    heap[at], place[one] = one, at


@inner_kernel(forceinline=False)
def insert(heap: Ints, place: Ints, key: Floats, stamp: Ints, one: int, count: int) -> int:
    heap[count], place[one] = one, count
    sift_up(heap, place, key, stamp, count)
    return count + 1


@inner_kernel(forceinline=False)
def remove(heap: Ints, place: Ints, key: Floats, stamp: Ints, one: int, count: int) -> int:
    at, count = place[one], count - 1
    place[one] = -1
    if at < count:
        other = heap[count]
        heap[at], place[other] = other, at
        sift_up(heap, place, key, stamp, at)
        sift_down(heap, place, key, stamp, place[other], count)
    return count
