"""Residency for all storages together: one after another, then improved a few at a time, and priced by Lagrange multipliers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel, separate_kernel
from pebbler.solver.paging.kernels.random_draws import draw
from pebbler.solver.paging.kernels.residency import (
    AFTER,
    BOUNDED,
    INFINITE,
    INNER,
    MADE,
    OLD,
    PART,
    STORAGE,
    UNTIL_FIRST,
    WRAPS,
    Accesses,
    PagingArrays,
    Residency,
    add_occupancy,
    empty_residency,
    storage_cost,
)
from pebbler.solver.paging.kernels.residency_path import cheapest_residency

__all__ = ["account_all", "lagrangian_bound", "page_storages", "reassign", "room_time_per_use"]

Array = npt.NDArray[Any]
WORSE = 1e-9  # a relative difference that is rounding, not a gain


@kernel
def room_time_per_use(arrays: PagingArrays, accesses: Accesses) -> Array:
    """Return room x time between uses of every storage: those with the least gain most from room near the processor."""
    storages, steps = len(arrays.storage), len(accesses.sequence)
    key = np.empty(storages)
    for storage in range(storages):
        lo, hi = accesses.start[storage], accesses.start[storage + 1]
        if lo == hi:
            key[storage] = INFINITE
            continue
        k = accesses.operand[hi - 1]
        size = arrays.size[arrays.operand[k, MADE] if arrays.operand[k, MADE] >= 0 else arrays.operand[k, OLD]]
        span = steps if arrays.storage[storage, WRAPS] else accesses.when[hi - 1] - accesses.when[lo]
        key[storage] = float(size) * (span + 1) / max(1, hi - lo - 1)
    return key


@kernel
def account_all(arrays: PagingArrays, accesses: Accesses, r: Residency) -> None:
    """Fill in the cost and the room of every storage from its states; `r.used` holds only what every plan needs."""
    for storage in range(len(arrays.storage)):
        r.cost[storage] = storage_cost(arrays, accesses, r, storage)
        add_occupancy(arrays, accesses, r, r.used, storage, np.int64(1), np.bool_(False))


@PART
def _assign_in_turn(arrays, accesses, r, order, price_sums, scale):  # type: ignore[no-untyped-def]
    """Give storages one by one the cheapest residency in the room that is left; return whether all found one."""
    for storage in order:
        found, _ = cheapest_residency(arrays, accesses, r, r.used, price_sums, scale, storage)
        if not found:
            return False
        add_occupancy(arrays, accesses, r, r.used, storage, np.int64(1), np.bool_(False))
    return True


@INNER
def _random_resident(arrays, accesses, r, slot, rng):  # type: ignore[no-untyped-def]
    """Return a storage that takes bounded room in a slot, or any when a few draws find none."""
    storages = len(arrays.storage)
    for _ in range(8):
        storage = draw(rng, storages)
        state = r.storage[storage, UNTIL_FIRST]
        for e in range(accesses.start[storage], accesses.start[storage + 1]):
            if 2 * accesses.when[e] + 1 > slot:
                break
            state = r.access[e, AFTER]
        for at in range(len(arrays.capacity)):
            if arrays.capacity[at] < BOUNDED and arrays.masks[state] >> at & 1:
                return storage
    return draw(rng, storages)


@separate_kernel
def reassign(arrays, accesses, r, chosen, count, price_sums, scale, rng, position, level):  # type: ignore[no-untyped-def]
    """Take a few storages out and put them back in a random order, and keep that unless it costs more.

    With `position >= 0` the results of that op also move to `level`.
    """
    length = 0
    for i in range(count):
        length += accesses.start[chosen[i] + 1] - accesses.start[chosen[i]]
    saved_access, saved_storage, saved_cost = (
        np.empty((length, 3), np.int64),
        np.empty((count, 2), np.int64),
        np.empty(count),
    )
    at, before = 0, 0.0
    for i in range(count):
        storage = chosen[i]
        add_occupancy(arrays, accesses, r, r.used, storage, np.int64(-1), np.bool_(False))
        before += r.cost[storage]
        saved_cost[i] = r.cost[storage]
        for column in range(2):
            saved_storage[i, column] = r.storage[storage, column]
        for e in range(accesses.start[storage], accesses.start[storage + 1]):
            for column in range(3):
                saved_access[at, column] = r.access[e, column]
            at += 1
    old_level = np.int64(-1)
    if position >= 0:
        old_level = r.result_level[position]
        r.result_level[position] = level
    order = np.arange(count)
    for i in range(count - 1, 0, -1):
        j = draw(rng, i + 1)
        order[i], order[j] = order[j], order[i]
    after, done = 0.0, 0
    for i in order:
        found, _ = cheapest_residency(arrays, accesses, r, r.used, price_sums, scale, chosen[i])
        if not found:
            after = INFINITE
            break
        add_occupancy(arrays, accesses, r, r.used, chosen[i], np.int64(1), np.bool_(False))
        done += 1
        after += r.cost[chosen[i]]
    if after <= before * (1 + WORSE):
        return
    for i in order[:done]:
        add_occupancy(arrays, accesses, r, r.used, chosen[i], np.int64(-1), np.bool_(False))
    if position >= 0:
        r.result_level[position] = old_level
    at = 0
    for i in range(count):
        storage = chosen[i]
        r.cost[storage] = saved_cost[i]
        for column in range(2):
            r.storage[storage, column] = saved_storage[i, column]
        for e in range(accesses.start[storage], accesses.start[storage + 1]):
            for column in range(3):
                r.access[e, column] = saved_access[at, column]
            at += 1
        add_occupancy(arrays, accesses, r, r.used, storage, np.int64(1), np.bool_(False))


@PART
def _choose_neighbours(arrays, accesses, r, t, chosen, count, taken, rng):  # type: ignore[no-untyped-def]
    """Choose, besides the first `count`, a few storages that meet near position t; return how many are chosen then."""
    storages, steps = len(arrays.storage), len(accesses.sequence)
    wish = count + 1 + draw(rng, np.int64(6))
    reach = 1 + draw(rng, 1 + min(steps, 1 << draw(rng, np.int64(8))))
    for _ in range(3 * wish):
        if count >= min(wish, storages):
            break
        storage = np.int64(-1)
        if draw(rng, np.int64(2)):
            op = accesses.sequence[min(steps - 1, max(0, t + draw(rng, 2 * reach + 1) - reach))]
            first, last = arrays.operand_start[op], arrays.operand_start[op + 1]
            if last > first:
                storage = arrays.operand[first + draw(rng, last - first), STORAGE]
        else:
            storage = _random_resident(arrays, accesses, r, 2 * t + 1 + draw(rng, np.int64(2)), rng)
        if storage >= 0 and not taken[storage]:
            taken[storage] = True
            chosen[count] = storage
            count += 1
    return count


@PART
def _improve(arrays, accesses, r, price_sums, rounds, rng):  # type: ignore[no-untyped-def]
    """Take a few storages that meet somewhere out and put them back unless that costs more, `rounds` times."""
    storages, steps, levels = len(arrays.storage), len(accesses.sequence), len(arrays.capacity)
    if storages == 0 or steps == 0:
        return
    taken = np.zeros(storages, np.bool_)
    chosen = np.empty(storages, np.int64)
    shared = False  # whether some op has several results, which go to one level together
    for t in range(steps):
        shared |= r.result_level[t] >= 0 and not arrays.fastest
    for _ in range(rounds):
        count, position, level = np.int64(0), np.int64(-1), np.int64(-1)
        t = draw(rng, steps)
        if shared and draw(rng, np.int64(4)) == 0:
            for ahead in range(steps):
                if r.result_level[(t + ahead) % steps] >= 0:
                    position, level = (t + ahead) % steps, draw(rng, levels)
                    break
            op = accesses.sequence[position]
            for k in range(arrays.operand_start[op], arrays.operand_start[op + 1]):
                if arrays.operand[k, MADE] >= 0:
                    chosen[count] = arrays.operand[k, STORAGE]
                    taken[chosen[count]] = True
                    count += 1
            t = int(position)
        count = _choose_neighbours(arrays, accesses, r, t, chosen, count, taken, rng)
        scale = 0.5 * draw(rng, np.int64(3))
        reassign(arrays, accesses, r, chosen, count, price_sums, scale, rng, position, level)
        for i in range(count):
            taken[chosen[i]] = False


@kernel
def page_storages(
    arrays: PagingArrays, accesses: Accesses, r: Residency, order: Array, price_sums: Array, scale: float, rounds: int, rng: Array
) -> bool:  # fmt: skip
    """Give the storages of `order` a residency in turn, return whether all found one, and improve all for some rounds.

    `price_sums` are prefix sums over slots of what room is worth to others, counted `scale` times at first and then now more, now
    less.
    """
    if not _assign_in_turn(arrays, accesses, r, order, price_sums, scale):
        return False
    _improve(arrays, accesses, r, price_sums, rounds, rng)
    return True


@PART
def _price_alone(arrays, accesses, r, reserved, prices):  # type: ignore[no-untyped-def]
    """Give every storage its cheapest residency alone at these prices; return the Lagrangian's value, infinite if one has none.

    `r.used` then says how much room they take together.
    """
    levels, slots = len(arrays.capacity), reserved.shape[1]
    price_sums = np.zeros((levels, slots + 1))
    worth = 0.0
    for at in range(levels):
        for slot in range(slots):
            price_sums[at, slot + 1] = price_sums[at, slot] + prices[at, slot]
            if arrays.capacity[at] < BOUNDED:
                worth += prices[at, slot] * (arrays.capacity[at] - reserved[at, slot])
    value = 0.0
    for op in accesses.sequence:
        value += arrays.op_cost[op]
    value -= worth
    differences = np.zeros((levels, slots + 1), np.int64)
    for storage in range(len(arrays.storage)):
        found, priced = cheapest_residency(arrays, accesses, r, reserved, price_sums, np.float64(1.0), storage)
        if not found:
            return INFINITE
        value += priced
        add_occupancy(arrays, accesses, r, differences, storage, np.int64(1), np.bool_(True))
    for at in range(levels):
        held = np.int64(0)
        for slot in range(slots):
            held += differences[at, slot]
            r.used[at, slot] = reserved[at, slot] + held
    return value


@PART
def _subgradient_step(arrays, used, prices, length):  # type: ignore[no-untyped-def]
    """Raise prices where too much is held, lower them where room is left; return False where there is nothing to do."""
    levels, slots = used.shape
    norm = 0.0
    for at in range(levels):
        if arrays.capacity[at] < BOUNDED:
            for slot in range(slots):
                over = float(used[at, slot] - arrays.capacity[at])
                if over > 0 or prices[at, slot] > 0:
                    norm += (over / arrays.capacity[at]) ** 2
    if norm == 0.0 or length <= 0.0:
        return False
    for at in range(levels):
        if arrays.capacity[at] < BOUNDED:
            for slot in range(slots):
                over = float(used[at, slot] - arrays.capacity[at])
                if over > 0 or prices[at, slot] > 0:
                    change = length / norm * over / (arrays.capacity[at] * arrays.capacity[at])
                    prices[at, slot] = max(0.0, prices[at, slot] + change)
    return True


@kernel
def lagrangian_bound(
    arrays: PagingArrays, accesses: Accesses, prices: Array, target: float, rounds: int, patience: int
) -> tuple[float, Array]:
    """Raise the Lagrangian bound of this sequence by subgradient steps from `prices`; return the best bound and its prices.

    Capacities become prices per unit and slot; every storage then takes its cheapest residency alone. Whatever the prices, the
    sum less what the whole room is worth is below every residency of this sequence. `target` is the energy of the best one known.
    """
    r = empty_residency(arrays, accesses)
    reserved = r.used.copy()
    if not arrays.fastest:
        r.result_level.fill(-1)  # results of one op may part ways here: a relaxation
    prices = prices.copy()
    best, best_prices = -INFINITE, prices.copy()
    step, stale = 1.0, 0
    for _ in range(rounds):
        value = _price_alone(arrays, accesses, r, reserved, prices)
        if value >= INFINITE:
            return INFINITE, best_prices
        if value > best + 1e-6 * abs(best):
            best, stale = value, 0
            best_prices = prices.copy()
        else:
            stale += 1
            if stale >= patience:
                step, stale = 0.5 * step, 0
                prices = best_prices.copy()
                if step < 1e-3:
                    break
                continue
        if not _subgradient_step(arrays, r.used, prices, step * (target - value)):
            break
    return best, best_prices
