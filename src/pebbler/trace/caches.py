"""Caches beyond a single LRU stack: Belady's optimum, set-associative caches, separate levels, and write-backs at every size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pebbler.arrays import Bools, Floats, Ints
from pebbler.errors import InputError
from pebbler.trace.distances import CHUNK, Packer, ReuseProfile, StackDistance, check_sizes, check_words
from pebbler.trace.kernels import belady
from pebbler.trace.kernels import set_associative as kernel

__all__ = [
    "LevelCounts",
    "WriteBacks",
    "attribute",
    "hierarchy",
    "level_hits",
    "opt_hits",
    "opt_misses",
    "set_associative",
]


# Sets up to this long are searched from the front; longer ones are linked lists.
FEW_WAYS = 32
# Requests handed from level to level at a time.
REQUESTS = 1 << 18


def opt_misses(words: ArrayLike, sizes: ArrayLike, *, bypass: bool = False) -> Ints:
    """Return the fewest misses that any replacement can have, for each size of cache (Belady 1966).

    Without `bypass` a missed word must be taken in; with it, a word may be used without being kept.

    >>> opt_misses([1, 2, 3, 1, 2, 3], [2, 3]).tolist(), opt_misses([1, 2, 3, 1, 2, 3], [1], bypass=True).tolist()
    ([4, 3], [5])
    """
    trace = check_words(words, empty=False)
    limits = check_sizes(sizes)
    uses = _next_uses(trace)
    return np.array([belady.misses(uses, size, bypass, np.zeros(0, np.bool_)) for size in limits], np.int64)


def opt_hits(words: ArrayLike, writes: ArrayLike, size: int) -> Bools:
    """Return a mask of the reads that hit in a cache of `size` words under the optimal replacement.

    A missed word need not be kept, and nothing is kept for a write, which needs no old value: Belady's rule with bypassing.

    >>> opt_hits([1, 2, 1, 2, 1], [False, False, False, True, False], 1).tolist()
    [False, False, True, False, True]
    """
    trace = check_words(words, empty=False)
    flags, limits = _flags(writes, trace.size), check_sizes([size])
    uses = _next_uses(trace)
    read_next = uses < trace.size
    uses[read_next] = np.where(flags[uses[read_next]], trace.size, uses[read_next])
    hit = np.zeros(trace.size, np.bool_)
    belady.misses(uses, limits[0], True, hit)
    return hit


def level_hits(profile: ReuseProfile, capacities: Sequence[int]) -> Ints:
    """Return the accesses found in each level of one LRU stack cut into levels, fastest first, then those beyond the last.

    The levels hold different words (the first level's are not in the second), so the depths they reach add up.

    >>> level_hits(ReuseProfile(np.array([3, 1, 0, 1])), [1, 2]).tolist()
    [1, 1, 3]
    """
    missed = profile.misses(np.cumsum(check_sizes(capacities, "capacities")))
    return -np.diff(np.concatenate([[profile.accesses], missed, [0]]))


@dataclass(frozen=True)
class LevelCounts:
    """Requests that reached one level, and what became of them."""

    reads: int
    writes: int
    read_hits: int
    write_hits: int
    evictions: int
    write_backs: int

    @property
    def hits(self) -> int:
        """Requests that found their line."""
        return self.read_hits + self.write_hits

    @property
    def misses(self) -> int:
        """Requests that did not."""
        return self.reads + self.writes - self.hits


def hierarchy(
    words: ArrayLike,
    levels: Sequence[tuple[int, int]],
    *,
    line: int = 1,
    writes: ArrayLike | None = None,
    writes_refresh: bool = True,
) -> tuple[LevelCounts, ...]:
    """Return the counts of separate levels of (sets, ways), nearest first: each is LRU, write-back and write-allocate.

    A line is `line` words and goes to set (line number mod sets). A level asks the next one for every line it misses and
    takes it in; a dirty line that it evicts for that is then written to the next level, which takes it in too.
    A write that hits makes its line the newest unless `writes_refresh` is off (pycachesim counts that way).

    >>> near, far = hierarchy([0, 1, 2, 0, 1, 2], [(1, 2), (1, 4)], writes=[True] + [False] * 5)
    >>> near.hits, near.write_backs, far.reads, far.writes, far.hits
    (0, 1, 6, 1, 4)
    """
    trace = check_words(words, empty=False)
    wrote = np.zeros(trace.size, np.bool_) if writes is None else _flags(writes, trace.size)
    if not levels:
        raise InputError("levels: at least one (sets, ways) is needed")
    if line < 1:
        raise InputError(f"line must be at least 1 word, got {line}")
    for place, (sets, ways) in enumerate(levels):
        check_sizes([sets, ways], f"level {place}: sets and ways")
    chain = [_LevelState(sets, ways, writes_refresh) for sets, ways in levels]
    for start in range(0, trace.size, REQUESTS):
        lines, stored = trace[start : start + REQUESTS] // line, wrote[start : start + REQUESTS]
        for level in chain:
            lines, stored = level.feed(lines, stored)
    return tuple(LevelCounts(*(int(n) for n in level.counts)) for level in chain)


def set_associative(
    words: ArrayLike, *, sets: int, ways: int, line: int = 1, writes: ArrayLike | None = None
) -> LevelCounts:
    """Return the counts of one set-associative LRU cache of `sets` times `ways` lines.

    >>> set_associative([0, 2, 0, 1, 2], sets=2, ways=1).misses, set_associative([0, 2, 0, 1, 2], sets=1, ways=2).misses
    (5, 4)
    """
    return hierarchy(words, [(sets, ways)], line=line, writes=writes)[0]


def attribute(values: ArrayLike, owners: ArrayLike, count: int) -> Floats:
    """Return the sum of `values` for each of `count` owners (tensors, ops or kinds), given the owner of every value.

    >>> attribute([5.0, 1.0, 2.0], [0, 2, 0], 3).tolist()
    [7.0, 0.0, 1.0]
    """
    who = check_words(owners, "owners")
    what = np.asarray(values, np.float64)
    if what.shape != who.shape:
        raise InputError(f"values and owners must match, got {what.size} values and {who.size} owners")
    if who.size and int(who.max()) >= count:
        raise InputError(f"owners must be below {count}, got {int(who.max())} at index {int(who.argmax())}")
    return np.asarray(np.bincount(who, weights=what, minlength=count), np.float64)


class WriteBacks:
    """Write-back traffic of a fully associative LRU cache of every size at once, from a trace in chunks.

    >>> w = WriteBacks()
    >>> w.feed([1, 2, 1, 3], [True, False, True, False]).tolist()
    [0, 0, 2, 0]
    >>> w.evicted([1, 2, 3]).tolist(), w.left([1, 2, 3]).tolist()
    ([2, 0, 0], [0, 1, 1])
    """

    def __init__(self) -> None:
        self.stack = StackDistance()
        self._packer = Packer()
        self._sunk = np.zeros(0, np.int64)
        self._counts = np.zeros(0, np.int64)

    def feed(self, words: ArrayLike, writes: ArrayLike) -> Ints:
        """Take the next chunk of the trace; return its reuse distances."""
        trace = check_words(words)
        wrote = _flags(writes, trace.size)
        distances = np.empty(trace.size, np.int64)
        for start in range(0, trace.size, CHUNK):
            ids = self._packer.ids(trace[start : start + CHUNK])
            more = self._packer.count - self._sunk.size
            if more > 0:
                self._sunk = np.concatenate([self._sunk, np.full(more + self._sunk.size, -1)])
                self._counts = np.concatenate(
                    [self._counts, np.zeros(self._sunk.size + 1 - self._counts.size, np.int64)]
                )
            here = distances[start : start + CHUNK]
            here[:] = self.stack.feed(ids)
            kernel.dirty_reach(ids, wrote[start : start + CHUNK], here, self._sunk, self._counts)
        return distances

    def evicted(self, sizes: ArrayLike) -> Ints:
        """Return the number of dirty words evicted so far, by cache size."""
        still = np.bincount(self._sunk_to(), minlength=self._counts.size)
        total = np.cumsum(self._counts + still) if self._counts.size else np.zeros(1, np.int64)
        return np.asarray(total[-1] - total[np.minimum(check_sizes(sizes), total.size - 1)], np.int64)

    def left(self, sizes: ArrayLike) -> Ints:
        """Return the number of dirty words held now, by cache size."""
        return np.searchsorted(np.sort(self._sunk_to()), check_sizes(sizes), side="right").astype(np.int64)

    def _sunk_to(self) -> Ints:
        """Depth that each dirty word has sunk to since it was written, down to where it is now."""
        dirty = np.flatnonzero(self._sunk >= 0)
        return np.maximum(self._sunk[dirty], self.stack.depths()[dirty])


class _LevelState:
    """State of one level between chunks."""

    def __init__(self, sets: int, ways: int, refresh: bool) -> None:
        self.counts = np.zeros(6, np.int64)
        self._ways = ways
        self._refresh = refresh
        self._dirty: Bools
        self._short = ways <= FEW_WAYS
        if self._short:
            self._tags = np.full((sets, ways), kernel.EMPTY, np.int64)
            self._dirty = np.zeros((sets, ways), np.bool_)
        else:
            self._packer = Packer()
            self._ends = np.full((sets, 2), kernel.EMPTY, np.int32)
            self._used = np.zeros(sets, np.int64)
            self._links = np.zeros((0, 2), np.int32)
            self._name = np.zeros(0, np.int64)
            self._dirty = np.zeros(0, np.bool_)

    def feed(self, lines: Ints, writes: Bools) -> tuple[Ints, Bools]:
        """Take requests in order; return those passed on."""
        out_lines, out_writes = np.empty(2 * lines.size, np.int64), np.empty(2 * lines.size, np.bool_)
        if self._short:
            passed = kernel.few_ways(
                lines, writes, self._refresh, self._tags, self._dirty, self.counts, out_lines, out_writes
            )
            return out_lines[:passed], out_writes[:passed]
        ids = self._packer.ids(lines)
        more = self._packer.count - self._name.size
        if more > 0:
            more += self._name.size
            self._links = np.concatenate([self._links, np.full((more, 2), kernel.GONE, np.int32)])
            self._name = np.concatenate([self._name, np.zeros(more, np.int64)])
            self._dirty = np.concatenate([self._dirty, np.zeros(more, np.bool_)])
        linked = kernel.LinkedSets(self._ends, self._used, self._links, self._dirty, self._name)
        passed = kernel.many_ways(
            lines, ids, writes, self._refresh, linked, self._ways, self.counts, out_lines, out_writes
        )
        return out_lines[:passed], out_writes[:passed]


def _flags(writes: ArrayLike, length: int) -> Bools:
    """Return the write flags of a trace of known length."""
    flags = np.asarray(writes)
    if flags.size == length == 0:
        return np.zeros(0, np.bool_)
    if flags.shape != (length,) or flags.dtype != np.bool_:
        raise InputError(
            f"writes must be one true or false per access: expected {length}, got {flags.dtype} of shape {flags.shape}"
        )
    return np.ascontiguousarray(flags)


def _next_uses(trace: Ints) -> NDArray[np.signedinteger[Any]]:
    """Return the time of the next access to the same word; the trace's length where there is none."""
    never = trace.size
    uses: NDArray[np.signedinteger[Any]] = np.empty(never, np.int32 if never < 2**31 else np.int64)
    soonest = np.zeros(0, uses.dtype)
    packer = Packer()
    for start in reversed(range(0, never, CHUNK)):
        ids = packer.ids(trace[start : start + CHUNK])
        if packer.count > soonest.size:
            more = np.full(packer.count, never, uses.dtype)
            soonest = np.concatenate([soonest, more])
        belady.next_uses(ids, start, soonest, uses[start : start + CHUNK])
    return uses
