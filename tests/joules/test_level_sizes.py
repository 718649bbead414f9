"""Levels come out of noisy sweeps: how many, how large, how expensive."""

from __future__ import annotations

import numpy as np
import pytest

from pebbler.joules.calibration import find_levels


@pytest.mark.parametrize("seed", range(20))
def test_levels_of_a_noisy_sweep_are_found(seed):
    draw = np.random.default_rng(seed)
    sizes = [int(2 ** (13 + k / 2)) for k in range(30)]
    count = int(draw.integers(1, 5))
    ends = sorted(draw.choice(np.arange(4, 26, 4), count - 1, replace=False).tolist())
    prices = np.cumprod(draw.uniform(1.8, 4, count))
    level = [sum(k > end for end in ends) for k in range(30)]
    costs = [float(prices[at] * draw.uniform(0.97, 1.03)) for at in level]
    order = draw.permutation(30)
    found = find_levels([sizes[k] for k in order], [costs[k] for k in order])
    assert [one.cost for one in found] == pytest.approx(prices, rel=0.08)
    assert [one.capacity for one in found] == [*(sizes[end] for end in ends), None]


def test_a_flat_sweep_is_one_level_and_spikes_are_no_levels():
    sizes = [2**k for k in range(10, 22)]
    assert [one.capacity for one in find_levels(sizes, [1.0] * 12)] == [None]
    assert len(find_levels(sizes, [1.0, 1.0, 9.0, 1.0, 1.0, 1.0, 1.0, 7.0, 1.0, 1.0, 1.0, 1.0])) == 1


def test_points_between_two_levels_belong_to_neither_size():
    sizes = [2**k for k in range(10, 22)]
    found = find_levels(sizes, [1.0] * 5 + [1.6] + [4.0] * 6)
    assert [one.capacity for one in found] == [2**14, None]
