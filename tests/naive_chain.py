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
    """The two bounds of `held_nodes_bound` by their recurrences as docs/chains.md states them; node -1 lies below N_0."""

    def __init__(self, chain: Chain) -> None:
        self.chain, self.n = chain, chain.length
        self.blue = [j for j in range(1, self.n) if not math.isinf(chain.store[j] + chain.load[j])]
        self.cheapest = min((chain.load[j] for j in self.blue), default=math.inf)
        self.segment, self.group = cache(self._segment), cache(self._group)

    def steps(self, s, z):
        return sum(self.chain.forward[max(s, 0) + 1 : z + 1]) + (self.chain.load[0] if s < 0 else 0)

    def room(self, *nodes):
        return 0 if self.chain.adjoint else sum(self.chain.sizes[k] for k in nodes if 0 <= k <= self.n)

    def by_load(self, z, t, f):
        """Have z by way of a load for the backward steps t .. f; the first of all has nothing to load yet."""
        load, store = self.chain.load, self.chain.store
        ways = [
            load[j] + self.steps(j, z) + min(store[j], self.steps(j, t + 1)) - min(store[j], self.steps(j, f))
            for j in self.blue
            if j <= z and t < self.n - 1
        ]
        return min(ways, default=math.inf)

    def alone(self, t, m, base):
        """What the step t alone costs beyond having N_t computed, in m units beside `base`."""
        third = 0 if t - 1 == base else self.room(t - 1)
        if self.room(t, t + 1) > m:
            return math.inf
        enough = t == self.n - 1 or m >= self.room(t, t + 1) + min(third, self.room(t + 2))
        return 0 if enough or self.chain.adjoint else min(self.chain.forward[t + 1], self.chain.load[t + 1])

    def _segment(self, s, t, m):
        if t <= s:
            return 0
        least = math.inf
        for z in range(s + 1, t + 1):
            if self.room(z, z + 1) > m:
                continue
            if z < t:
                cost = min(self.steps(s, z), self.by_load(z, t, z)) + self.waiting(s, z, t, m)
            else:
                cost = min(self.steps(s, t) + self.alone(t, m, s), self.by_load(t, t, t))
            least = min(least, cost + self.segment(s, z - 1, m))
        return least

    def waiting(self, s, z, t, m):
        """Do the steps t .. z + 1 from z while some h <= z waits; if it is not z, z is swept to or loaded once more."""
        sizes = self.chain.sizes
        nodes = [h for h in range(s + 1, z + 1) if sizes[h] <= m]
        costs = [min(self.steps(h, z), self.cheapest) + self.segment(z, t, m - sizes[h]) for h in nodes]
        return min(costs, default=math.inf)

    def _group(self, y, t, f, m):
        """Do the steps t .. f with only y red at first, which may be given up, in m units."""
        if t == y:
            return 0 if self.room(y, y + 1) <= m else math.inf
        if t == f:
            least = self.steps(y, t) + self.alone(t, m, None)
        else:
            least = min((self.steps(y, x) + self.group(x, t, f, m) for x in range(y + 1, f + 1)), default=math.inf)
        for g in range(f + 1, t + 1):
            least = min(least, self.inside(y, t, g, m - self.chain.sizes[y]) + self.group(y, g - 1, f, m))
        return least

    def inside(self, y, t, g, m):
        """Do the steps t .. g with nothing red above y, which stays."""
        if m < 0:
            return math.inf
        if g == t:
            if self.room(t, t + 1) > m:
                return math.inf
            return min(self.steps(y, t) + self.alone(t, m, y), self.by_load(t, t, t))
        nodes = range(y + 1, g + 1)
        return min(min(self.steps(y, x), self.by_load(x, t, g)) + self.group(x, t, g, m) for x in nodes)

    def below(self, t):
        """Do the steps t .. 0 with nothing red at first."""
        runs = (self.inside(-1, t, g, self.chain.fast) + self.below(g - 1) for g in range(t + 1))
        return min(runs, default=0) if t >= 0 else 0

    def bound(self, by_groups):
        chain, n = self.chain, self.n
        fast, top = chain.fast, n - 1
        once = (chain.load[0] if chain.start == "slow" else 0) + (0 if chain.adjoint else chain.forward[n])
        if n == 1:
            return once
        stored = not math.isinf(chain.load[0])
        if by_groups:
            least = self.group(0, top, 0, fast)
            ways = [self.group(0, top, f, fast) + self.below(f - 1) for f in range(n) if stored]
        else:
            least = self.segment(0, top, fast - chain.sizes[0]) if chain.sizes[0] <= fast else math.inf
            ways = [
                self.steps(0, z) + (0 if z == top else self.waiting(-1, z, top, fast)) + self.segment(-1, z - 1, fast)
                for z in range(n)
                if stored and self.room(z, z + 1) <= fast
            ]
        return once + min([least, *(chain.store_of_first + way for way in ways)])
