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


class NaiveHeldNodes:
    """The bound of `held_nodes_bound` by its recurrence as docs/chains.md states it, any node waiting; node -1 lies below N_0."""

    def __init__(self, chain: Chain) -> None:
        self.chain, self.n = chain, chain.length
        self.blue = [j for j in range(1, self.n) if not math.isinf(chain.store[j] + chain.load[j])]
        self.path, self.group = cache(self._path), cache(self._group)

    def steps(self, s, z):
        return sum(self.chain.forward[max(s, 0) + 1 : z + 1]) + (self.chain.load[0] if s < 0 else 0)

    def room(self, *nodes):
        return 0 if self.chain.adjoint else sum(self.chain.sizes[k] for k in nodes if 0 <= k <= self.n)

    def run(self, base, z):
        """The units that a run from a base to z takes, the base itself not counted."""
        return max(self.room(k) if k == base + 1 else self.room(k - 1, k) for k in range(base + 1, z + 1))

    def again(self, base, t, m):
        """What step t costs beyond having N_t: alone, made from the base, m units beside it; or the last of its group."""
        if t == self.n - 1:
            return 0
        rooms = [self.run(base, t)] if base is not None else []
        for p in range(0 if base is None else base + 1, t + 1):
            rooms.append(max(self.room(p, t + 2), 0 if p == t else self.run(p - 1, t)))
        made = min(self.chain.forward[t + 1], self.chain.load[t + 1] if t + 1 in self.blue else math.inf)
        return 0 if self.chain.adjoint or m >= self.room(t + 1) + min(rooms) else made

    def by_load(self, z, t, m):
        """Have z by way of a load for the backward steps t .. z; before the first of all there is nothing to load."""
        load, store = self.chain.load, self.chain.store
        ways = [
            load[j]
            + self.steps(j, z)
            + min(store[j], self.steps(j, t + 1))
            - min(store[j], self.steps(j, z))
            + (self.again(j - 1, t, m) if z == t else 0)
            for j in self.blue
            if j <= z and t < self.n - 1 and self.run(j - 1, z) <= m
        ]
        return min(ways, default=math.inf)

    def serve(self, y, g, t, m):
        """Do the steps t .. g from y, which is always there, in one group."""
        free = t == self.n - 1 and self.blue  # the first sweep
        by_steps = math.inf
        if free or self.run(y, g) <= m:
            by_steps = self.steps(max(y, 0) if t == self.n - 1 else y, g)
        if g < t:
            return min(by_steps, self.by_load(g, t, m)) + self.group(g, t, m)
        if self.room(t, t + 1) > m:
            return math.inf
        return min(by_steps + self.again(y, t, m), self.by_load(t, t, m))

    def _group(self, e, t, m):
        """Do the steps t .. e beside the run that makes e: a node up to e waits meanwhile."""
        if self.room(e, e + 1) > m:
            return math.inf
        sizes = self.chain.sizes
        ways = [self.path(y, e, t, m - sizes[y]) for y in range(e + 1) if sizes[y] <= m]
        return min(ways, default=math.inf) + self.again(None, e, m)

    def _path(self, y, e, t, m):
        """Do the steps t .. e + 1 while y waits for e and then perhaps a higher node; m units are left beside y."""
        if t == e:
            return 0
        ways = [self.serve(y, g, t, m) + self.path(y, e, g - 1, m) for g in range(e + 1, t + 1)]
        for x in range(y + 1, e + 1):
            left = m + self.chain.sizes[y] - self.chain.sizes[x]
            if left >= 0:
                ways.append(self.path(x, e, t, left))
        return min(ways)

    def bound(self):
        chain, n = self.chain, self.n
        once = (chain.load[0] if chain.start == "slow" else 0) + (0 if chain.adjoint else chain.forward[n])
        if n == 1:
            return once
        stays, stored = math.inf, math.inf
        if chain.sizes[0] <= chain.fast:
            stays = self.path(0, 0, n - 1, chain.fast - chain.sizes[0])
        if not math.isinf(chain.store_of_first + chain.load[0]):
            stored = chain.store_of_first + self.path(-1, -1, n - 1, chain.fast)
        return once + min(stays, stored)
