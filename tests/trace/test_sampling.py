"""Sampled miss-ratio curves against exact ones."""

from __future__ import annotations

import numpy as np
import pytest

from pebbler.errors import InputError
from pebbler.trace.distances import profile
from pebbler.trace.sampling import sample_miss_ratio

SIZES = [500, 2000, 8000, 20_000]


def zipf(seed: int = 5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    weight = np.cumsum(1 / np.arange(1, 30_001))
    return rng.permutation(30_000)[np.searchsorted(weight, rng.random(200_000) * weight[-1])]


def test_the_error_bars_hold_the_truth_as_often_as_they_should():
    trace = zipf()
    truth = profile(trace).miss_ratio(SIZES)
    off = []
    for seed in range(40):
        estimate = sample_miss_ratio(trace, SIZES, rate=0.05, seed=seed)
        off.append((estimate.miss_ratio - truth) / estimate.error)
    within = np.abs(np.array(off))
    # 95 % should lie within 2 errors; 85 % leaves room for the jackknife's own noise at this many seeds.
    assert (within < 2).mean() > 0.85
    # And they are no wider than need be: some do lie beyond one error.
    assert (within > 1).mean() > 0.1
    assert abs(np.array(off).mean()) < 0.5


def test_the_whole_trace_is_exact_and_has_no_error():
    trace = zipf()[:20_000]
    estimate = sample_miss_ratio(trace, SIZES, rate=1.0)
    assert estimate.miss_ratio.tolist() == profile(trace).miss_ratio(SIZES).tolist()
    assert estimate.error.tolist() == [0.0] * len(SIZES)
    assert estimate.sampled == estimate.accesses == 20_000


def test_chunks_and_seeds_decide_the_sample():
    trace = zipf()
    whole, pieces = (
        sample_miss_ratio(trace, SIZES, rate=0.1),
        sample_miss_ratio(iter(np.array_split(trace, 7)), SIZES, rate=0.1),
    )
    assert whole.miss_ratio.tolist() == pieces.miss_ratio.tolist()
    assert whole.error.tolist() == pieces.error.tolist()
    assert whole.miss_ratio.tolist() != sample_miss_ratio(trace, SIZES, rate=0.1, seed=1).miss_ratio.tolist()


@pytest.mark.parametrize(
    ("trace", "rate", "message"),
    [([1, 2], 0.0, "above 0"), ([1, 2], 1.5, "at most 1"), ([], 0.5, "empty"), ([1, 2, 1], 0.5, "too few to judge")],
)
def test_wrong_input_is_named(trace, rate, message):
    with pytest.raises(InputError, match=message):
        sample_miss_ratio(trace, [1], rate=rate)
