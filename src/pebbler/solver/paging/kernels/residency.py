"""Placement of values during a sequence of ops, on flat arrays.

A *storage* holds one value after another, and at any moment its *state* says which levels hold a copy of the present one. A
sequence of T ops has 2T + 2 *slots*: slot 0 is the start, 2t + 1 the moment before op t computes, 2t + 2 the moment after,
2T + 1 the end. The *residency* of a storage is its state at every op that accesses it and between one access and the next.
Storages have only the capacities in common.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.compiled import inner_kernel, kernel, separate_kernel

__all__ = [
    "BOUNDED",
    "INFINITE",
    "INNER",
    "PART",
    "Accesses",
    "PagingArrays",
    "Residency",
    "add_occupancy",
    "empty_residency",
    "list_accesses",
    "storage_cost",
    "total_cost",
]

Array = npt.NDArray[Any]
INFINITE = 1e300
BOUNDED = 2**61  # capacities above this are no limit
INNER = inner_kernel(forceinline=False)
# Becomes part of its caller: numba compiles a function together with all that it calls, so every further layer costs as much again.
PART = kernel(inline="always")


# Few wide arrays rather than many narrow ones: every array that is passed on costs compile time and a reference count.
STORAGE, READS, OLD, MADE, DESTROYS = 0, 1, 2, 3, 4  # columns of PagingArrays.operand
BEGIN, WRAPS, FIRST, SURVIVES = 0, 1, 2, 3  # columns of PagingArrays.storage
DURING, AFTER, RESULT = 0, 1, 2  # columns of Residency.access
UNTIL_FIRST, AT_START = 0, 1  # columns of Residency.storage


class PagingArrays(NamedTuple):
    """Figures that do not depend on the sequence: machine, states, and the effect of every op on its storages."""

    fastest: bool  # operands must be in the fastest level
    capacity: Array  # per level
    write: Array  # per level: price per unit
    masks: Array  # per state: bits of the levels that hold a copy; state 0 is "nowhere"
    copy_price: Array  # [state, state]: price per unit of the copies that lead from one to the other
    state_read: Array  # per state: price per unit of reading
    join: Array  # [state, level]: the state with that level added, -1 if there is none
    size: Array  # per value
    operand_start: Array  # per op: its first row of `operand`
    operand: Array  # storage, how often its value is read, that value or -1, the value made or -1, whether the old one is destroyed
    op_cost: Array
    op_makes: Array  # number of values made
    storage: Array  # state at the start, whether it ends so too (a steady param), value at the start or -1, whether it survives
    step_price: float  # tiny price per unit and slot, so that ties go to the shorter stay


class Accesses(NamedTuple):
    """A sequence of ops, and when it accesses every storage."""

    sequence: Array
    start: Array  # per storage: its first access
    when: Array  # per access: position in the sequence
    operand: Array  # per access: row of `PagingArrays.operand`


class Residency(NamedTuple):
    """In which state every storage is when, and the room that takes."""

    access: Array  # state while the op computes, state from then to the next access, level that a result is written to or -1
    storage: Array  # state until the first access, state at the start
    cost: Array  # per storage
    used: Array  # [level, slot]
    result_level: Array  # per position: the common level of several results, -1 where each may go to its own


@kernel
def list_accesses(arrays: PagingArrays, sequence: Array) -> Accesses:
    """Return the accesses of a sequence, storage by storage."""
    storages = len(arrays.storage)
    start = np.zeros(storages + 1, np.int64)
    for t in range(len(sequence)):
        for k in range(arrays.operand_start[sequence[t]], arrays.operand_start[sequence[t] + 1]):
            start[arrays.operand[k, STORAGE] + 1] += 1
    for storage in range(storages):
        start[storage + 1] += start[storage]
    fill = start[:-1].copy()
    when = np.empty(start[-1], np.int64)
    operand = np.empty(start[-1], np.int64)
    for t in range(len(sequence)):
        for k in range(arrays.operand_start[sequence[t]], arrays.operand_start[sequence[t] + 1]):
            storage = arrays.operand[k, STORAGE]
            when[fill[storage]] = t
            operand[fill[storage]] = k
            fill[storage] += 1
    return Accesses(sequence, start, when, operand)


@kernel
def empty_residency(arrays: PagingArrays, accesses: Accesses) -> Residency:
    """Return a residency with only the room that every plan needs: start values, and under "fastest" operands and results."""
    levels, storages, steps = len(arrays.capacity), len(arrays.storage), len(accesses.sequence)
    used = np.zeros((levels, 2 * steps + 2), np.int64)
    result_level = np.full(steps, -1, np.int64)
    for storage in range(storages):
        if arrays.storage[storage, FIRST] >= 0 and not arrays.storage[storage, WRAPS]:
            for at in range(levels):
                if arrays.masks[arrays.storage[storage, BEGIN]] >> at & 1:
                    used[at, 0] += arrays.size[arrays.storage[storage, FIRST]]
    for t in range(steps):
        op = accesses.sequence[t]
        if arrays.fastest:
            result_level[t] = 0
            for k in range(arrays.operand_start[op], arrays.operand_start[op + 1]):
                if arrays.operand[k, READS] > 0:
                    used[0, 2 * t + 1] += arrays.size[arrays.operand[k, OLD]]
                    if not arrays.operand[k, DESTROYS]:
                        used[0, 2 * t + 2] += arrays.size[arrays.operand[k, OLD]]
                if arrays.operand[k, MADE] >= 0:
                    used[0, 2 * t + 2] += arrays.size[arrays.operand[k, MADE]]
        elif arrays.op_makes[op] > 1:
            result_level[t] = levels - 1
    access = np.zeros((len(accesses.when), 3), np.int64)
    access[:, RESULT] = -1
    return Residency(access, np.zeros((storages, 2), np.int64), np.full(storages, INFINITE), used, result_level)


@INNER
def _occupy(masks, capacity, used, state, size, a, b, skip_fastest, sign, as_differences):  # type: ignore[no-untyped-def]
    """Add a stay in slots a..b."""
    mask = masks[state]
    if a > b or size == 0:
        return
    for at in range(len(capacity)):
        if mask >> at & 1 and capacity[at] < BOUNDED and not (skip_fastest and at == 0):
            if as_differences:
                used[at, a] += sign * size
                used[at, b + 1] -= sign * size
            else:
                for slot in range(a, b + 1):
                    used[at, slot] += sign * size


@separate_kernel(_nrt=False)
def add_occupancy(arrays, accesses, r, used, storage, sign, as_differences):  # type: ignore[no-untyped-def]
    """Add (or with sign -1 take away) the room of one storage to `used`.

    With `as_differences`, `used` gets only the differences from slot to slot, which is quicker for many storages at a time.
    """
    masks, capacity = arrays.masks, arrays.capacity
    end_slot = 2 * len(accesses.sequence) + 1
    zero, one, every_level = np.int64(0), np.int64(1), np.bool_(False)
    lo, hi = accesses.start[storage], accesses.start[storage + 1]
    first = arrays.storage[storage, FIRST]
    size = arrays.size[first] if first >= 0 else np.int64(0)
    if arrays.storage[storage, WRAPS]:
        _occupy(
            masks, capacity, used, r.storage[storage, AT_START], size, zero, zero, every_level, sign, as_differences
        )
    end = 2 * accesses.when[lo] if lo < hi else end_slot
    _occupy(masks, capacity, used, r.storage[storage, UNTIL_FIRST], size, one, end, every_level, sign, as_differences)
    for e in range(lo, hi):
        t, k = accesses.when[e], accesses.operand[e]
        old, made, destroys = arrays.operand[k, OLD], arrays.operand[k, MADE], arrays.operand[k, DESTROYS]
        state = r.access[e, DURING]
        if old >= 0:
            reserved = arrays.fastest and arrays.operand[k, READS] > 0
            last = 2 * t + 1 if destroys else 2 * t + 2
            _occupy(masks, capacity, used, state, arrays.size[old], 2 * t + 1, last, reserved, sign, as_differences)
        size = arrays.size[made if made >= 0 else old]
        slot = 2 * t + 2
        if made >= 0 and not arrays.fastest:
            held = 0 if destroys else masks[state]
            if not held >> r.access[e, RESULT] & 1:
                there = arrays.join[0, r.access[e, RESULT]]
                _occupy(masks, capacity, used, there, size, slot, slot, every_level, sign, as_differences)
        elif made >= 0 and not destroys and masks[state] & 1:
            # The result's room is reserved already.
            _occupy(masks, capacity, used, arrays.join[0, 0], size, slot, slot, every_level, -sign, as_differences)
        end = 2 * accesses.when[e + 1] if e + 1 < hi else end_slot
        _occupy(masks, capacity, used, r.access[e, AFTER], size, 2 * t + 3, end, every_level, sign, as_differences)


@INNER
def storage_cost(arrays, accesses, r, storage):  # type: ignore[no-untyped-def]
    """Return the cost of the residency of one storage: copies, and under "any" reads and writes."""
    first = arrays.storage[storage, FIRST]
    size = float(arrays.size[first]) if first >= 0 else 0.0
    state = r.storage[storage, UNTIL_FIRST]
    total = size * arrays.copy_price[r.storage[storage, AT_START], state]
    for e in range(accesses.start[storage], accesses.start[storage + 1]):
        k = accesses.operand[e]
        old, made, reads = arrays.operand[k, OLD], arrays.operand[k, MADE], arrays.operand[k, READS]
        if old >= 0:
            size = float(arrays.size[old])
            total += size * arrays.copy_price[state, r.access[e, DURING]]
            if not arrays.fastest and reads > 0:
                total += reads * size * arrays.state_read[r.access[e, DURING]]
        state = r.access[e, DURING]
        if made >= 0:
            size = float(arrays.size[made])
            state = arrays.join[0 if arrays.operand[k, DESTROYS] else state, r.access[e, RESULT]]
            if not arrays.fastest:
                total += size * arrays.write[r.access[e, RESULT]]
        total += size * arrays.copy_price[state, r.access[e, AFTER]]
        state = r.access[e, AFTER]
    return total


@kernel
def total_cost(arrays: PagingArrays, accesses: Accesses, r: Residency) -> float:
    """Return the energy of the sequence with this residency."""
    total = 0.0
    for op in accesses.sequence:
        total += arrays.op_cost[op]
    for storage in range(len(r.cost)):
        total += r.cost[storage]
    return total
