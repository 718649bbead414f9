"""Residences between two levels: flows against all assignments that there are, and layouts against the referee."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from pebbler.extras.layout.layout_search import Layout
from pebbler.extras.layout.level_exchange import can_exchange, nested_bound, residences_of
from pebbler.referee.judgement import check
from pebbler.solver.problem import Problem
from pebbler.workloads import chain, matmul


def cheapest(first: np.ndarray, end: np.ndarray, reads: np.ndarray, capacity: np.ndarray, read: np.ndarray) -> float:
    """Return what the best of all levels for some residences cost."""
    best = np.inf
    for levels in product(range(len(read)), repeat=len(first)):
        crowds = [
            sum(levels[v] == level and first[v] <= slot < end[v] for v in range(len(first)))
            for level in range(len(read))
            for slot in range(int(end.max()))
        ]
        if all(crowd <= capacity[i // int(end.max())] for i, crowd in enumerate(crowds)):
            best = min(best, float((reads * read[list(levels)]).sum()))
    return best


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_is_exact_for_two_levels_and_holds_for_three(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 5, 6)
    end, reads = first + rng.integers(1, 5, 6), rng.integers(1, 6, 6)
    two = np.array([1, 9]), np.array([1.0, 2.0])
    assert nested_bound(first, end, reads, *two) == cheapest(first, end, reads, *two)
    three = np.array([1, 2, 9]), np.array([1.0, 2.0, 4.0])
    assert nested_bound(first, end, reads, *three) <= cheapest(first, end, reads, *three)


@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 3, 3), (4, 3, 5)])
def test_an_exchange_saves_what_it_says_and_stays_above_the_bound(sizes: tuple[int, int, int]) -> None:
    problem = Problem.of(matmul(*sizes), "grid")
    layout = Layout.of(problem, np.arange(len(problem.graph.ops)), 5)
    arrays, before = layout.game.arrays, layout.energy
    found = residences_of(arrays, layout.routes)
    assert (found.reads * arrays.read[found.level]).sum() == before
    least = nested_bound(found.first, found.end, found.reads, layout.game.capacity, arrays.read)
    layout.exchange()
    assert least <= layout.energy <= before
    judgement = check(layout.plan())
    assert judgement.legal
    assert judgement.energy == layout.energy


def test_an_exchange_brings_a_bad_layout_near() -> None:
    problem = Problem.of(matmul(3, 3, 3), "grid")
    layout = Layout.of(problem, np.arange(len(problem.graph.ops)), 5)
    layout.routes.near[:], layout.routes.far[:] = len(layout.game.levels) - 1, -1
    layout.energy = float(check(layout.plan()).energy or 0)
    before = layout.energy
    layout.exchange(lambda: 0.0)
    assert layout.energy == before, "there was no time"
    layout.exchange()
    assert layout.energy < 0.5 * before
    assert check(layout.plan()).energy == layout.energy


def test_other_machines_keep_their_levels() -> None:
    problem = Problem.of(chain(4), "red-blue")
    assert not can_exchange(Layout.of(problem, np.arange(len(problem.graph.ops)), 2).game.arrays)
