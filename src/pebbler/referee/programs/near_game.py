"""The least cost of products and additions on a few near cells: one at distance 1, up to three at distance 2, all others at 3.

Every product reads an element of each matrix, every addition two values of one sum, and results go anywhere for nothing. What is
far is at hand without end; only what is near is told apart. So few cells have few *states*: which elements and values are near,
which of their indices are equal, which of their products are made. A potential on the states bounds every program of any size.
`docs/products.md` has the proof.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pebbler.arrays import Bools, Ints
from pebbler.referee.kernels.near_states import MOST_CELLS, SUM, moves_from
from pebbler.referee.programs.potentials import settled

__all__ = ["DISCOUNTS", "NearMoves", "least_near_cost", "near_cost_by_copies", "near_moves", "potential"]

_PARTS = 12  # prices are multiples of 1 / 12
_PER_OP = 4 * _PARTS
DISCOUNTS = (0, 3, 6)  # that are tried for copies of elements
_NEAR_USES = range(_PARTS)  # prices of a near use that are tried
_ROUNDS = 60  # a potential settles in a few rounds, or there is none
_NOWHERE = 10**6
_STATES = 256  # whose moves are found at a time


class NearMoves(NamedTuple):
    """The moves of the game between its states, sorted by where they begin: flat arrays, an entry per move."""

    ends: Ints
    first: Ints  # per state, its first move
    cost: Ints
    products: Ints  # how many products the move makes, how many values it adds up
    additions: Ints
    copied: Ints  # elements copied from far
    moved: Bools  # whether an element is copied, from far or from near
    used: Ints  # near elements that a product reads
    held: Ints  # per state, how many elements are near
    settled: Bools  # per state, whether no value on the way to a sum is near


def least_near_cost(cells: int, products: int, additions: int, uses: int) -> int:
    """Return the least cost of so many products and additions, with so many near cells, one of them at distance 1.

    No element is in more than `uses` products.

    >>> least_near_cost(4, products=64, additions=48, uses=4)
    450
    """
    return -(-_least_parts(cells, products, additions, uses, 0) // _PARTS)


def near_cost_by_copies(cells: int, products: int, additions: int, uses: int, copies: Ints) -> Ints:
    """Return the least cost where elements are copied so many times at least.

    >>> near_cost_by_copies(4, products=512, additions=448, uses=8, copies=np.array([0, 170, 200, 256]))
    array([3837, 3838, 3853, 3881])
    """
    every = [_least_parts(cells, products, additions, uses, lower) + lower * copies for lower in DISCOUNTS]
    found: Ints = -(-np.max(every, axis=0) // _PARTS)
    return found


@lru_cache(maxsize=64)
def _least_parts(cells: int, products: int, additions: int, uses: int, lower: int) -> int:
    """Return the least cost in twelfths, if a copy of an element costs so many less than its reads."""
    moves, best = near_moves(cells), 0
    for use in _NEAR_USES:
        per_product = _PER_OP - lower
        while (least := potential(moves, per_product, use, uses, lower)) is not None:
            best = max(best, per_product * products + _PER_OP * additions + least)
            per_product += 1
    return best


def potential(moves: NearMoves, per_product: int, use: int, uses: int, lower: int = 0) -> int | None:
    """Return the least that any row of moves costs, less `per_product` for each product and 4 for each addition; in twelfths.

    Every near use of an element costs `use` more, and every copy of one from far `uses` times that less; every copy of an element
    `lower` less. `None`: no least.
    """
    weight = _PARTS * moves.cost - per_product * moves.products - _PER_OP * moves.additions
    weight += use * (moves.used - uses * moves.copied) - lower * moves.moved
    least = settled(np.where(moves.settled, 0, _NOWHERE), weight, moves.ends, moves.first, _ROUNDS)
    return None if least is None else int((least - use * uses * moves.held)[moves.settled].min())


@lru_cache(maxsize=MOST_CELLS + 1)
def near_moves(cells: int) -> NearMoves:
    """Return all moves of the game.

    >>> [len(near_moves(cells).first) for cells in (1, 2, 3, 4)]
    [4, 37, 358, 3376]
    """
    states = waiting = np.zeros(1, np.int64)
    found = []
    while len(waiting):
        for at in range(0, len(waiting), _STATES):
            begins = waiting[at : at + _STATES]
            rows = np.zeros((0, 7), np.int64)
            while (count := moves_from(begins, cells, rows)) > len(rows):
                rows = np.zeros((count, 7), np.int64)
            rows[:, 0] = begins[rows[:, 0]]
            found.append(np.unique(rows, axis=0))
        waiting = np.setdiff1d(np.concatenate([rows[:, 1] for rows in found]), states)
        states = np.union1d(states, waiting)
    begins, ends, cost, products, additions, copied, used = np.unique(np.concatenate(found), axis=0).T.copy()
    kinds = states[:, None] >> 8 * np.arange(cells) + 6 & 3
    held = ((kinds != 0) & (kinds != SUM)).sum(axis=1)
    ends, first = np.searchsorted(states, ends), np.searchsorted(begins, states)
    come = held[ends] > held[np.searchsorted(states, begins)]
    return NearMoves(
        ends=ends,
        first=first,
        cost=cost,
        products=products,
        additions=additions,
        copied=copied,
        moved=come & (products == 0) & (additions == 0),
        used=used,
        held=held,
        settled=~(kinds == SUM).any(axis=1),
    )
