"""The least number of entries of a matrix product into a room of few places, from a potential on what the room may hold.

Elements come into the room by a read each, sums by being begun or by coming back; a product needs both of its elements and a place
for itself, or the place of one of them. Of the room only numbers are told apart: how many sums there are; and per index that is
summed over, how many elements of each matrix, how many of their products are still to be made, and how many of the sums still lack
theirs. So few places have few *states*. A potential on the states bounds every plan of any product.
`docs/products.md` has the proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pebbler.arrays import Ints
from pebbler.referee.programs.potentials import settled

__all__ = ["MOST_PLACES", "RoomMoves", "least_room_entries", "room_entries_by_copies", "room_moves", "room_potential"]

MOST_PLACES = 9
_PARTS = 72  # prices are multiples of 1 / 72
_DEAREST = {  # prices of a product where the search for the best begins, by parts that a copy takes, and by places from 2
    0: (144, 108, 96, 90, 84, 72, 72, 64),
    18: (144, 117, 102, 94, 90, 81, 78, 72),
    36: (144, 126, 108, 96, 90, 86, 84, 79),
}
_STEP = 4
_SMALL, _FEW = 7, 48  # more places than that take a second, which so few products are not worth
_ROUNDS = 100  # a potential settles in half as many rounds, or there is none

Layer = tuple[
    int, int, int, int
]  # elements of the one matrix and of the other, their products to be made, sums that lack theirs
State = tuple[int, tuple[Layer, ...]]  # sums, and the layers that have elements inside


class RoomMoves(NamedTuple):
    """The moves of the game between its states, sorted by where they begin: flat arrays, an entry per move."""

    states: list[State]
    ends: Ints
    first: Ints  # per state, its first move
    cost: Ints
    products: Ints  # 1 for a move that makes a product
    copied: Ints  # 1 for an element that comes in
    held: Ints  # per state, how many elements are inside where a plan can begin with them, -1 where none can


def least_room_entries(room: int, products: int, at_start: int) -> int:
    """Return the least number of entries of elements and sums into a room; 0 for rooms of no place, of one, and of many.

    `at_start` elements may be inside when it begins. Products and additions are ops of their own.

    >>> least_room_entries(4, products=8**3, at_start=4), least_room_entries(9, products=16**3, at_start=9)
    (681, 3638)
    """
    return -(-_least_parts(room, products, at_start, 0) // _PARTS)


def room_entries_by_copies(room: int, products: int, at_start: int, copies: Ints) -> Ints:
    """Return the least number of entries where elements come in by so many copies at most; the last number: or by more.

    >>> room_entries_by_copies(9, products=8**3, at_start=9, copies=np.array([0, 128, 256, 999]))
    array([557, 493, 452, 452])
    """
    every = [_least_parts(room, products, at_start, charge) - charge * copies for charge in _DEAREST]
    found: Ints = -(-np.max(every, axis=0) // _PARTS)
    found[-1] = least_room_entries(room, products, at_start)
    return found


@lru_cache(maxsize=256)
def _least_parts(room: int, products: int, at_start: int, charge: int) -> int:
    """Return the least number of entries in parts, if a copy of an element takes so many parts more."""
    if not 2 <= room <= MOST_PLACES or (room > _SMALL and products < _FEW):
        return 0
    moves, best = room_moves(room), 0
    for price in range(_DEAREST[charge][room - 2], 0, -_STEP):
        least = room_potential(moves, price, charge)
        if least is None:
            continue
        found = price * products + int(least[(moves.held >= 0) & (moves.held <= at_start)].min())
        if found <= best:
            break
        best = found
    return best


def room_potential(moves: RoomMoves, price: int, charge: int = 0) -> Ints | None:
    """Return per state the least that any row of moves from it costs, less `price` for each product; in parts. `None`: no least.

    An element that comes in costs `charge` more.
    """
    weight = _PARTS * moves.cost + charge * moves.copied - price * moves.products
    return settled(np.zeros(len(moves.first), np.int64), weight, moves.ends, moves.first, _ROUNDS)


@lru_cache(maxsize=MOST_PLACES + 1)
def room_moves(room: int) -> RoomMoves:
    """Return all moves of the game in a room of so many places.

    >>> [len(room_moves(room).first) for room in (2, 3, 4, 5)]
    [10, 31, 99, 305]
    """
    states: list[State] = [(0, ())]
    numbers = {states[0]: 0}
    first: list[int] = []
    moves: list[tuple[int, int, int]] = []
    for state in states:  # grows on the way
        found: dict[tuple[int, int], int] = {}
        for then, cost, products in _moves(state, room):
            end = numbers.setdefault(then, len(numbers))
            if end == len(states):
                states.append(then)
            found[end, products] = min(cost, found.get((end, products), cost))
        first.append(len(moves))
        moves += [(end, cost, products) for (end, products), cost in found.items()]
    ends, cost, products = np.array(moves, np.int64).T.copy()
    elements = np.array([sum(x + y for x, y, _, _ in layers) for _, layers in states], np.int64)
    begins = np.repeat(np.arange(len(states)), np.diff([*first, len(ends)]))
    copied = ((products == 0) & (elements[ends] > elements[begins])).astype(np.int64)
    begun = np.array(
        [sums or any(missing != x * y for x, y, missing, _ in layers) for sums, layers in states], np.bool_
    )
    held = np.where(begun, -1, elements)
    return RoomMoves(states, ends, np.array(first, np.int64), cost, products, copied, held)


def _moves(state: State, room: int) -> Iterator[tuple[State, int, int]]:
    """Yield what a state can become: the state, the entries that it takes, and how many products it makes."""
    sums, layers = state
    free = room - sums - sum(x + y for x, y, _, _ in layers)
    if free:
        yield _state(sums, [*layers, (1, 0, 0, sums)]), 1, 0
        yield _state(sums + 1, _one_more(layers)), 1, 0
    if sums:
        yield _state(sums - 1, [(x, y, missing, min(lack, sums - 1)) for x, y, missing, lack in layers]), 0, 0
    for at, layer in enumerate(layers):
        if at and layers[at - 1] == layer:
            continue
        others = [*layers[:at], *layers[at + 1 :]]
        x, y, missing, lack = layer
        if free:
            yield _state(sums, [*others, _layer(x + 1, y, missing + y, lack)]), 1, 0
            yield _state(sums, [*others, _layer(x, y + 1, missing + x, lack)]), 1, 0
        for fewer in _without_one(layer):
            yield _state(sums, [*others, fewer]), 0, 0
        for outside in (0, 1):  # of the two elements of a product of this layer
            left = (x, y, missing - 1 + outside, lack)
            if left[2] >= 0:
                for then, entries in _product(sums, left, others, free):
                    yield then, outside + entries, 1


def _product(sums: int, layer: Layer, others: list[Layer], free: int) -> Iterator[tuple[State, int]]:
    """Yield the states after a product of a layer, into a free place, over an element or far, and the entries of its sum."""
    x, y, missing, lack = layer
    more = _one_more(others)
    yield _state(sums, [*others, layer]), 1  # nothing of the sum is inside, before or after
    if lack:
        yield _state(sums, [*others, (x, y, missing, lack - 1)]), 0 if free else 1  # a stray where it does not stay
    if free:  # an element may leave afterwards
        yield _state(sums + 1, [*more, layer]), 1  # the sum lacks this product no longer
        return
    for left in _without_one(layer):
        if lack:
            yield _state(sums, [*others, (*left[:3], lack - 1)]), 0
        yield _state(sums + 1, [*more, left]), 1


def _one_more(layers: tuple[Layer, ...] | list[Layer]) -> list[Layer]:
    """Return layers after one more sum has come."""
    return [(x, y, missing, lack + 1) for x, y, missing, lack in layers]


def _without_one(layer: Layer) -> list[Layer]:
    """Return a layer without an element of the one matrix, and of the other."""
    x, y, missing, lack = layer
    return [_layer(x - 1, y, missing, lack), *([_layer(x, y - 1, missing, lack)] if y else [])]


def _layer(x: int, y: int, missing: int, lack: int) -> Layer:
    """Return a layer with the matrix first of which more is inside: the two may change places."""
    return max(x, y), min(x, y), min(missing, x * y), lack


def _state(sums: int, layers: list[Layer]) -> State:
    """Return a state: layers in order, without those of which nothing is inside."""
    return sums, tuple(sorted(layer for layer in layers if layer[0]))
