"""Simulated annealing over sequences of ops.

Every change keeps the sequence legal, so only its price is in question: residency is carried over from the sequence before, and
only the storages that the change touches, or that no longer fit, get a new one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel, separate_kernel
from pebbler.solver.paging.kernels.random_draws import draw
from pebbler.solver.paging.kernels.residency import (
    AFTER,
    AT_START,
    BOUNDED,
    DURING,
    INNER,
    OLD,
    PART,
    READS,
    RESULT,
    UNTIL_FIRST,
    Accesses,
    PagingArrays,
    Residency,
    add_occupancy,
    empty_residency,
    list_accesses,
    total_cost,
)
from pebbler.solver.paging.kernels.residency_path import cheapest_residency
from pebbler.solver.paging.kernels.residency_search import reassign
from pebbler.solver.paging.kernels.sequence_changes import (
    RerunRules,
    can_rerun,
    delete_reruns,
    insert_reruns,
    shift_block,
    splice,
)

__all__ = ["SequenceWork", "search_sequences"]

Array = npt.NDArray[Any]


class SequenceWork(NamedTuple):
    """Limits of a search: a sweep over some positions, then some rounds of annealing."""

    high: int  # the sweep goes from position high - 1 down to low
    low: int
    rounds: int
    hot: float  # temperature of the first round, an energy
    cold: float  # of the last
    polish: int = 2  # times that a few storages are paged anew after a change


@INNER
def _same_accesses(accesses, new_accesses, where, storage):  # type: ignore[no-untyped-def]
    lo, hi, at = accesses.start[storage], accesses.start[storage + 1], new_accesses.start[storage]
    if hi - lo != new_accesses.start[storage + 1] - at:
        return False
    for i in range(hi - lo):
        if where[accesses.when[lo + i]] != new_accesses.when[at + i]:
            return False
    return True


@INNER
def _overloads(arrays, accesses, r, storage):  # type: ignore[no-untyped-def]
    """Whether a storage lies in a slot that is too full."""
    steps = len(accesses.sequence)
    lo, hi = accesses.start[storage], accesses.start[storage + 1]
    for at in range(len(arrays.capacity)):
        if arrays.capacity[at] > BOUNDED:
            continue
        if (
            arrays.masks[r.storage[storage, UNTIL_FIRST]] >> at & 1
            or arrays.masks[r.storage[storage, AT_START]] >> at & 1
        ):
            for slot in range(0, 2 * accesses.when[lo] + 1 if lo < hi else 2 * steps + 2):
                if r.used[at, slot] > arrays.capacity[at]:
                    return True
        for e in range(lo, hi):
            t = accesses.when[e]
            if arrays.masks[r.access[e, DURING]] >> at & 1 or r.access[e, RESULT] == at:
                if r.used[at, 2 * t + 1] > arrays.capacity[at] or r.used[at, 2 * t + 2] > arrays.capacity[at]:
                    return True
            if arrays.masks[r.access[e, AFTER]] >> at & 1:
                for slot in range(2 * t + 3, 2 * accesses.when[e + 1] + 1 if e + 1 < hi else 2 * steps + 2):
                    if r.used[at, slot] > arrays.capacity[at]:
                        return True
    return False


@PART
def _carry_residency(arrays, accesses, r, new_accesses, new, where, dirty):  # type: ignore[no-untyped-def]
    """Copy the residency of all storages that a change does not touch; fill `dirty` with the others and return their number."""
    for t in range(len(accesses.sequence)):
        if where[t] >= 0:
            new.result_level[where[t]] = r.result_level[t]
    differences = np.zeros((len(arrays.capacity), new.used.shape[1] + 1), np.int64)
    count = 0
    for storage in range(len(arrays.storage)):
        if not _same_accesses(accesses, new_accesses, where, storage):
            dirty[count] = storage
            count += 1
            continue
        for i in range(accesses.start[storage + 1] - accesses.start[storage]):
            for column in range(3):
                new.access[new_accesses.start[storage] + i, column] = r.access[accesses.start[storage] + i, column]
        for column in range(2):
            new.storage[storage, column] = r.storage[storage, column]
        new.cost[storage] = r.cost[storage]
        add_occupancy(arrays, new_accesses, new, differences, storage, np.int64(1), np.bool_(True))
    for at in range(len(arrays.capacity)):
        held = np.int64(0)
        for slot in range(new.used.shape[1]):
            held += differences[at, slot]
            new.used[at, slot] += held
    return count


@PART
def _remove_overloads(arrays, accesses, r, dirty, count, rng):  # type: ignore[no-untyped-def]
    """Take storages out until nothing is too full; add them to `dirty` and return the new number."""
    crowded = False
    for at in range(len(arrays.capacity)):
        for slot in range(r.used.shape[1]):
            crowded |= r.used[at, slot] > arrays.capacity[at]
    if not crowded:
        return count
    storages, touched = len(arrays.storage), count
    turn = draw(rng, storages)
    for i in range(storages):
        storage = (i + turn) % storages
        known = False
        for j in range(touched):
            known |= dirty[j] == storage
        if not known and _overloads(arrays, accesses, r, storage):
            add_occupancy(arrays, accesses, r, r.used, storage, np.int64(-1), np.bool_(False))
            dirty[count] = storage
            count += 1
    return count


@separate_kernel
def _page_changed(arrays, accesses, r, sequence, where, price_sums, rng, polish):  # type: ignore[no-untyped-def]
    """Return the accesses and residency of a changed sequence, and whether every storage found one."""
    new_accesses = list_accesses(arrays, sequence)
    new = empty_residency(arrays, new_accesses)
    storages = len(arrays.storage)
    dirty = np.empty(storages, np.int64)
    count = _carry_residency(arrays, accesses, r, new_accesses, new, where, dirty)
    count = _remove_overloads(arrays, new_accesses, new, dirty, count, rng)
    for i in range(count - 1, 0, -1):
        j = draw(rng, i + 1)
        dirty[i], dirty[j] = dirty[j], dirty[i]
    for i in range(count):
        found, _ = cheapest_residency(arrays, new_accesses, new, new.used, price_sums, np.float64(0.0), dirty[i])
        if not found:
            return new_accesses, new, False
        add_occupancy(arrays, new_accesses, new, new.used, dirty[i], np.int64(1), np.bool_(False))
    if count > 0:
        few = np.empty(4, np.int64)
        for _ in range(polish):
            n = np.int64(0)
            for _ in range(1 + draw(rng, np.int64(3))):
                storage = dirty[draw(rng, count)] if n == 0 or draw(rng, np.int64(2)) else draw(rng, storages)
                known = False
                for j in range(n):
                    known |= few[j] == storage
                if not known:
                    few[n] = storage
                    n += 1
            reassign(arrays, new_accesses, new, few, n, price_sums, np.float64(0.0), rng, np.int64(-1), np.int64(-1))
    return new_accesses, new, True


@PART
def _first_runs(sequence, first):  # type: ignore[no-untyped-def]
    """Fill in the position of every op's first run."""
    for t in range(len(sequence) - 1, -1, -1):
        first[sequence[t]] = t


@PART
def _sweep_reruns(arrays, rules, accesses, r, work, rng):  # type: ignore[no-untyped-def]
    """Try, for every op at positions high - 1 down to `low`, to make each operand again just before it; keep what is cheaper."""
    energy = total_cost(arrays, accesses, r)
    first = np.empty(len(arrays.op_cost), np.int64)
    changed, where = np.empty(rules.most + 64, np.int64), np.empty(rules.most + 64, np.int64)
    price_sums = np.zeros((len(arrays.capacity), 2 * rules.most + 200))
    picked = np.empty(1, np.int64)
    position = work.high - 1
    while position >= work.low:
        op = accesses.sequence[position]
        for k in range(arrays.operand_start[op], arrays.operand_start[op + 1]):
            steps = len(accesses.sequence)
            maker = rules.maker[arrays.operand[k, OLD]] if arrays.operand[k, READS] > 0 else np.int64(-1)
            if maker < 0 or steps >= rules.most or (position > 0 and accesses.sequence[position - 1] == maker):
                continue
            _first_runs(accesses.sequence, first)
            if not can_rerun(rules, first, maker, position):
                continue
            picked[0] = maker
            splice(accesses.sequence, position, picked, np.int64(1), changed, where)
            new_accesses, new, found = _page_changed(
                arrays, accesses, r, changed[: steps + 1].copy(), where, price_sums, rng, work.polish
            )
            if not found:
                continue
            price = total_cost(arrays, new_accesses, new)
            if price <= energy - 1e-9 * energy:  # only what is really cheaper
                accesses, r, energy = new_accesses, new, price
                position += 1  # the same reader, after what was put in before it
        position -= 1
    return accesses, r


@PART
def _anneal(arrays, rules, accesses, r, best_accesses, best_r, work, rng):  # type: ignore[no-untyped-def]
    """Change the sequence at random and keep what is cheaper, or costs little more while it is hot; return it and the best."""
    energy, least = total_cost(arrays, accesses, r), total_cost(arrays, best_accesses, best_r)
    first = np.empty(len(arrays.op_cost), np.int64)
    changed, where = np.empty(rules.most + 64, np.int64), np.empty(rules.most + 64, np.int64)
    price_sums = np.zeros((len(arrays.capacity), 2 * rules.most + 200))
    for i in range(work.rounds):
        steps = len(accesses.sequence)
        _first_runs(accesses.sequence, first)
        length, heat = 0, work.hot * (work.cold / work.hot) ** (i / work.rounds) if work.hot > 0 else 0.0
        kind = draw(rng, np.int64(10))
        if kind >= 8 and steps > len(arrays.op_cost):
            length = delete_reruns(accesses.sequence, first, rng, changed, where)
        elif kind >= 6 and steps < rules.most:
            length = insert_reruns(arrays, rules, accesses, first, rng, changed, where)
        elif shift_block(arrays, accesses.sequence, rng, changed, where):
            length = steps
        if length == 0:
            continue
        new_accesses, new, found = _page_changed(
            arrays, accesses, r, changed[:length].copy(), where, price_sums, rng, work.polish
        )
        if not found:
            continue
        price = total_cost(arrays, new_accesses, new)
        slack = 1e-12 * energy
        if heat > 0:
            slack -= heat * math.log((draw(rng, np.int64(1 << 30)) + 1.0) / (1 << 30))
        if price <= energy + slack:
            accesses, r, energy = new_accesses, new, price
            if price < least - 1e-9 * abs(least):
                best_accesses, best_r, least = new_accesses, new, price
    return accesses, r, best_accesses, best_r


@kernel
def search_sequences(
    arrays: PagingArrays, rules: RerunRules, accesses: Accesses, r: Residency, best_accesses: Accesses, best_r: Residency,
    work: SequenceWork, rng: Array,
) -> tuple[Accesses, Residency, Accesses, Residency]:  # fmt: skip
    """Sweep, then anneal; return where the search stands, and the best that annealing has seen."""
    accesses, r = _sweep_reruns(arrays, rules, accesses, r, work, rng)
    return _anneal(arrays, rules, accesses, r, best_accesses, best_r, work, rng)  # type: ignore[no-any-return]
