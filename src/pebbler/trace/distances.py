"""LRU reuse distances of an access trace, and the figures that follow from their histogram.

The reuse distance of an access is the number of *distinct* words touched since the last access to the same word, itself
included, so an immediate re-read has distance 1. A first touch has distance `COLD`. An LRU cache of C words hits exactly
the accesses whose distance is 1 to C, so one histogram gives the misses of every cache size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pebbler.arrays import Array, Floats, Int32s, Ints
from pebbler.errors import InputError
from pebbler.trace.kernels import stack_distance as kernel

__all__ = [
    "COLD",
    "Packer",
    "ReuseProfile",
    "StackDistance",
    "check_sizes",
    "check_words",
    "profile",
    "reuse_distances",
]

COLD = 0


# Distances are handed from kernel to kernel in pieces of this many accesses, which stay in the second-level cache.
CHUNK = 1 << 16
# Slots per distinct word: more make compaction rarer, fewer keep the bitmap small. 65,536 slots fit the first-level cache.
SLOTS_PER_WORD = 4
MIN_SLOTS = 1 << 16
# Words index a table by themselves as long as they are below the larger of these (the second per access); then are hashed.
DIRECT_SPAN, DIRECT_SPREAD = 1 << 16, 8


def check_words(words: ArrayLike, what: str = "addresses", *, empty: bool = True) -> Ints:
    """Return addresses as a flat int64 array, or say what is wrong with them; they may be none unless `empty` is off.

    >>> check_words([3, 1, 3])
    array([3, 1, 3])
    >>> check_words([0.5])
    Traceback (most recent call last):
    pebbler.errors.InputError: addresses must be whole numbers, got float64
    """
    array = np.asarray(words)
    if array.ndim != 1:
        raise InputError(f"{what} must be a flat list of whole numbers, got shape {array.shape}")
    if array.size == 0:
        if not empty:
            raise InputError("the trace is empty: there is nothing to analyse")
        return np.zeros(0, np.int64)
    if array.dtype.kind not in "iu":
        raise InputError(f"{what} must be whole numbers, got {array.dtype}")
    if array.dtype == np.uint64 and int(array.max()) > np.iinfo(np.int64).max:
        raise InputError(f"{what} must be below 2^63, got {int(array.max())} at index {int(array.argmax())}")
    array = np.ascontiguousarray(array, dtype=np.int64)
    if int(array.min()) < 0:
        first = int(np.flatnonzero(array < 0)[0])
        raise InputError(f"{what} must not be negative, got {int(array[first])} at index {first}")
    return array


def check_sizes(sizes: ArrayLike, what: str = "cache sizes") -> Ints:
    """Return cache sizes as an int64 array of positive numbers, or say what is wrong with them.

    >>> check_sizes([64, 0])
    Traceback (most recent call last):
    pebbler.errors.InputError: cache sizes must be at least 1, got 0 at index 1
    """
    array = np.atleast_1d(np.asarray(sizes))
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise InputError(f"{what} must be a flat list of whole numbers, got {array.dtype} of shape {array.shape}")
    small = np.flatnonzero(array < 1)
    if small.size:
        raise InputError(f"{what} must be at least 1, got {int(array[small[0]])} at index {int(small[0])}")
    return np.ascontiguousarray(array, dtype=np.int64)


class Packer:
    """Gives words dense ids 0, 1, 2, ... in order of first appearance, chunk by chunk.

    >>> packer = Packer()
    >>> packer.ids(np.array([10**15, 7, 10**15])).tolist(), packer.ids(np.array([8, 7])).tolist(), packer.count
    ([0, 1, 0], [2, 1], 3)
    """

    def __init__(self) -> None:
        self.count = 0
        self._seen = 0
        self._direct: Int32s | None = np.full(1 << 12, kernel.EMPTY, np.int32)
        self._table = np.full((0, 2), kernel.EMPTY, np.int64)

    def ids(self, words: Ints) -> Int32s:
        """Return the ids of one chunk of checked words."""
        out = np.empty(words.size, np.int32)
        self._seen += words.size
        if self._direct is not None and words.size:
            span = int(words.max()) + 1
            if span <= max(DIRECT_SPAN, DIRECT_SPREAD * self._seen):
                if span > self._direct.size:
                    more = np.full(max(span, 2 * self._direct.size) - self._direct.size, kernel.EMPTY, np.int32)
                    self._direct = np.concatenate([self._direct, more])
                self.count = kernel.pack_direct(words, out, self._direct, self.count)
                return out
            known = np.flatnonzero(self._direct != kernel.EMPTY)
            self._rehash(np.column_stack([known, self._direct[known]]))
            self._direct = None
        done = 0
        while True:
            done, self.count = kernel.pack(words, done, self._shift, out, self._table, self.count)
            if done == words.size:
                return out
            self._rehash(self._table)

    def _rehash(self, pairs: Ints) -> None:
        room = 1 << max(12, (4 * self.count).bit_length())
        self._table = np.full((room, 2), kernel.EMPTY, np.int64)
        kernel.rehash(pairs, self._table, self._shift)

    @property
    def _shift(self) -> np.uint64:
        return np.uint64(65 - self._table.shape[0].bit_length())


class StackDistance:
    """Reuse distances of a trace that comes in chunks, with their histogram; memory grows with distinct words only.

    >>> stack = StackDistance()
    >>> stack.feed([7, 8, 8]).tolist(), stack.feed([9, 7]).tolist()
    ([0, 0, 1], [0, 3])
    >>> stack.profile().misses([2, 3]).tolist()
    [4, 3]
    """

    def __init__(self) -> None:
        self._packer = Packer()
        self._table = np.full(1 << 12, kernel.EMPTY, np.int32)
        self._counts = np.zeros(self._table.size + 1, np.int64)  # by distance, which is at most the number of words
        self._state = np.zeros(2, np.int64)
        self._grow(MIN_SLOTS)

    @property
    def distinct(self) -> int:
        """Number of different words so far."""
        return int(self._state[kernel.LIVE])

    def feed(self, words: ArrayLike) -> Ints:
        """Return the distances of the next chunk of the trace."""
        array = check_words(words)
        out = np.empty(array.size, np.int64)
        for start in range(0, array.size, CHUNK):
            self._feed(array[start : start + CHUNK], out[start : start + CHUNK])
        return out

    def count(self, words: ArrayLike) -> None:
        """Take the next chunk into the histogram without keeping its distances."""
        array = check_words(words)
        out = np.empty(min(CHUNK, array.size), np.int64)
        for start in range(0, array.size, CHUNK):
            chunk = array[start : start + CHUNK]
            self._feed(chunk, out[: chunk.size])

    def profile(self) -> ReuseProfile:
        """Return the histogram of everything fed so far."""
        return ReuseProfile(self._counts[: self.distinct + 1].copy())

    def depths(self) -> Ints:
        """Return the 1-based depth at which each word lies now, in order of first appearance.

        >>> stack = StackDistance()
        >>> stack.count([7, 8, 9, 7])
        >>> stack.depths().tolist()
        [1, 3, 2]
        """
        out = np.empty(self.distinct, np.int64)
        out[np.argsort(self._table[: self.distinct])[::-1]] = np.arange(1, self.distinct + 1)
        return out

    def _feed(self, words: Ints, out: Ints) -> None:
        ids = self._packer.ids(words)
        if self._packer.count > self._table.size:
            more = np.full(max(self._table.size, self._packer.count), kernel.EMPTY, np.int32)
            self._table = np.concatenate([self._table, more])
            self._counts = np.concatenate([self._counts, np.zeros(more.size, np.int64)])
        done = 0
        while True:
            done = kernel.feed(ids, done, out, self._table, self._owner, *self._tree, self._state)
            if done == ids.size:
                break
            owner, bits, slots = self._owner, self._tree[0], self._owner.size
            while slots < SLOTS_PER_WORD * self.distinct:
                slots *= 2
            if slots != owner.size:
                self._grow(slots)
            kernel.compact(self._table, owner, bits, self._owner, *self._tree, self._state)
        kernel.histogram(out, self._counts)

    def _grow(self, slots: int) -> None:
        self._owner = np.empty(slots, np.int32)
        groups, blocks = -(-slots // (1 << kernel.GROUP)), -(-slots // (1 << kernel.BLOCK))
        self._tree: tuple[Array, ...] = (
            np.zeros(-(-slots // (1 << kernel.WORD)), np.uint64),
            np.zeros((groups, 1 << (kernel.GROUP - kernel.WORD)), np.int16),
            np.zeros((blocks, 1 << (kernel.BLOCK - kernel.GROUP)), np.int32),
            np.zeros(blocks, np.int32),
        )


def reuse_distances(words: ArrayLike) -> Ints:
    """Return the reuse distance of every access; an empty trace has none.

    >>> reuse_distances([7, 8, 8, 9, 7]).tolist()
    [0, 0, 1, 0, 3]
    """
    return StackDistance().feed(words)


def profile(chunks: ArrayLike | Iterator[ArrayLike]) -> ReuseProfile:
    """Return the histogram of a trace's distances: an array of addresses, or an iterator over chunks of it.

    >>> profile([7, 8, 8, 9, 7]).mean_distance
    2.0
    >>> profile(iter([np.array([7, 8, 8]), np.array([9, 7])])).mean_distance
    2.0
    """
    stack = StackDistance()
    # A list is one trace; only what can be walked once (a generator, a file's chunks) is a trace in pieces.
    pieces = chunks if isinstance(chunks, Iterator) else iter([chunks])
    for piece in pieces:
        stack.count(piece)
    result = stack.profile()
    if result.accesses == 0:
        raise InputError("the trace is empty: there is nothing to analyse")
    return result


@dataclass(frozen=True)
class ReuseProfile:
    """Histogram of reuse distances: `counts[d]` accesses at distance d, `counts[0]` first touches.

    >>> p = ReuseProfile(np.array([3, 1, 0, 1]))
    >>> p.accesses, p.distinct, p.cold, p.misses([1, 2, 3]).tolist()
    (5, 3, 3, [4, 4, 3])
    """

    counts: Ints

    @property
    def accesses(self) -> int:
        """Number of accesses."""
        return int(self.counts.sum())

    @property
    def cold(self) -> int:
        """Number of first touches."""
        return int(self.counts[COLD])

    @property
    def distinct(self) -> int:
        """Number of different words, which is the number of first touches."""
        return self.cold

    @property
    def mean_distance(self) -> float:
        """Mean distance of the accesses that are not first touches; 0 when all are.

        >>> ReuseProfile(np.array([3, 1, 0, 1])).mean_distance
        2.0
        """
        reused = self.accesses - self.cold
        return float(np.dot(np.arange(self.counts.size), self.counts)) / reused if reused else 0.0

    def cdf(self) -> Floats:
        """Return, at index d, the fraction of all accesses with distance 1 to d: the hit ratio of an LRU cache of d words.

        >>> ReuseProfile(np.array([3, 1, 0, 1])).cdf().tolist()
        [0.0, 0.2, 0.2, 0.4]
        """
        hits = np.cumsum(self.counts) - self.cold
        return hits / self.accesses

    def dmd(self, cold: str = "free") -> float:
        """Return the data movement distance: the sum of square roots of the distances (Smith, Ding et al. 2022).

        First touches are `free`, or priced as `new`: the k-th different word at depth k, as if pulled from below the stack.

        >>> p = ReuseProfile(np.array([3, 1, 0, 0, 1]))
        >>> p.dmd(), round(p.dmd(cold="new"), 3)
        (3.0, 7.146)
        """
        if cold not in ("free", "new"):
            raise InputError(f"cold must be 'free' or 'new', got {cold!r}")
        warm = float(np.dot(np.sqrt(np.arange(self.counts.size)), self.counts))
        return warm + (float(np.sqrt(np.arange(1, self.distinct + 1)).sum()) if cold == "new" else 0.0)

    def misses(self, sizes: ArrayLike) -> Ints:
        """Return the misses of an LRU cache of each of `sizes` words.

        >>> ReuseProfile(np.array([3, 1, 0, 1])).misses([1, 1000]).tolist()
        [4, 3]
        """
        hits = np.cumsum(self.counts) - self.cold
        at = np.minimum(check_sizes(sizes), self.counts.size - 1)
        return np.asarray(self.accesses - hits[at], np.int64)

    def miss_ratio(self, sizes: ArrayLike) -> Floats:
        """Return the misses of each of `sizes` as a fraction of the accesses.

        >>> ReuseProfile(np.array([3, 1, 0, 1])).miss_ratio([2]).tolist()
        [0.8]
        """
        return self.misses(sizes) / self.accesses
