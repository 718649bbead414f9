"""Chains whose nodes are all alike: exact, in time that grows with length times checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from pebbler.arrays import Int32s, Ints
from pebbler.solver.chain.chain_model import Chain
from pebbler.solver.chain.chain_moves import Tally, stream, tally
from pebbler.solver.chain.kernels import uniform_table as kernel

__all__ = ["UniformSplits", "uniform_bound", "uniform_is_exact", "uniform_recurrence", "uniform_tally"]

# Splits take 8 bytes per length and pebble; pebbles beyond this many cells are used in the plainest way (see `_shift`).
CELLS = 150_000_000


@dataclass
class UniformSplits:
    """The splits of a uniform chain, by length and number of pebbles."""

    drop: Int32s
    keep: Int32s
    how: Int32s
    shift: int  # nodes 0 .. shift-1 are all kept
    room: int  # in pebbles
    top: int = 0
    bases: list[int] = field(default_factory=list)

    def inside(self, s: int, room: int) -> int:
        return room - 1

    def split(self, s: int, t: int, room: int, keep: bool) -> int:
        if s < self.shift:
            return s + 1
        splits = self.keep if keep else self.drop
        return s + abs(int(splits[room, t - s]))

    def keeps(self, s: int, t: int, room: int) -> bool:
        return bool(self.keep[room, t - s] >= 0)

    def carry(self, base: int, t: int) -> int:
        z = int(self.how[t - base])
        return z + base if z > 0 else z - base if z < 0 else 0


def uniform_recurrence(chain: Chain) -> tuple[float, UniformSplits, Tally]:
    """Return the energy of the best schedule found, backward steps not counted, the schedule, and its tally.

    >>> energy, _, counted = uniform_recurrence(Chain.uniform(100, red=11))
    >>> energy, counted.computes, counted.peak
    (235.0, 235, 11)
    """
    n, compute, load = chain.length, chain.forward[1], chain.load[0]
    store = chain.store[1] if n > 1 else math.inf
    red = _pebbles(chain)
    shift = _shift(chain, red)
    m = n - shift
    drop, keep, drop_split, keep_split = kernel.uniform_levels(m, red - shift, chain.adjoint)
    highest = keep if chain.adjoint else drop
    pure = shift + int(highest[m - 1])
    splits = UniformSplits(drop_split, keep_split, np.zeros(0, np.int32), shift, red)
    energy, computes = (math.inf if highest[m - 1] >= kernel.FAR else compute * pure), pure
    # Slow memory takes at least one store and one load; with a cheaper recomputation than that it never pays. (N_0 may be there
    # from the start, and then it costs a load.)
    if shift == 0 and math.isfinite(store + load) and energy - compute * chain.last > chain.store_of_first + load:
        segment, how = kernel.blue_segments(compute, load, drop, keep, chain.adjoint or red >= 3)
        total, longest = kernel.blue_chain(store, segment)
        saved = store - chain.store_of_first  # the lowest base is always N_0
        z = np.arange(1, n)
        costs = np.where(highest[n - 1 - z] < kernel.FAR, compute * (z + highest[n - 1 - z]), np.inf) + total[z] - saved
        if costs.size and costs.min() < energy:
            top = int(z[np.argmin(costs)])
            energy = float(costs.min())
            bases = _bases(longest, top)
            splits = UniformSplits(drop_split, keep_split, how, 0, red, top, bases)
            computes = top + int(highest[n - 1 - top])
    if math.isinf(energy):
        return energy, splits, Tally(0, 0, 0, 0, 0)
    if chain.start == "slow":
        energy += load
    return energy, splits, uniform_tally(chain, splits, drop, keep, computes)


def _pebbles(chain: Chain) -> int:
    """The number of nodes that fit; more than the whole chain needs is never used."""
    return min(chain.fast // chain.sizes[0], chain.last + 1)


def _shift(chain: Chain, red: int) -> int:
    most = max(3, CELLS // chain.length)
    return max(0, red - most)


def _bases(longest: Int32s, top: int) -> list[int]:
    bases, t = [], top
    while t > 0:
        t -= int(longest[t])
        bases.append(t)
    return bases[::-1]


def uniform_tally(chain: Chain, splits: UniformSplits, drop: Ints, keep: Ints, computes: int) -> Tally:
    """Return the tally of a schedule without playing it where that is possible."""
    loads, t = 0, splits.top - 1
    for base in reversed(splits.bases):
        while True:
            z = int(splits.how[t - base])
            loads += 1
            length = t - base - abs(z)
            computes += abs(z) + int(
                drop[length] if z < 0 else min(drop[length], keep[length]) if z == 0 else keep[length]
            )
            if z == 0:
                break
            t = base + abs(z) - 1
        t = base - 1
    stores = len(splits.bases)
    if chain.start != "fast":
        stores = max(0, stores - 1)
    loads += chain.start == "slow"
    if chain.adjoint:
        if computes > 2_000_000:
            return Tally(computes, loads, stores, -1, min(splits.room, chain.length))
        return tally(chain, stream(chain, splits))
    # Every pebble that is put down is taken up again, except the one on N_0 that ends the game.
    drops = computes + loads - (chain.start == "slow")
    moves = computes + loads + stores + chain.last + 1 + drops
    peak = _first_descent(chain, splits)
    if peak < min(splits.room, chain.length + 1) and moves < 5_000_000:
        peak = tally(chain, stream(chain, splits)).peak // chain.sizes[0]
    return Tally(computes, loads, stores, moves, peak * chain.sizes[0])


def _first_descent(chain: Chain, splits: UniformSplits) -> int:
    """Return the number of pebbles that the first way down to the end takes; the peak is never lower."""
    s, t, room, below = splits.top, chain.length - 1, splits.room, 0
    most = 2
    while s < t:
        z = splits.split(s, t, room, keep=False)
        most = max(most, below + (2 if z == s + 1 else 3))
        s, room, below = z, room - 1, below + 1
    return max(most, below + 2)


def uniform_is_exact(chain: Chain) -> bool:
    """Say whether the recurrence is proven to find the optimum of this uniform chain (docs/chains.md).

    It is whenever a store costs as much as a load.

    >>> uniform_is_exact(Chain.uniform(9, 3, compute=5, io=3)), uniform_is_exact(Chain.uniform(9, 3, store=9, load=0.5))
    (True, False)
    """
    compute, load = chain.forward[1], chain.load[0]
    store = chain.store[1] if chain.length > 1 else math.inf
    if _shift(chain, _pebbles(chain)):
        return False
    if chain.adjoint or math.isinf(store) or math.isinf(load):
        return True
    if load >= compute:
        return store >= compute
    return store + load <= 2 * compute and (_pebbles(chain) >= 3 or store <= compute + load)


def uniform_bound(chain: Chain, energy: float) -> tuple[float, str]:
    """Return a lower bound on every schedule, backward steps not counted, and where it comes from.

    `energy` is what `uniform_recurrence` found; it is returned where the recurrence is proven to be exact.
    """
    if uniform_is_exact(chain):
        return energy, "recurrence over all schedules (docs/chains.md)"
    n, compute, load = chain.length, chain.forward[1], chain.load[0]
    store = chain.store[1] if n > 1 else math.inf
    red, slow = _pebbles(chain), math.isfinite(store + load)
    start = load if chain.start == "slow" else 0.0
    spared = store - chain.store_of_first if slow else 0.0  # N_0 may be in slow memory from the start
    # A node that is not red from its first computation on has to come back at least once.
    again = max(0, chain.last + 1 - red - chain.adjoint) * min(compute, store + load)
    best = compute * chain.last + max(0.0, again - spared) + start
    proof = "every node that does not stay red comes back at least once (docs/chains.md)"
    if best < energy and not chain.adjoint and _shift(chain, red) == 0:
        cheap = min(compute, store, load)
        relaxed = Chain.uniform(n, red, cheap, store=store, load=load)
        best = max(best, n * (compute - cheap) + max(0.0, uniform_recurrence(relaxed)[0] - spared) + start)
        proof = "recurrence with the forward step as cheap as a load (docs/chains.md)"
    return min(best, energy), proof
