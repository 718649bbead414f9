"""The assignment of a value's elements to the parts of a leaf.

A part says how many elements it has, that they are in tiles of full size along some axes, and how large these are at least. In a
form that may be true of more elements; any choice will do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pebbler.arrays import Ints
from pebbler.referee.pieces import Pieces
from pebbler.referee.rows.elements import Axes
from pebbler.referee.rows.leaf import Leaf, TilePart

__all__ = ["Parts", "parts_of"]

Parts = Mapping[int, Ints]  # per value: the part of each of its elements


def parts_of(pieces: Pieces, leaf: Leaf, rng: np.random.Generator | None = None) -> Parts:
    """Return a part for every element of every value of a leaf: the first that can be in it, or any at random.

    An element of a tensor that some op overwrites is in the same part before and after, where the parts have the same numbers.
    """
    found = {value: _chosen(pieces, leaf, value, rng) for value in leaf.parts}
    for first, last in ((start.first, start.last) for start in leaf.starts):
        numbers = [[part.number for part in leaf.parts.get(value, ())] for value in (first, last)]
        if first != last and numbers[0] == numbers[1]:
            found[last] = _carried(pieces, found[first], first, last)
    return found


class _Tile(NamedTuple):
    """The axes along which a tile has the full size, and how large it is; where others share its place, the smallest of them."""

    full: Axes
    units: int

    def may_be_in(self, part: TilePart) -> bool:
        return self.full >= part.full and self.units >= part.units


def _chosen(pieces: Pieces, leaf: Leaf, value: int, rng: np.random.Generator | None) -> Ints:
    parts = leaf.parts[value]
    of = np.full(int(pieces.source_flow.value_size[value]), -1)
    alike: dict[_Tile, list[int]] = {}
    for tensor in pieces.tiles_of(int(pieces.source_flow.value_tensor[value])):
        alike.setdefault(_tile(pieces, leaf, tensor), []).extend(pieces.elements[tensor].tolist())
    kinds = list(alike)
    if rng is not None:
        rng.shuffle(kinds)
        for elements in alike.values():
            rng.shuffle(elements)
    for kind, row in zip(kinds, _flow(kinds, [len(alike[kind]) for kind in kinds], parts), strict=True):
        for part, number in enumerate(row):
            for _ in range(number):
                of[alike[kind].pop()] = part
    assert (of >= 0).all(), "a part has more elements than are in such tiles"
    return of


def _tile(pieces: Pieces, leaf: Leaf, tensor: int) -> _Tile:
    """Return a tensor of the form described as a tile; an axis without a range counts in full."""
    flow = pieces.flow
    full = frozenset(
        axis
        for axis, extent in pieces.graph.tensors[tensor].axes or ()
        if extent == pieces.sizes.get(axis, extent) or axis not in leaf.tiles.ranges
    )
    return _Tile(full, int(flow.tensor_size[flow.storage == flow.storage[tensor]].min()))


def _flow(kinds: Sequence[_Tile], sizes: Sequence[int], parts: Sequence[TilePart]) -> list[list[int]]:
    """Return the number of elements of each kind of tile that go to each part, so that every part has its number of elements."""
    given = [[0] * len(parts) for _ in kinds]
    left, missing = list(sizes), [part.number for part in parts]

    def augment(part: int, seen: set[int]) -> bool:
        """Find one more element for a part, by moving others if need be."""
        for one, kind in enumerate(kinds):
            if one in seen or not kind.may_be_in(parts[part]):
                continue
            seen.add(one)
            if left[one]:
                left[one] -= 1
                given[one][part] += 1
                return True
            for other, number in enumerate(given[one]):
                if other != part and number and augment(other, seen):
                    given[one][other] -= 1
                    given[one][part] += 1
                    return True
        return False

    for part in range(len(parts)):
        while missing[part] and augment(part, set()):
            missing[part] -= 1
    return given


def _carried(pieces: Pieces, parts: Ints, first: int, last: int) -> Ints:
    """Return the parts of what overwrites a value: those of the elements that had its places."""
    tensors = [int(pieces.source_flow.value_tensor[value]) for value in (first, last)]
    if tensors[0] == tensors[1]:
        return parts
    found, storage = np.full(len(parts), -1), pieces.flow.storage.tolist()
    places = {storage[tensor]: tensor for tensor in pieces.tiles_of(tensors[0])}
    for tensor in pieces.tiles_of(tensors[1]):
        found[pieces.elements[tensor]] = parts[pieces.elements[places[storage[tensor]]]]
    return found
