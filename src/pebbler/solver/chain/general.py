"""Chains whose nodes differ: exact where the recurrence is proven or the chain is short, otherwise a schedule and a bound."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pebbler.arrays import Floats, Ints, Shorts
from pebbler.solver.chain.chain_model import GENERAL_LENGTH, Chain
from pebbler.solver.chain.chain_moves import ChainMove, ChainMoveKind, Recorded, stream
from pebbler.solver.chain.held_nodes import held_nodes_bound
from pebbler.solver.chain.kernels import general_search as chain_search
from pebbler.solver.chain.kernels import general_table as kernel
from pebbler.solver.chain.kernels.general_search import LONGEST, STEP_BACK, search_red_sets
from pebbler.solver.chain.kernels.general_table import stored_bases
from pebbler.solver.chain.uniform import uniform_recurrence

__all__ = [
    "alike_bound",
    "come_back",
    "general_bound",
    "general_recurrence",
    "is_exact",
    "pieces_bound",
    "search_small",
    "search_tight",
]

# Chains up to this length are searched completely where no recurrence is proven: half a second at most.
SEARCHED, SEARCHED_ADJOINT = 9, 8
# Sets of red nodes that are looked at where there is no slow memory: two seconds at most.
RED_SETS = 2_000_000
# Work of the recurrence: segments x units of memory (narrow search) or x their splits too (every split tried).
NARROW, THOROUGH, CELLS, FINEST = 50_000_000, 400_000_000, 400_000_000, 2000
# Of the bound: segments x pebbles; and those of a second.
EXACT, CELLS_PER_SECOND = 200_000_000, 15_000_000
PIECES_SECONDS = 10.0  # of bounds on the pieces of a chain that is too long for tables
# Nodes x nodes up to which a chain whose nodes are alike is tried as a bound beside the better one.
SHORT = 1_000_000
# Over chosen nodes: grains of memory; nodes x band^2 x grains, and the longest band that is of use.
SELECTED, BAND_CELLS, LONGEST_BAND = 200, 500_000_000, 64
# Of chains longer than all that: segments x grains, and the length from which a split is no 16-bit number.
LONG_CELLS, MOST_SPLIT = 60_000_000, 32_000
# Splits that are tried there: some seconds; and in a second of those that are left, most of which are for the bound.
SPLITS, SPLITS_PER_SECOND = 5_000_000_000, 250_000_000
# By the numbers that the search gives them.
_KINDS: tuple[ChainMoveKind, ...] = ("compute", "load", "store", "drop", "backward", "snap", "restore")


def grains(chain: Chain, most: int | None = None) -> tuple[Ints, int, bool]:
    """Return the sizes and the fast memory in grains, and whether nothing was lost by that.

    Large memories are counted in coarser grains (`most` of them, or as many as the tables have room for), sizes rounded up.

    >>> sizes, memory, exact = grains(Chain((2, 4, 2), (0, 1, 1), (1, 1, 1), (9, 9, 9), (9, 9, 9), fast=7))
    >>> sizes.tolist(), memory, exact
    ([1, 2, 1], 3, True)
    """
    n = chain.length
    sizes = np.array(chain.sizes, np.int64)
    if chain.adjoint:
        sizes[n] = sizes[0]
    grain = int(np.gcd.reduce(sizes))
    sizes //= grain
    memory = min(chain.fast // grain, int(sizes.sum()))
    if (sizes == 1).all():
        most = max(4, CELLS // (n * n))
        return sizes, min(memory, most), memory <= most
    most = most or max(4, min(FINEST, NARROW // (n * n)))
    coarse, exact, step = sizes, True, 1
    whole = memory
    while memory > most:
        step += max(1, step // 8)
        rounded = -(-sizes // step)
        if not chain.adjoint and int((rounded[1:] + rounded[:-1]).max()) > whole // step:
            break
        coarse, memory, exact = rounded, min(whole // step, int(rounded.sum())), False
    return coarse, memory, exact


def is_exact(chain: Chain) -> bool:
    """Say whether the recurrence is proven to find the optimum of this chain (docs/chains.md).

    >>> is_exact(Chain((1, 1, 1), (0, 1, 2), (1, 1, 1), (9, 9, 9), (9, 9, 9), fast=3))
    True
    """
    n = chain.length
    if n > GENERAL_LENGTH:  # not every segment has a place in the tables
        return False
    if len(set(chain.sizes[: n if chain.adjoint else n + 1])) > 1 or not grains(chain)[2]:
        return False
    stores, loads = set(chain.store[1:n]), set(chain.load[:n])
    there = (chain.store_of_first, *chain.store[1:n])  # what it costs to have each in slow memory
    if all(math.isinf(store + load) for store, load in zip(there, chain.load[:n], strict=True)):
        return True
    if len(loads) != 1 or len(stores) > 1 or chain.store_of_first > min(stores, default=math.inf):
        return False
    dearest = max(chain.forward[1:])
    return chain.adjoint or (min(loads) >= dearest and min(stores, default=math.inf) >= dearest)


def general_recurrence(
    chain: Chain, remaining: Callable[[], float] = lambda: math.inf
) -> tuple[float, GeneralSplits | Recorded]:
    """Return the energy of the best schedule found, backward steps not counted, and its splits; infinity if none was found."""
    n, first = chain.length, chain.load[0] if chain.start == "slow" else 0.0
    if n > GENERAL_LENGTH:
        energy, found_splits = _solve_long(chain, remaining)
        return (energy, found_splits) if isinstance(found_splits, Recorded) else (energy + first, found_splits)
    sizes, memory, exact = grains(chain)
    uneven = len(set(chain.sizes[: n if chain.adjoint else n + 1])) > 1
    thorough = uneven and n**3 // 6 * memory <= THOROUGH
    found: list[tuple[float, GeneralSplits]] = []
    if uneven and not (exact and thorough):
        fine, room, _ = grains(chain, SELECTED)
        if room > FINEST:  # the largest pair of neighbours fits exactly, and in no coarser grains
            return store_all(chain)
        tried = min(SPLITS, SPLITS_PER_SECOND * remaining())
        count = min(n, max(8, int(n * math.cbrt(tried / _splits(fine, room, chain.adjoint)))))
        apart = 2 * -(-n // count)  # at most, between two chosen nodes
        band = max(apart, min(LONGEST_BAND, math.isqrt(BAND_CELLS // (n * room))))
        found.append(_solve_chosen(chain, fine, room, select_nodes(fine, count), band))
    if not found or math.isinf(found[0][0]):
        found.append(_solve_all(chain, sizes, memory, thorough))
    energy, splits = min(found, key=lambda answer: answer[0])
    if uneven and not (exact and thorough):
        simple = as_if_alike(chain)
        if simple[0] < energy + first:
            return simple
    return energy + first, splits


def _solve_long(chain: Chain, remaining: Callable[[], float]) -> tuple[float, GeneralSplits | Recorded]:
    """Solve a chain whose tables over all nodes would be too large: over chosen nodes, in as many grains as room and time allow.

    Two schedules need no such tables: that of a chain whose nodes are all as large as the largest, and all nodes stored.
    """
    n = chain.length
    simple = min(store_all(chain), as_if_alike(chain), key=lambda answer: answer[0])
    if n >= MOST_SPLIT:
        return simple
    count = round(
        (2 * n * n) ** (1 / 3)
    )  # so that segments over chosen nodes and short ones over all are about as many
    band = 2 * -(-n // count)
    segments, splits = n * band + count * count // 2, count**3 // 3 + n * band * band
    tried = min(SPLITS, SPLITS_PER_SECOND * remaining())
    room = int(min(SELECTED, LONG_CELLS // segments, tried // splits))
    sizes, memory, _ = grains(chain, max(4, room))
    if room < 4 or memory > 2 * room:
        return simple
    found = _solve_chosen(chain, sizes, memory, select_nodes(sizes, count), band)
    start = chain.load[0] if chain.start == "slow" else 0.0
    return found if found[0] + start < simple[0] else simple


def as_if_alike(chain: Chain) -> tuple[float, Recorded]:
    """Return the schedule of a chain whose nodes are all as large as the largest and cost the mean, and its energy here.

    Backward steps are not counted; infinity where too few such nodes fit.

    >>> chain = Chain((1, 2, 1, 2), (0, 5, 1, 1), (1,) * 4, (math.inf,) * 4, (math.inf,) * 4, fast=6)
    >>> as_if_alike(chain)[0], general_recurrence(chain)[0]
    (12.0, 7.0)
    """
    n, size = chain.length, max(chain.sizes[: chain.length + (not chain.adjoint)])
    if chain.fast // size < (1 if chain.adjoint else 2):
        return math.inf, Recorded(())
    step = math.fsum(chain.forward[1 : chain.last + 1]) / max(1, chain.last)
    copy = (math.fsum(chain.store[1:n]) + math.fsum(chain.load[1:n])) / (2 * max(1, n - 1) * (step or 1.0))
    copy = float(max(1, round(copy))) if math.isfinite(copy) else math.inf
    copies = (copy,) * (n + 1)
    alike = Chain(
        (1,) * (n + 1), (0.0, *(1.0,) * n), (0.0,) * (n + 1), copies, copies, chain.fast // size, chain.adjoint
    )
    if math.isinf(uniform_recurrence(alike)[0]):
        return math.inf, Recorded(())
    there = chain.start != "fast"  # N_0, in slow memory
    moves: list[ChainMove] = [("load", 0)] if chain.start == "slow" else []
    moves += [move for move in stream(alike, uniform_recurrence(alike)[1]) if not (there and move == ("store", 0))]
    prices = {"compute": chain.forward, "load": chain.load, "store": chain.store}
    return math.fsum(float(prices[kind][node]) for kind, node in moves if kind in prices), Recorded(tuple(moves))


def _splits(sizes: Ints, memory: int, adjoint: bool) -> float:
    """Return the number of splits that the recurrence would try over all nodes, for all segments and amounts of memory."""
    n = len(sizes) - 1
    bases = np.arange(n)[:, None]
    far = np.full((n, memory + 1), n)
    if not adjoint:
        width = sizes[:-1] + sizes[1:]
        far = kernel.reach_table(sizes, width, width, memory, True)[:n]
    far = np.where(np.arange(memory + 1) < sizes[:n, None], 0, far - bases).astype(float)
    return 2.0 * float(np.sum(far * (n - bases) - far * far / 2)) + 1.0


def _solve_all(
    chain: Chain, sizes: Ints, memory: int, thorough: bool, *, splits: bool = True
) -> tuple[float, GeneralSplits]:
    """Solve over all nodes, by the narrow search if sizes differ and unless `thorough`; without `splits` only the energy counts."""
    n, prefix = chain.length, chain.prefix()
    equal = bool((sizes == 1).all())
    tolerance = chain.scale.rounding * float(prefix[-1]) * n
    leaves = kernel.plain_leaves(sizes, prefix, memory, chain.adjoint)
    drop, keep, drop_split, keep_split = kernel.general_levels(
        sizes, prefix, leaves, memory, chain.adjoint, equal, thorough, tolerance, splits
    )
    found = GeneralSplits(sizes, memory, drop_split, keep_split)
    return _first_sweep(chain, found, np.arange(n + 1), leaves.width, drop, keep), found


def _solve_chosen(chain: Chain, sizes: Ints, memory: int, nodes: Ints, band: int) -> tuple[float, BandSplits]:
    """Solve long segments over chosen nodes, those of at most `band` steps over all."""
    prefix = chain.prefix()
    leaves, band_drop, band_keep = kernel.band_leaves(sizes, prefix, memory, chain.adjoint, nodes, band)
    drop, keep, drop_split, keep_split = kernel.general_levels(
        sizes[nodes], prefix[nodes], leaves, memory, chain.adjoint, False, True, 0.0, True
    )
    splits = BandSplits(
        sizes, memory, drop_split, keep_split, nodes=nodes, band=band, band_drop=band_drop, band_keep=band_keep
    )
    return _first_sweep(chain, splits, nodes, leaves.width, drop, keep), splits


def _first_sweep(chain: Chain, splits: GeneralSplits, nodes: Ints, width: Ints, drop: Floats, keep: Floats) -> float:
    """Choose what the first sweep stores and where it begins to leave red nodes; return the energy, and note it in the splits."""
    highest = keep if chain.adjoint else drop
    n = len(nodes) - 1
    column = (n - 1) * n // 2
    energy = float(highest[column])
    store, load = np.array(chain.store), np.array(chain.load)
    store[0] = chain.store_of_first
    prefix = chain.prefix()[nodes]
    sizes, equal = splits.sizes[nodes], bool((splits.sizes == 1).all())
    total, lowest, how = stored_bases(
        sizes, prefix, width, splits.room, chain.adjoint, store[nodes], load[nodes], drop, keep, equal
    )
    z = np.arange(1, n)
    costs = prefix[z] + highest[column + z] + total[z]
    if costs.size and costs.min() < energy:
        energy, splits.how, t = float(costs.min()), how, int(z[np.argmin(costs)])
        splits.top = int(nodes[t])
        while t > 0:
            t = int(lowest[t])
            splits.bases.insert(0, int(nodes[t]))
    return energy


def general_bound(
    chain: Chain, energy: float = math.inf, remaining: Callable[[], float] = lambda: math.inf
) -> tuple[float, str]:
    """Return a lower bound on every schedule, backward steps not counted, and where it comes from; `energy` is that of one.

    The larger of two: by what waits in fast memory (`held_nodes_bound`), and by a chain whose nodes are alike.

    >>> chain = Chain((1, 3, 1, 2, 1), (0, 5, 1, 1, 2), (1,) * 5, (4,) * 5, (4,) * 5, fast=5)
    >>> general_bound(chain, 14.0)[0]
    14.0
    """
    long = chain.length > GENERAL_LENGTH
    held = pieces_bound(chain, remaining) if long else held_nodes_bound(chain, energy, remaining)
    if held is not None and (held[0] >= energy or (chain.length**2 > SHORT and not long)):
        return held
    if held is None and remaining() <= 0:
        return _come_back_bound(chain)
    alike = alike_bound(chain, remaining)
    return alike if held is None or alike[0] > held[0] else held


def pieces_bound(chain: Chain, remaining: Callable[[], float] = lambda: math.inf) -> tuple[float, str] | None:
    """Return the sum of bounds on pieces of a chain by nodes alike, each with all of fast memory and its first node beside that.

    None for adjoint chains, and where there is no time for pieces of some steps.

    >>> chain = Chain((1,) * 9, (0,) + (2,) * 8, (0,) * 9, (9,) * 9, (9,) * 9, fast=3)
    >>> pieces_bound(chain)[0], alike_bound(chain)[0]
    (30.0, 58.0)
    """
    n, seconds = chain.length, min(remaining(), PIECES_SECONDS)
    steps = int(min(n, GENERAL_LENGTH, seconds * CELLS_PER_SECOND / (n * (2 + _together(chain)))))
    if chain.adjoint or steps < 2:
        return None
    total = chain.load[0] if chain.start == "slow" else 0.0
    for low, high in itertools.pairwise(np.linspace(0, n, -(-n // steps) + 1).astype(int).tolist()):
        here, forward = slice(low, high + 1), (0.0, *chain.forward[low + 1 : high + 1])
        zero, fast = (0.0,) * len(forward), chain.fast + chain.sizes[low]
        total += alike_bound(Chain(chain.sizes[here], forward, zero, chain.store[here], chain.load[here], fast))[0]
    return total, "pieces of the chain, each with all of fast memory, and solved with nodes alike (docs/chains.md)"


def _together(chain: Chain) -> int:
    """Return the number of nodes that can be red together, at most."""
    counted = chain.sizes[: chain.length] if chain.adjoint else chain.sizes
    return int(np.searchsorted(np.cumsum(np.sort(np.array(counted))), chain.fast, side="right"))


def alike_bound(chain: Chain, remaining: Callable[[], float] = lambda: math.inf) -> tuple[float, str]:
    """Return a bound by a chain that costs no more and has one size, one store and one load.

    Every schedule stays legal when nodes shrink and prices fall. So take as many nodes as can ever be red together, the cheapest
    store and load for all, and forward steps that cost no more than these: that chain the recurrence solves exactly.
    """
    n = chain.length
    store = min(chain.store[1:n], default=math.inf)
    load = min(chain.load[:n])
    forward = list(chain.forward)
    if not chain.adjoint:
        forward = [min(cost, store, load) for cost in forward]
    first = min(chain.store_of_first, store)
    relaxed = Chain(
        (1,) * (n + 1),
        tuple(forward),
        (0.0,) * (n + 1),
        (first, *(store,) * n),
        (load,) * (n + 1),
        max(_together(chain), 0 if chain.adjoint else 2),
        chain.adjoint,
    )
    saved = math.fsum(chain.forward[1 : chain.last + 1]) - math.fsum(forward[1 : chain.last + 1])
    least = uniform_recurrence(relaxed)[0] if relaxed.is_uniform else _least(relaxed, remaining)
    start = chain.load[0] if chain.start == "slow" else 0.0
    again = _come_back_bound(chain)
    if again[0] > saved + least + start:
        return again
    proof = "nodes as small and prices as low as the least of them, solved exactly (docs/chains.md)"
    return saved + least + start, proof


def _come_back_bound(chain: Chain) -> tuple[float, str]:
    start = chain.load[0] if chain.start == "slow" else 0.0
    once = math.fsum(chain.forward[1 : chain.last + 1]) + come_back(chain)
    return once + start, "every node that does not stay in fast memory comes back at least once (docs/chains.md)"


def come_back(chain: Chain) -> float:
    """Return the least cost of making or loading again the nodes that cannot all wait in fast memory.

    When the last node is first computed, the others that are in fast memory fit there; each one that is not comes back at least
    once. Which ones to leave out at the least cost is a knapsack; filling it by cost per unit, the last one in part, bounds it.

    >>> come_back(Chain.uniform(9, red=4, compute=1, io=5))
    6.0
    """
    last = chain.last
    sizes = np.array(chain.sizes[:last], float)
    moved = np.array(chain.store[:last]) + np.array(chain.load[:last])
    worth = np.minimum(np.array(chain.forward[:last], float), moved)
    worth[:1] = chain.store_of_first + chain.load[0]
    if np.isinf(worth[:1]).any():
        worth[0], sizes[0] = 0.0, 0.0  # N_0 cannot come back, so it stays; that is no cost
    room = chain.fast - (0 if chain.adjoint else chain.sizes[last])
    order = np.argsort(-worth / np.maximum(sizes, 1e-9), kind="stable")
    before = np.concatenate([[0.0], np.cumsum(sizes[order])])[: len(order)]
    part = np.clip((room - before) / np.maximum(sizes[order], 1e-9), 0.0, 1.0)
    return float(np.sum(worth[order] * (1.0 - part)))


def _least(chain: Chain, remaining: Callable[[], float]) -> float:
    n = chain.length
    fast = min(chain.fast, n + 1)
    if fast * n * n > min(EXACT, CELLS_PER_SECOND * remaining()):
        return float(chain.prefix()[chain.last])
    return _solve_all(chain, np.ones(n + 1, np.int64), fast, thorough=False, splits=False)[0]


def search_tight(chain: Chain, limit: float) -> tuple[float, Recorded] | None:
    """Return the optimum of a chain without slow memory of which few nodes fit together, backward steps counted, and its moves.

    None if the chain is another one, or there are too many sets of nodes that fit; infinity if no schedule is below `limit`.

    >>> chain = Chain((1, 2, 1, 2), (0, 5, 1, 1), (1,) * 4, (math.inf,) * 4, (math.inf,) * 4, fast=4)
    >>> search_tight(chain, 30.0)[0]
    16.0
    """
    away = all(math.isinf(store) for store in chain.store[1:]) and math.isinf(chain.store_of_first + chain.load[0])
    if chain.adjoint or chain.length > LONGEST or not away:
        return None
    sizes, prefix, below = np.array(chain.sizes, np.int64), chain.prefix(), limit - chain.backward_total
    for most in (RED_SETS // 1000, RED_SETS // 30, RED_SETS):  # their tables take longer to make than most searches
        ended, least, numbers = search_red_sets(sizes, prefix, chain.fast, below, most)
        if ended:
            break
    else:
        return None
    moves: list[ChainMove] = []
    step, red = chain.length, {0}
    for number in numbers.tolist():
        if number == STEP_BACK:
            moves.append(("backward", step))
            moves += [("drop", node) for node in sorted(red) if node > step]
            red = {node for node in red if node <= step}
            step -= 1
        else:
            moves.append(("compute", number) if number > 0 else ("drop", -number))
            red ^= {abs(number)}
    return float(least) + chain.backward_total, Recorded(tuple(moves))


def search_small(chain: Chain, limit: float) -> tuple[float, Recorded] | None:
    """Return the optimum of a short chain, backward steps counted, and its moves; None if the chain is too long.

    Schedules of `limit` or more are not looked for; if there is no cheaper one, the energy is infinity.
    """
    if chain.length > (SEARCHED_ADJOINT if chain.adjoint else SEARCHED):
        return None
    store, load = np.array(chain.store), np.array(chain.load)
    store[0] = chain.store_of_first
    start = chain.load[0] if chain.start == "slow" else 0.0
    least, kinds, nodes = chain_search.search(
        np.array(chain.sizes, np.int64),
        np.array(chain.forward),
        np.array(chain.backward),
        store,
        load,
        chain.fast,
        chain.adjoint,
        limit - start,
    )
    moves = [(_KINDS[kind], node) for kind, node in zip(kinds.tolist(), nodes.tolist(), strict=True)]
    if chain.start != "fast":
        moves = [move for move in moves if move != ("store", 0)]
    if chain.start == "slow":
        moves.insert(0, ("load", 0))
    return float(least) + start, Recorded(tuple(moves))


# The schedule that stores every node once and loads it once: it fits wherever each backward step does -----------------


def store_all(chain: Chain) -> tuple[float, Recorded]:
    """Return the energy of that schedule, backward steps not counted, and its moves; infinity where a node cannot be stored.

    >>> energy, moves = store_all(Chain.uniform(3, red=2, io=5))
    >>> energy, moves.recorded[:4]
    (23.0, (('store', 0), ('compute', 1), ('drop', 0), ('store', 1)))
    """
    n = chain.length
    moved = range(n - 1)
    stores = [chain.store_of_first if k == 0 else chain.store[k] for k in moved]
    first = chain.load[0] if chain.start == "slow" else 0.0
    energy = first + math.fsum(stores) + math.fsum(chain.load[k] for k in moved) + math.fsum(chain.forward[1:])
    moves: list[ChainMove] = [("load", 0)] if chain.start == "slow" else []
    if n > 1 and chain.start == "fast":
        moves.append(("store", 0))
    for k in range(1, n + 1):
        moves.append(("compute", k))
        if k < n:
            moves.append(("drop", k - 1))
        if k < n - 1:
            moves.append(("store", k))
    moves += [("backward", n), ("backward", n - 1)]
    for i in range(n - 2, -1, -1):
        moves += [("drop", i + 2), ("load", i), ("backward", i)]
    return energy, Recorded(tuple(moves))


# Long chains whose nodes differ in size, solved over some of their nodes ----------------------------------------------
# A table of all segments and all amounts of memory is too large for a long chain, and counting memory in coarse grains wastes
# most of it. But what waits while a long segment is done may as well be a small neighbour: so for long segments the recurrence
# runs over the smallest node of every few only, for short ones over all, both at full resolution. The result is a schedule like
# any other; how much better one might be that lets other nodes wait is left to the bound.


def select_nodes(sizes: Ints, count: int) -> Ints:
    """Return the first node, the last, and the smallest of every few between them: about `count` in all.

    >>> select_nodes(np.array([3, 2, 1, 2, 4, 1, 5, 5]), 4).tolist()
    [0, 2, 5, 7]
    """
    inner = np.arange(1, len(sizes) - 1)
    chosen = [int(group[np.argmin(sizes[group])]) for group in np.array_split(inner, max(1, count - 2)) if len(group)]
    return np.array([0, *chosen, len(sizes) - 1], np.int64)


@dataclass
class GeneralSplits:
    """The splits of a general chain, by segment and memory in grains. See `Splits`."""

    sizes: Ints  # of all nodes, in grains, rounded up
    room: int  # in grains
    drop: Shorts
    keep: Shorts
    how: Shorts = field(default_factory=lambda: np.zeros((0, 0), np.int16))  # nothing is stored
    top: int = 0
    bases: list[int] = field(default_factory=list)

    def inside(self, s: int, room: int) -> int:
        return room - int(self.sizes[s])

    def split(self, s: int, t: int, room: int, keep: bool) -> int:
        return abs(self.entry(s, t, room, keep))

    def keeps(self, s: int, t: int, room: int) -> bool:
        return self.entry(s, t, room, True) >= 0

    def carry(self, base: int, t: int) -> int:
        return int(self.how[base, t])

    def entry(self, s: int, t: int, room: int, keep: bool) -> int:
        """Return the split of a segment, negative where the pebble above is better not kept."""
        return int((self.keep if keep else self.drop)[room, t * (t + 1) // 2 + s])


@dataclass(kw_only=True)
class BandSplits(GeneralSplits):
    """The splits of long segments between chosen `nodes`, and of segments of at most `band` steps between all nodes."""

    nodes: Ints
    band: int
    band_drop: Shorts
    band_keep: Shorts

    def __post_init__(self) -> None:
        self.place = {node: i for i, node in enumerate(self.nodes.tolist())}

    def split(self, s: int, t: int, room: int, keep: bool) -> int:
        found = super().split(s, t, room, keep)
        return found if t - s < self.band else int(self.nodes[found])

    def carry(self, base: int, t: int) -> int:
        found = super().carry(self.place[base], self.place[t + 1] - 1)
        return int(np.sign(found) * self.nodes[abs(found)])

    def entry(self, s: int, t: int, room: int, keep: bool) -> int:
        if t - s < self.band:
            return int((self.band_keep if keep else self.band_drop)[room, s * self.band + t - s])
        return super().entry(self.place[s], self.place[t + 1] - 1, room, keep)
