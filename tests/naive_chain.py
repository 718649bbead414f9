"""The chain game by brute force: the cheapest path through every position, every legal move tried from each.

Nothing here follows from theory: nodes may be stored, loaded, dropped and computed at any time, in any order.
"""

from __future__ import annotations

import heapq
import math
from functools import cache

import numpy as np
from numba import njit

from pebbler.solver.chain import Chain


def naive_energy(chain: Chain) -> float:
    """Return the least energy of a chain; infinity if it cannot be done."""
    arrays = (np.array(values, float) for values in (chain.forward, chain.backward, chain.store, chain.load))
    sizes = np.array(chain.sizes, np.int64)
    if chain.adjoint:
        return float(_adjoint(chain.length, sizes, *arrays, chain.fast))
    where = ("fast", "slow", "both").index(chain.start)
    return float(_red_blue(chain.length, sizes, *arrays, chain.fast, where))


@njit(cache=True)
def _red_blue(n, size, forward, backward, store, load, fast, start):
    m = n + 1
    least = np.full((m + 1) << (2 * m), np.inf)
    red, blue = (0, 1) if start == 1 else (1, 0) if start == 0 else (1, 1)
    first = m << (2 * m) | red << m | blue
    least[first] = 0.0
    heap = [(0.0, first)]
    while len(heap) > 0:
        cost, here = heapq.heappop(heap)
        if cost > least[here]:
            continue
        step, red, blue = (here >> (2 * m)) - 1, here >> m & (1 << m) - 1, here & (1 << m) - 1
        if step < 0:
            return cost
        used = 0
        for k in range(m):
            used += size[k] * (red >> k & 1)
        if red >> step & 1 and (step == n or red >> (step + 1) & 1):
            _push(heap, least, step << (2 * m) | red << m | blue, cost + backward[step])
        for k in range(m):
            if red >> k & 1:
                _push(heap, least, here & ~(1 << (m + k)), cost)
                _push(heap, least, here | 1 << k, cost + store[k])
            elif used + size[k] <= fast:
                if k > 0 and red >> (k - 1) & 1:
                    _push(heap, least, here | 1 << (m + k), cost + forward[k])
                if blue >> k & 1:
                    _push(heap, least, here | 1 << (m + k), cost + load[k])
    return np.inf


@njit(cache=True)
def _adjoint(n, size, forward, backward, store, load, fast):
    """The running state is apart; checkpoints share the fast memory."""
    least = np.full(((n + 1) * n) << (2 * n), np.inf)
    first = (n * n) << (2 * n)
    least[first] = 0.0
    heap = [(0.0, first)]
    while len(heap) > 0:
        cost, here = heapq.heappop(heap)
        if cost > least[here]:
            continue
        red, blue, rest = here >> n & (1 << n) - 1, here & (1 << n) - 1, here >> (2 * n)
        running, step = rest % n, rest // n - 1
        if step < 0:
            return cost
        sets = red << n | blue
        used = 0
        for k in range(n):
            used += size[k] * (red >> k & 1)
        if running == step:
            _push(heap, least, (step * n + running) << (2 * n) | sets, cost + backward[step])
        if used + size[running] <= fast:
            _push(heap, least, here | 1 << (n + running), cost)
        _push(heap, least, here | 1 << running, cost + store[running])
        if running + 1 < n:
            _push(heap, least, ((step + 1) * n + running + 1) << (2 * n) | sets, cost + forward[running + 1])
        for k in range(n):
            if red >> k & 1:
                _push(heap, least, here & ~(1 << (n + k)), cost)
                _push(heap, least, ((step + 1) * n + k) << (2 * n) | sets, cost)
            if blue >> k & 1:
                _push(heap, least, ((step + 1) * n + k) << (2 * n) | sets, cost + load[k])
    return np.inf


@njit(cache=True)
def _push(heap, least, there, cost):
    if cost < least[there]:
        least[there] = cost
        heapq.heappush(heap, (cost, there))


def play(chain: Chain, moves) -> float:
    """Return what moves cost after checking each against the rules; assertions name the broken one."""
    red = set() if chain.adjoint or chain.start == "slow" else {0}
    blue = set() if chain.start == "fast" else {0}
    running, step, energy = 0, chain.last, 0.0
    for at, (kind, k) in enumerate(moves):
        where = (at, kind, k)
        if kind == "compute":
            assert running == k - 1 if chain.adjoint else k - 1 in red, where
            energy += chain.forward[k]
        elif kind == "load":
            assert k in blue, where
            energy += chain.load[k]
        elif kind == "store":
            assert running == k if chain.adjoint else k in red, where
            blue.add(k)
            energy += chain.store[k]
        elif kind == "drop":
            red.remove(k)
        elif kind == "snap":
            assert chain.adjoint, where
            assert running == k, where
        elif kind == "restore":
            assert chain.adjoint, where
            assert k in red, where
        else:
            assert kind == "backward", where
            assert k == step, where
            assert running == k if chain.adjoint else k in red, where
            assert chain.adjoint or k == chain.length or k + 1 in red, where
            energy += chain.backward[k]
            step -= 1
        if kind == "snap" or (not chain.adjoint and kind in ("compute", "load")):
            red.add(k)
        if chain.adjoint and kind in ("compute", "load", "restore"):
            running = k
        assert sum(chain.sizes[node] for node in red) <= chain.fast, where
    assert step == -1
    return energy


def naive_levels(forward, red, adjoint):
    """Return {(family, level, s, t): cost} of the recurrences in docs/chains.md, every split tried; pebbles of one unit."""
    n = len(forward) - 1
    cost = {}

    def between(s, z):
        return sum(forward[s + 1 : z + 1])

    def get(family, a, s, t):
        return cost.get((family, a, s, t), np.inf)

    def best(a, s, t):
        return min(get("drop", a, s, t), get("keep", a, s, t))

    for a in range(0 if adjoint else 2, red + 1):
        for length in range(n):
            for s in range(n - length):
                t = s + length
                if length == 0:
                    cost["keep", a, s, t] = 0
                    if not adjoint:
                        cost["drop", a, s, t] = forward[t + 1]
                    continue
                for family in ("keep",) if adjoint else ("drop", "keep"):
                    # A base and a sweeping pair take three pebbles, a kept one above makes four; a single step takes one less.
                    needs = 1 if adjoint else 3 if family == "drop" else 4
                    splits = [
                        z for z in range(s + 1, t + 1) if a >= needs or (not adjoint and z == s + 1 and a >= needs - 1)
                    ]
                    sums = [between(s, z) + get(family, a - 1, z, t) + best(a, s, z - 1) for z in splits]
                    cost[family, a, s, t] = min(sums, default=np.inf)
    return cost


def naive_blue_chain(store, segment):
    """Return the cheapest ways to cover 0..n steps with segments, all sequences of lengths tried."""
    total = [0.0]
    for t in range(1, len(segment) + 1):
        total.append(min(store + segment[length - 1] + total[t - length] for length in range(1, t + 1)))
    return total


def naive_segments(compute, load, drop, keep, sweep_keeps):
    """Return the cost of each length from a stored base, every carry tried; costs are in forward steps."""
    cost = []
    for length in range(len(drop)):
        options = [min(drop[length], keep[length]) * compute]
        for z in range(1, length + 1):
            above = min(drop[length - z], keep[length - z]) if sweep_keeps else drop[length - z]
            options.append(compute * z + compute * above + cost[z - 1])
        cost.append(load + min(options))
    return cost


def naive_held_bound(chain: Chain) -> float:
    """Return what `held_nodes_bound` should, by its recurrence as docs/chains.md states it; node -1 lies below N_0."""
    start = chain.load[0] if chain.start == "slow" else 0
    n, size = chain.length, chain.sizes
    blue = [j for j in range(1, n) if not math.isinf(chain.store[j] + chain.load[j])]
    cheapest = min((chain.load[j] for j in blue), default=math.inf)

    def steps(s, z):
        return sum(chain.forward[max(s, 0) + 1 : z + 1]) + (chain.load[0] if s < 0 else 0)

    def room(*nodes):
        return 0 if chain.adjoint else sum(size[k] for k in nodes if 0 <= k <= n)

    def by_load(z, t):
        """Have z by way of a load for the backward steps t .. z; the first of all has nothing to load yet."""
        if t == n - 1:
            return math.inf
        ways = [
            chain.load[j] + steps(j, z) + min(chain.store[j], steps(j, t + 1)) - min(chain.store[j], steps(j, z))
            for j in blue
            if j <= z
        ]
        return min(ways, default=math.inf)

    def group(s, z, t, m):
        """Do the steps t .. z + 1 from z while some h <= z waits, and is swept from or loaded over once more if it is not z."""
        waiting = [h for h in range(s + 1, z + 1) if size[h] <= m]
        return min((min(steps(h, z), cheapest) + bound(z, t, m - size[h]) for h in waiting), default=math.inf)

    @cache
    def bound(s, t, m):
        if t <= s:
            return 0
        least = math.inf
        for z in range(s + 1, t + 1):
            if room(z, z + 1) > m:
                continue
            if z < t:
                cost = min(steps(s, z), by_load(z, t)) + group(s, z, t, m)
            else:
                third = 0 if t - 1 == s else room(t - 1)
                enough = t == n - 1 or m >= room(t, t + 1) + min(third, room(t + 2))
                again = 0 if enough or chain.adjoint else min(chain.forward[t + 1], chain.load[t + 1])
                cost = min(steps(s, t) + again, by_load(t, t))
            least = min(least, cost + bound(s, z - 1, m))
        return least

    if n == 1:
        return start + (0 if chain.adjoint else chain.forward[1])
    fast = chain.fast
    least = bound(0, n - 1, fast - size[0]) if size[0] <= fast else math.inf
    for z in range(n) if not math.isinf(chain.load[0]) else ():
        if room(z, z + 1) <= fast:
            above = 0 if z == n - 1 else group(-1, z, n - 1, fast)
            least = min(least, chain.store_of_first + steps(0, z) + above + bound(-1, z - 1, fast))
    return least + start + (0 if chain.adjoint else chain.forward[n])
