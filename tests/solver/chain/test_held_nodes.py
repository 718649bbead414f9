"""The bound by what waits in fast memory: against its twin, against brute force, and where it proves long chains."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive_chain import NaiveHeldNodes, naive_energy
from pebbler.solver.chain import Chain, solve_general
from pebbler.solver.chain.general import search_small, search_tight
from pebbler.solver.chain.held_nodes import held_nodes_bound

held_nodes = sys.modules["pebbler.solver.chain.held_nodes"]


def uneven(seed: int, longest: int) -> Chain:
    """Return a small chain, as odd as they come: any sizes, prices of 0 or none, N_0 anywhere."""
    rng = np.random.default_rng(seed)
    n, adjoint = int(rng.integers(1, longest + 1)), bool(rng.random() < 0.25)

    def numbers(low, high):
        return tuple(rng.integers(low, high + 1, n + 1).tolist())

    sizes = numbers(1, int(rng.choice([1, 2, 4, 7])))
    least = 0 if adjoint else max(a + b for a, b in itertools.pairwise(sizes))
    high = int(rng.choice([2, 9, 30]))
    store, load = numbers(0, high), numbers(0, high)
    kind = rng.random()
    if kind < 0.4:
        store, load = (store[0],) * (n + 1), (load[0],) * (n + 1)
    elif kind < 0.6:
        store = load = (math.inf,) * (n + 1)
    start = "fast" if adjoint else str(rng.choice(["fast", "slow", "both"]))
    forward = (0, *numbers(0, int(rng.choice([1, 3, 9, 30])))[1:])
    return Chain(sizes, forward, (0,) * (n + 1), store, load, least + int(rng.integers(0, 7)), adjoint, start)


def long_chain(n: int, fast: int, io: float, seed: int = 1) -> Chain:
    rng = np.random.default_rng(seed)
    sizes, forward = tuple(rng.integers(1, 5, n + 1).tolist()), (0, *rng.integers(1, 10, n).tolist())
    moved = tuple(io * size for size in sizes)
    return Chain(sizes, forward, (1,) * (n + 1), moved, moved, fast)


def attack(seeds: range, longest: int) -> None:
    for seed in seeds:
        _attack(seed, longest)


def _attack(seed: int, longest: int) -> None:
    chain = uneven(seed, longest)
    least = naive_energy(chain)
    found = held_nodes_bound(chain, least)
    assert (found is None) == math.isinf(least) or chain.length == 1
    if found is not None:
        assert found[0] <= least, f"seed {seed}: {found[0]} is above {least}"


def test_no_schedule_of_a_short_chain_costs_less():
    attack(range(300), 6)


@pytest.mark.slow
def test_no_schedule_of_many_chains_costs_less():
    attack(range(1000, 20_000), 7)
    attack(range(20_000, 21_000), 8)


def tight(seed: int, longest: int) -> Chain:
    """Return a chain without slow memory of which few nodes fit together, so that every red set can be looked at."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(8, longest + 1))
    largest = int(rng.choice([2, 3, 4, 7]))
    sizes = rng.integers(1, largest + 1, n + 1)
    if rng.random() < 0.5:  # a few large pairs with small nodes between: a run past one leaves little room
        sizes = np.where(rng.random(n + 1) < 0.2, largest, rng.integers(1, 3, n + 1))
    fast = int((sizes[1:] + sizes[:-1]).max()) + int(rng.integers(1, 2 + largest))
    forward = (0, *rng.integers(0, int(rng.choice([2, 9, 30])), n).tolist())
    never = (math.inf,) * (n + 1)
    return Chain(tuple(sizes.tolist()), forward, (0,) * (n + 1), never, never, fast)


def attack_tight(seeds: range, longest: int) -> int:
    """Hold chains that are too long for every position against all their red sets; return how many had a schedule."""
    solved = 0
    for seed in seeds:
        chain = tight(seed, longest)
        found = search_tight(chain, math.inf)
        if found is not None and not math.isinf(found[0]):
            solved += 1
            bound = held_nodes_bound(chain, found[0])[0]
            assert bound <= found[0], f"seed {seed}: {bound} is above {found[0]}"
    return solved


def test_no_schedule_of_a_longer_chain_without_slow_memory_costs_less():
    assert attack_tight(range(100), 16) > 50


@pytest.mark.slow
def test_no_schedule_of_many_longer_chains_without_slow_memory_costs_less():
    assert attack_tight(range(1000, 6000), 24) > 2500


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_tables_hold_what_the_recurrence_says(seed):
    chain = uneven(seed, 10)
    assert held_nodes_bound(chain, 1e6)[0] == NaiveHeldNodes(chain).bound()


def test_small_entries_say_the_same(monkeypatch):
    """Large tables have entries of 4 bytes: whole numbers stay exact, others are rounded down."""
    chain = long_chain(40, 20, 20)
    exact = held_nodes_bound(chain, 1000.0)[0]
    monkeypatch.setattr(held_nodes, "CELLS", 4 * 41 * 42 // 2 * 21 - 1)
    assert held_nodes_bound(chain, 1000.0)[0] == exact
    costs = {name: tuple(cost / 3 for cost in getattr(chain, name)) for name in ("forward", "store", "load")}
    rounded = held_nodes_bound(dataclasses.replace(chain, **costs), 300.0)[0]
    assert exact / 3 * (1 - 1e-4) < rounded <= exact / 3 * (1 + 1e-12)


def test_coarse_grains_and_little_time_give_less_or_nothing(monkeypatch):
    chain = long_chain(40, 40, math.inf)
    fine = held_nodes_bound(chain, 1000.0)[0]
    assert held_nodes_bound(chain, 1000.0, lambda: 0.0) is None
    monkeypatch.setattr(held_nodes, "CELLS", 41 * 42 // 2 * 22)
    coarse = held_nodes_bound(chain, 1000.0)[0]
    assert sum(chain.forward) <= coarse < fine


@pytest.mark.parametrize("io", [20, 100, math.inf])
def test_chains_of_two_hundred_uneven_nodes_are_proven(io):
    solved = solve_general(long_chain(200, 40, io))
    assert solved.status == "optimal"


@pytest.mark.parametrize(("fast", "io", "gap"), [(14, 20, 0.02), (14, math.inf, 0.05), (10, 20, 0.05)])
def test_gaps_are_small_where_memory_is_tight(fast, io, gap):
    assert solve_general(long_chain(100, fast, io)).gap < gap


def persistent(patch):
    """What waits is taken to wait to its own backward step: the smaller nodes that may wait instead are left out."""
    waiting = held_nodes.waiting_nodes
    patch.setattr(
        held_nodes, "waiting_nodes", lambda size, tops, most: waiting(0 * size, tops, most)._replace(size=size)
    )


def stored_every_time(patch):
    """A store is taken to be paid with every load."""
    describe = held_nodes.describe

    def raised(*arguments):
        chain = describe(*arguments)
        return chain._replace(load=chain.load + chain.store, store=np.zeros_like(chain.store))

    patch.setattr(held_nodes, "describe", raised)


def roomier_steps(patch):
    """Every backward step is taken to need a unit more than it does."""
    describe = held_nodes.describe
    patch.setattr(held_nodes, "describe", lambda *given: (c := describe(*given))._replace(need=1 + c.need))


def roomier_runs(patch):
    """Every forward step is taken to need a unit more than it does."""
    describe = held_nodes.describe
    patch.setattr(held_nodes, "describe", lambda *given: (c := describe(*given))._replace(pair=1 + c.pair))


def small_nodes_wait_for_large_ones() -> None:
    """In an optimal schedule of these chains a small node waits in the place of a larger one and is given up for it."""
    never = (math.inf,) * 10
    for sizes, forward, fast, least in (
        ((1, 2, 1, 3, 3, 3, 2, 3, 2, 3), (0, 1, 1, 2, 1, 2, 2, 1, 1, 2), 9, 24),
        ((2, 1, 2, 2, 1, 2, 1, 1, 1), (0, 2, 11, 6, 20, 5, 8, 2, 10), 7, 88),
    ):
        n = len(sizes) - 1
        chain = Chain(sizes, forward, (0,) * (n + 1), never[: n + 1], never[: n + 1], fast)
        assert search_small(chain, math.inf)[0] == least
        bound = held_nodes_bound(chain, least)[0]
        assert bound <= least, f"{bound} is above {least}"
        assert bound == least


def nodes_alike() -> None:
    """Long chains whose nodes have one size are solved exactly by another recurrence, proven otherwise."""
    rng = np.random.default_rng(3)
    for n in range(2, 40):
        io = (math.inf, 12, 30)[n % 3]
        forward = (0, *rng.integers(1, 10, n).tolist())
        chain = Chain((1,) * (n + 1), forward, (0,) * (n + 1), (io,) * (n + 1), (io,) * (n + 1), 3 + n % 5)
        solved = solve_general(chain)
        assert solved.status == "optimal"
        bound = held_nodes_bound(chain, solved.energy)[0]
        assert bound <= solved.energy, f"{n}: {bound} is above {solved.energy}"


def odd_chains() -> None:
    attack(range(2000), 6)


def test_small_nodes_may_wait_for_large_ones():
    small_nodes_wait_for_large_ones()


def test_no_schedule_of_a_chain_of_equal_nodes_costs_less():
    nodes_alike()


@pytest.mark.parametrize(
    ("fault", "attacked"),
    [
        (persistent, small_nodes_wait_for_large_ones),
        (stored_every_time, odd_chains),
        (roomier_steps, nodes_alike),
        (roomier_runs, nodes_alike),
    ],
)
def test_a_wrong_bound_is_found(monkeypatch, fault, attacked):
    fault(monkeypatch)
    with pytest.raises(AssertionError, match="is above"):
        attacked()
