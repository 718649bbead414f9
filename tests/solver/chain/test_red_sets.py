"""The search of all red sets: against brute force, and on chains that no bound proves."""

from __future__ import annotations

import dataclasses
import math
import sys

import numpy as np
import pytest

from naive_chain import naive_energy, play
from pebbler import check
from pebbler.solver.chain import Chain, solve_general
from pebbler.solver.chain.general import search_tight

general = sys.modules["pebbler.solver.chain.general"]


def chain_without_slow_memory(seed: int, longest: int) -> Chain:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, longest + 1))
    sizes = tuple(rng.integers(1, int(rng.choice([1, 2, 4, 7])) + 1, n + 1).tolist())
    forward = (0, *rng.integers(0, int(rng.choice([1, 9, 30])) + 1, n).tolist())
    backward = tuple(rng.integers(0, 3, n + 1).tolist())
    never = (math.inf,) * (n + 1)
    fast = max(a + b for a, b in zip(sizes, (*sizes[1:], 0), strict=True)) + int(rng.integers(0, 6))
    return Chain(sizes, forward, backward, never, never, fast)


def attack(seeds: range, longest: int) -> None:
    for seed in seeds:
        chain = chain_without_slow_memory(seed, longest)
        least = naive_energy(chain)
        found = search_tight(chain, math.inf)
        assert found is not None
        assert found[0] == least, f"seed {seed}"
        if not math.isinf(least):
            assert play(chain, found[1].recorded) == least
            assert search_tight(chain, least)[0] == math.inf  # none costs less than the least
            assert search_tight(chain, least + 1)[0] == least


def test_all_red_sets_give_the_optimum():
    attack(range(250), 6)


@pytest.mark.slow
def test_all_red_sets_of_many_chains_give_the_optimum():
    attack(range(1000, 6000), 7)
    attack(range(6000, 6300), 8)


@pytest.mark.parametrize(("steps", "fast", "least"), [(18, 10, 368), (30, 10, 1083), (60, 10, 2091)])
def test_chains_in_little_memory_are_solved_to_the_end(steps, fast, least):
    """Figures of `python -m benchmarks.uneven_chains`; the recurrence over persistent checkpoints finds 390 and 1,099."""
    rng = np.random.default_rng(1)
    sizes, forward = tuple(rng.integers(1, 5, steps + 1).tolist()), (0, *rng.integers(1, 10, steps).tolist())
    never = (math.inf,) * (steps + 1)
    solved = solve_general(Chain(sizes, forward, (1,) * (steps + 1), never, never, fast))
    assert (solved.energy, solved.status) == (least, "optimal")
    judgement = check(solved.plan())
    assert judgement.legal, judgement.error
    assert judgement.energy == least


def test_other_chains_and_too_many_sets_are_left_alone(monkeypatch):
    chain = chain_without_slow_memory(5, 6)
    ones = (1,) * len(chain.sizes)
    assert search_tight(dataclasses.replace(chain, store=ones, load=ones), math.inf) is None
    assert search_tight(dataclasses.replace(chain, adjoint=True), math.inf) is None
    assert search_tight(Chain.uniform(70, red=3, io=math.inf), math.inf) is None
    monkeypatch.setattr(general, "RED_SETS", 3)
    assert search_tight(chain, math.inf) is None


def test_a_first_node_that_can_be_loaded_again_is_no_such_chain():
    chain = chain_without_slow_memory(5, 6)
    loaded = dataclasses.replace(chain, load=(2,) * len(chain.sizes), start="both")
    assert search_tight(loaded, math.inf) is None
