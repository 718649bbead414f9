"""Miss-ratio curves with error bars, estimated from a sample of words, for traces too long to measure in full.

Spatial sampling (SHARDS; Waldspurger et al. 2015): keep every access to a random fraction of the *words*. Distances among the
kept accesses are that fraction of the true distances. Misses are divided by the rate and by the true number of accesses, so a hot
word counts as hits whether it is in the sample or not. The standard error is a jackknife: one group of sampled words is left out
at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pebbler.arrays import Floats, Ints
from pebbler.errors import InputError
from pebbler.trace.distances import ReuseProfile, check_sizes, check_words, profile
from pebbler.trace.kernels import stack_distance as kernel

__all__ = ["MissRatioEstimate", "sample_miss_ratio"]

GROUPS = 20


@dataclass(frozen=True)
class MissRatioEstimate:
    """Estimated LRU miss ratios of `sizes`, with one standard error each."""

    sizes: Ints
    miss_ratio: Floats
    error: Floats
    accesses: int
    sampled: int


def sample_miss_ratio(
    chunks: ArrayLike | Iterator[ArrayLike], sizes: ArrayLike, *, rate: float = 0.01, seed: int = 0
) -> MissRatioEstimate:
    """Return an estimate of the LRU miss ratio at each of `sizes`, from about `rate` of the trace's words.

    The trace is an array of addresses or an iterator over chunks of it. A sample says little about sizes well below 1/rate.

    >>> trace = np.tile(np.arange(20_000), 3)
    >>> estimate = sample_miss_ratio(trace, [10_000, 30_000], rate=0.1)
    >>> bool(np.all(np.abs(estimate.miss_ratio - [1, 1 / 3]) <= 3 * estimate.error)), estimate.accesses
    (True, 60000)
    """
    limits = check_sizes(sizes)
    if not 0 < rate <= 1:
        raise InputError(f"rate must be above 0 and at most 1, got {rate}")
    salt = np.random.default_rng(seed).integers(0, 2**64, dtype=np.uint64)
    kept: list[Ints] = []
    kept_groups: list[NDArray[np.int8]] = []
    accesses = 0
    for chunk in chunks if isinstance(chunks, Iterator) else iter([chunks]):
        words = check_words(chunk)
        accesses += words.size
        out, group = np.empty(words.size, np.int64), np.empty(words.size, np.int8)
        count = kernel.select(words, salt, np.uint64(rate * 2**32), np.uint64(GROUPS), out, group)
        kept.append(out[:count].copy())
        kept_groups.append(group[:count].copy())
    if accesses == 0:
        raise InputError("the trace is empty: there is nothing to analyse")
    sample, groups = np.concatenate(kept), np.concatenate(kept_groups)
    if np.unique(groups).size < GROUPS:
        raise InputError(
            f"rate {rate} keeps {sample.size} of {accesses} accesses: too few to judge the error; take a higher rate"
        )
    without = np.array(
        [_misses(profile(sample[groups != g]), limits, rate * (GROUPS - 1) / GROUPS) for g in range(GROUPS)]
    )
    spread = np.sqrt((GROUPS - 1) / GROUPS * ((without - without.mean(axis=0)) ** 2).sum(axis=0) * (1 - rate))
    ratio = _misses(profile(sample), limits, rate) / accesses
    return MissRatioEstimate(limits, np.minimum(ratio, 1.0), spread / accesses, accesses, sample.size)


def _misses(sampled: ReuseProfile, sizes: Ints, rate: float) -> Floats:
    """Misses of the whole trace: one at a sampled distance d stands for 1/rate of them at distance (d - 1)/rate + 1."""
    return sampled.misses(np.floor((sizes - 1) * rate + 1).astype(np.int64)) / rate
