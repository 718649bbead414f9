"""The schedule that stores every node: legal wherever each backward step fits, and what very large sizes fall back on."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from naive_chain import play
from pebbler.solver.chain import Chain, solve_general
from pebbler.solver.chain.general import store_all


def tightest(n: int, largest: int, start: str, seed: int) -> Chain:
    """Return a chain in the least memory in which each of its backward steps fits."""
    rng = np.random.default_rng(seed)
    sizes = tuple(rng.integers(1, largest + 1, n + 1).tolist())
    moved = tuple(float(size) for size in sizes)
    fast = max(a + b for a, b in itertools.pairwise(sizes))
    return Chain(sizes, (0.0, *rng.integers(0, 9, n).tolist()), (0.0,) * (n + 1), moved, moved, fast, start=start)


@pytest.mark.parametrize("start", ["fast", "slow", "both"])
def test_it_costs_what_it_says(start):
    for seed in range(20):
        chain = tightest(1 + seed % 7, 5, start, seed)
        energy, moves = store_all(chain)
        assert play(chain, moves.recorded) == energy


def test_bytes_that_fit_exactly_are_solved():
    """The largest pair of these nodes fits to the byte, so sizes can be counted in bytes only."""
    chain = tightest(12, 2**30, "fast", 1)
    solved = solve_general(chain)
    assert play(chain, solved.moves()) == solved.energy
    assert 0 < solved.bound <= solved.energy
