"""Products among the ops of a graph that can be tiled, and how often their pieces must read from outside of the fast levels.

An op multiplies when each of its axes is in two of three tensors: two that it reads, and the one it writes. Whatever its pieces
are, so many points of the box of its axes cannot be worked off from few elements. Several products that share values are bounded
together, so that no read is counted for two of them. docs/products.md has the proof (pieces of a tiled op).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

from pebbler.game.dataflow import NONE
from pebbler.referee.rows.elements import Elements
from pebbler.referee.rows.tile_range import TileRange

__all__ = ["ProductFamily", "TileProduct", "largest_piece", "product_families", "tile_products"]

_LENGTHS = (2.0, 1.0, 0.5, 0.25)  # of a segment, as multiples of the room
_MOST_PRODUCTS = 60  # beyond this products are looked at one by one


@dataclass(frozen=True)
class TileProduct:
    """An op that multiplies: the two values it reads, the one it makes, and how many points its axes have together.

    An operand that may be made again stands here for the value that it is made from, element by element.
    """

    op: int
    values: tuple[int, int, int]
    points: int


@dataclass(frozen=True)
class ProductFamily:
    """Products that are bounded together, each with a value that none of the others touches."""

    products: tuple[TileProduct, ...]
    made: int  # elements of their values that some op makes: each is there once without having been read
    made_again: frozenset[int] = (
        frozenset()
    )  # operands that may be made again from values of the products, element by element

    @cached_property
    def values(self) -> frozenset[int]:
        """Values that the products read and make, and the values that stand for them."""
        return self.made_again.union(value for product in self.products for value in product.values)

    @cached_property
    def operands(self) -> frozenset[int]:
        """Values that the products read, and the values that stand for them."""
        return self.made_again.union(value for product in self.products for value in product.values[:2])

    @cached_property
    def points(self) -> int:
        """The number of points of all products together."""
        return sum(product.points for product in self.products)

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """The weight of a point of each product, such that elements make no more than they do with one product; 1 if alone."""
        return _weights(_pairs(self.products))

    @cached_property
    def worth(self) -> float:
        """The total weight of all points."""
        return math.fsum(weight * product.points for weight, product in zip(self.weights, self.products, strict=True))

    def outside_reads(self, room: int, largest_piece: int) -> int:
        """Return the least number of reads of these values, by ops and copies together, from outside of `room`.

        No piece of the products, or of what adds up one of their values, touches more than `largest_piece` of their elements.

        >>> product = TileProduct(0, (0, 1, 2), 32 * 1000 * 20)
        >>> ProductFamily((product,), 32 * 1000).outside_reads(64, 72) > 100_000
        True
        """
        best = 0.0
        for share in _LENGTHS:
            length = max(1, int(share * room))
            longest = length + max(0, largest_piece - 1)
            # Entries per point rise with the length of a segment up to 2 * room, then fall: they are fewest at one end.
            fewest = self._most_points(room + length)
            rate = min(length / fewest, longest / self._most_points(room + longest))
            best = max(best, rate * (self.worth - fewest))
        return max(0, math.floor(best * (1 - 1e-9)) - self.made)

    def _most_points(self, elements: int) -> float:
        """Return the greatest total weight of the points that can be made of a number of elements, as a real number."""
        return float((elements / 3) ** 1.5) * (1 + 1e-12)

    def touched_together(self, elements: Elements) -> list[list[tuple[int, int]]]:
        """Return, for each group of ops that makes points or adds up or recomputes a value of the family, the values it touches.

        Those are pairs of op and value.
        """
        ops = {product.op for product in self.products}
        makers = {value: int(elements.flow.value_maker[value]) for value in self.values}
        again = self.made_again
        ops |= {op for value, op in makers.items() if op != NONE and (value in again or elements.summed(value))}
        leaders = sorted({elements.loose_group[op] for op in ops})
        found: dict[int, list[tuple[int, int]]] = {leader: [] for leader in leaders}
        for op, leader in enumerate(elements.loose_group):
            if leader in found:
                own = self.values.intersection((*elements.op_reads[op], *elements.op_writes[op]))
                found[leader] += [(op, value) for value in sorted(own)]
        return list(found.values())


def tile_products(elements: Elements) -> Iterator[TileProduct]:
    """Yield the ops that multiply, whatever is cut and fused."""
    graph, flow = elements.graph, elements.flow
    for op in range(flow.ops):
        if len(elements.op_writes[op]) != 1 or elements.op_writes[op][0] in elements.vanishing:
            continue
        made = elements.op_writes[op][0]
        storage = flow.storage[flow.value_tensor[made]]
        if any(flow.storage[flow.value_tensor[read]] == storage for read in elements.op_reads[op]):
            continue  # an update in place
        added = graph.ops[op].meta.get("adds", ())
        given = [
            read
            for read in dict.fromkeys(elements.op_reads[op])
            if read not in elements.vanishing and elements.tensor(read).name not in added
        ]
        axes = elements.op_axes[op]
        for left, right in combinations(given, 2):
            sides = [dict(elements.tensor(value).axes or ()) for value in (left, right, made)]
            found = [[side[axis] for side in sides if axis in side] for axis in sorted(axes)]
            if all(len(one) > 1 and len(set(one)) == 1 for one in found):
                yield TileProduct(op, (left, right, made), math.prod(one[0] for one in found))
                break


def product_families(elements: Elements) -> list[ProductFamily]:
    """Return products to be bounded together: one by one, and as many as go together of those whose values are small.

    What they read can be made once only, or again only from what can be made once: else it would be there without having been
    read.

    >>> from pebbler.workloads import attention
    >>> max(len(family.products) for family in product_families(Elements(attention(), cut=frozenset({"tokens", "keys"}))))
    9
    """
    sources = {value: _source(elements, value) for value in range(elements.flow.values)}
    products, passed = [], {}
    for product in tile_products(elements):
        left, right = (sources[value] for value in product.values[:2])
        if left and right and len({left[-1], right[-1], product.values[2]}) == 3:
            products.append(replace(product, values=(left[-1], right[-1], product.values[2])))
            passed[product.op] = {*left[:-1], *right[:-1]}
    again = set().union(*passed.values())
    products = [product for product in products if product.values[2] not in again]  # no element stands for two
    chosen: list[tuple[TileProduct, ...]] = [(product,) for product in products]
    if 1 < len(products) <= _MOST_PRODUCTS:
        rank = {product: _made(elements, [product]) / max(1, product.points) for product in products}
        ranked = sorted(products, key=lambda product: (rank[product], product.op))
        ends = [k for k in range(1, len(ranked)) if rank[ranked[k]] > 2 * rank[ranked[k - 1]]]
        chosen += [_joined(ranked[:end]) for end in (*ends, len(ranked))]
    sets = dict.fromkeys(tuple(sorted(one, key=lambda product: product.op)) for one in chosen)
    return [
        ProductFamily(some, _made(elements, some), frozenset().union(*(passed[product.op] for product in some)))
        for some in sets
    ]


def largest_piece(touched: Iterable[Sequence[tuple[int, int]]], elements: Elements, tiles: TileRange) -> int:
    """Return the most elements that one piece touches, of a product or of an op that adds up a value (`touched_together`)."""
    return max(
        sum(tiles.largest(elements.tensor(value), elements.kept_whole[op]) for op, value in together)
        for together in touched
    )


def _made(elements: Elements, products: Iterable[TileProduct]) -> int:
    values = {value for product in products for value in product.values}
    flow = elements.flow
    return sum(int(flow.value_size[value]) for value in values if flow.value_maker[value] != NONE)


def _source(elements: Elements, value: int) -> list[int]:
    """Return a value and what it may be made again from, element by element, back to what can be made once only; [] if nothing."""
    found = [value]
    while True:
        value, maker = found[-1], int(elements.flow.value_maker[found[-1]])
        if value in elements.vanishing:
            return []
        if not elements.can_remake(value):
            return found
        alike = [read for read in elements.op_reads[maker] if _alike(elements, maker, read, value)]
        if not alike:
            return []
        # Best what nobody makes: it is never there without having been read.
        found.append(min(alike, key=lambda read: (elements.flow.value_maker[read] != NONE, elements.can_remake(read))))


def _alike(elements: Elements, op: int, read: int, made: int) -> bool:
    """Whether the piece of an op that makes an element certainly reads the element of an operand that has the same indices."""
    axes, maker = dict(elements.tensor(made).axes or ()), int(elements.flow.value_maker[read])
    apart = maker == NONE or elements.loose_group[maker] != elements.loose_group[op]
    added = elements.graph.ops[op].meta.get("adds", ())
    alike = bool(axes) and dict(elements.tensor(read).axes or ()) == axes
    return alike and apart and read not in elements.vanishing and elements.tensor(read).name not in added


def _joined(products: Sequence[TileProduct]) -> tuple[TileProduct, ...]:
    """Return products of which each has a value of its own, leaving out as few as it takes, the later ones first."""
    kept = list(products)
    while kept:
        uses = Counter(value for product in kept for value in product.values)
        pairs = Counter(_pairs(kept))
        bad = [product for product in kept if min(uses[value] for value in product.values) > 1]
        bad = bad or [product for product in kept if pairs[_pair(product, uses)] > 1]
        if not bad:
            break
        kept.remove(bad[-1])
    return tuple(kept)


def _pair(product: TileProduct, uses: Counter[int]) -> tuple[int, int]:
    """Return the two values of a product besides one that is used least."""
    own = min(product.values, key=lambda value: (uses[value], value))
    first, second = sorted(value for value in product.values if value != own)
    return first, second


def _pairs(products: Sequence[TileProduct]) -> list[tuple[int, int]]:
    uses = Counter(value for product in products for value in product.values)
    return [_pair(product, uses) for product in products]


def _weights(pairs: Sequence[tuple[int, int]]) -> tuple[float, ...]:
    """Return, per pair, the square root of a weight with which no sum of weighted products of shares exceeds a quarter.

    It is 1 where a pair is in no circle of three, 3/4 where it is, and 1/2 where it is in a set of four that all are pairs.
    """
    joined: dict[int, set[int]] = {}
    for first, second in pairs:
        joined.setdefault(first, set()).add(second)
        joined.setdefault(second, set()).add(first)
    found = []
    for first, second in pairs:
        third = joined[first] & joined[second]
        four = any(joined[one] & third for one in third)
        found.append(math.sqrt(1 / 2 if four else 3 / 4) * (1 - 1e-12) if third else 1.0)
    return tuple(found)
