"""Chains of unlike nodes that are too long for tables over all segments: legal schedules, true bounds, and a plan at any length."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import pebbler.solver.chain as package
from naive_chain import naive_energy, play
from pebbler.errors import InputError
from pebbler.solver.chain import Chain, solve_general
from pebbler.solver.chain import general as module
from pebbler.solver.chain.general import as_if_alike, general_bound, general_recurrence, pieces_bound


def unlike(
    n: int, seed: int, *, start: str = "fast", adjoint: bool = False, slow: bool = True, share: float = 0.5
) -> Chain:
    """Return a chain of random nodes whose fast memory holds a share of them, at least three of the largest."""
    rng = np.random.default_rng(seed)
    sizes = tuple(rng.integers(1, 6, n + 1).tolist())
    io = 4.0 if slow else math.inf
    copies = (io,) * (n + 1)
    fast = max(15, int(share * sum(sizes)))
    forward = (0.0, *rng.integers(1, 9, n).tolist())
    return Chain(sizes, forward, (0.0,) * (n + 1), copies, copies, fast, adjoint, start)


CASES = [(start, False, slow) for start in ("fast", "slow", "both") for slow in (True, False)] + [
    ("fast", True, True), ("fast", True, False)
]  # fmt: skip


@pytest.mark.parametrize(("start", "adjoint", "slow"), CASES)
def test_the_schedule_of_nodes_alike_costs_what_it_says(start, adjoint, slow):
    for seed in range(12):
        chain = unlike(2 + 3 * seed, seed, start=start, adjoint=adjoint, slow=slow)
        energy, moves = as_if_alike(chain)
        assert play(chain, moves.recorded) == energy


@pytest.mark.parametrize(("start", "adjoint", "slow"), CASES)
def test_beyond_the_tables_schedules_are_legal_and_no_bound_is_above_an_optimum(start, adjoint, slow, monkeypatch):
    monkeypatch.setattr(module, "GENERAL_LENGTH", 2)
    for seed in range(10):
        chain = unlike(3 + seed % 5, seed, start=start, adjoint=adjoint, slow=slow)
        energy, splits = general_recurrence(chain)
        optimum = naive_energy(chain)
        assert play(chain, module.stream(chain, splits)) == energy >= optimum
        assert general_bound(chain, energy)[0] <= optimum


@pytest.mark.parametrize(("start", "adjoint", "slow"), CASES)
def test_nothing_is_called_optimal_beyond_the_tables_that_is_not(start, adjoint, slow, monkeypatch):
    """Of 5,200 nodes of one size, 358,065 was called optimal; over all segments there is a schedule of 345,799."""
    monkeypatch.setattr(module, "GENERAL_LENGTH", 2)
    for name in ("search_small", "search_tight"):  # they would find the optimum of chains as short as these
        monkeypatch.setattr(package, name, lambda *_: None)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(5, 8))
        forward, copies = (0.0, *rng.integers(1, 9, n).tolist()), (9.0 if slow else math.inf,) * (n + 1)
        chain = Chain((1,) * (n + 1), forward, (0.0,) * (n + 1), copies, copies, 3, adjoint, start)
        optimum = naive_energy(chain)
        if math.isinf(optimum):
            continue
        solved = solve_general(chain)
        assert play(chain, solved.moves()) == solved.energy >= optimum >= solved.bound


@pytest.mark.parametrize("length", [2, 3, 4])
def test_no_schedule_costs_less_than_the_pieces_of_its_chain(length, monkeypatch):
    monkeypatch.setattr(module, "GENERAL_LENGTH", length)
    for seed in range(80):
        rng = np.random.default_rng(seed)
        n, most = int(rng.integers(length + 1, 8)), int(rng.choice([1, 1, 3]))
        sizes = tuple(rng.integers(1, most + 1, n + 1).tolist())
        io = float(rng.choice([1.0, 3.0, 9.0, math.inf]))
        forward, copies = (0.0, *rng.integers(0, 9, n).tolist()), tuple(io * size for size in sizes)
        room = max(a + b for a, b in itertools.pairwise(sizes)) + int(rng.integers(0, 3))
        chain = Chain(sizes, forward, (0.0,) * (n + 1), copies, copies, room, False, str(rng.choice(["fast", "both"])))
        optimum, found = naive_energy(chain), pieces_bound(chain)
        assert found is not None
        assert found[0] <= optimum


@pytest.mark.parametrize("length", [2, module.GENERAL_LENGTH])
def test_a_chain_whose_largest_node_hardly_fits_has_a_schedule_where_there_is_one(length, monkeypatch):
    """As if all were as large as that, one pebble was left, which was refused as too few for any chain."""
    monkeypatch.setattr(module, "GENERAL_LENGTH", length)
    solved = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        n, slow = int(rng.integers(3, 7)), bool(rng.random() < 0.6)
        sizes = tuple(rng.choice([1, 1, 2, 3, 7], n + 1).tolist())
        store, load = (
            tuple(rng.choice([1.0, 4.0, 20.0], n + 1).tolist()) if slow else (math.inf,) * (n + 1) for _ in "sl"
        )
        forward = (0.0, *rng.choice([0.0, 1.0, 2.0, 9.0], n).tolist())
        room = max(a + b for a, b in itertools.pairwise(sizes)) + int(rng.integers(0, 4))
        start = str(rng.choice(["fast", "slow", "both"]))
        try:
            chain = Chain(sizes, forward, (0.0,) * (n + 1), store, load, room, False, start)
        except InputError:
            continue
        optimum = naive_energy(chain)
        if math.isinf(optimum):
            continue
        found = solve_general(chain)
        assert play(chain, found.moves()) == found.energy >= optimum >= found.bound
        solved += 1
    assert solved > 40


def test_longer_chains_than_a_split_can_number_have_a_schedule(monkeypatch):
    monkeypatch.setattr(module, "GENERAL_LENGTH", 10)
    monkeypatch.setattr(module, "MOST_SPLIT", 40)
    for slow in (True, False):
        chain = unlike(60, 1, slow=slow, share=0.2)
        solved = solve_general(chain)
        assert play(chain, solved.moves()) == solved.energy
        assert 0 < solved.bound <= solved.energy < 2 * solved.bound


@pytest.mark.slow
@pytest.mark.parametrize("slow", [True, False])
@pytest.mark.parametrize("n", [20_000, 50_000])
def test_chains_of_tens_of_thousands_of_nodes(n, slow):
    chain = unlike(n, 2, slow=slow, share=0.1)
    solved = solve_general(chain, lambda: 10.0)
    assert play(chain, solved.moves()) == solved.energy
    assert solved.energy < 1.2 * solved.bound
