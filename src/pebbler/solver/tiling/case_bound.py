"""The bound of one case of tilings: what every element must cost there, by its touches and the tiles it is part of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cached_property

import numpy as np

from pebbler.game.dataflow import NONE
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.capacity_lp import CapacityLP, ElementClass
from pebbler.solver.tiling.element_prices import ElementPrices, Reads
from pebbler.solver.tiling.liveness import Axes, Elements, Liveness, Readers
from pebbler.solver.tiling.tile_cases import TileCase
from pebbler.solver.tiling.tile_products import TileProduct, largest_piece, tile_products

__all__ = ["CaseBound", "CaseFamily"]

_MOST_BARRIERS = 24  # those for which a linear program is solved
_MOST_OPS = 20_000
_FEW_VALUES = 48


class CaseFamily:
    """What the cases have in common that agree on which axes are cut, may be cut, or are whole."""

    def __init__(self, problem: Problem, prices: ElementPrices, program: CapacityLP, may_cut: Axes, cut: Axes) -> None:
        self.problem, self.prices, self.program = problem, prices, program
        self.tried: list[int] | None = None  # where there are many values: the barriers worth a look
        self.seconds_left: Callable[[], float] = lambda: math.inf
        self.elements = Elements(problem.graph, may_cut, cut)
        self.flow = self.elements.flow
        self.costs = math.fsum(self.flow.op_cost.tolist())  # every op runs at least once, in however many pieces
        values = range(self.flow.values)
        self.reads = [self.elements.reads(value) for value in values]
        self.reads_apart = [
            [self.elements.shared(op, value) for op in self.elements.readers[value]] for value in values
        ]
        self.products = list(tile_products(self.elements)) if problem.machine.line == 1 else []
        self.summed = [self.elements.summed(value) for value in values]
        self.cutting = {group: self.elements.cutting(group) for group in set(self.elements.group)}
        # What shares a storage is found where that was touched before.
        tensors, same = problem.graph.tensors, self.flow.storage[self.flow.value_tensor]
        self.mates = [[tensors[k] for k in np.flatnonzero(self.flow.storage == same[value])] for value in values]

    @cached_property
    def barriers(self) -> list[Liveness]:
        """The barriers across which most must live, by size."""
        flow = self.flow
        made = [value for value in range(flow.values) if flow.value_maker[value] != NONE]
        if flow.ops > _MOST_OPS:
            return []
        if self.tried is not None and flow.values > _FEW_VALUES:
            made = self.tried
        step = max(1, len(made) * flow.ops // 2_000_000)
        found: list[tuple[int, Liveness]] = []
        for number, value in enumerate(made[::step]):
            if number and self.seconds_left() <= 0:  # with fewer barriers less is proven, and nothing wrong
                break
            one = Liveness(self.elements, value)
            found += [(one.alive, one)] if one.after else []
        found.sort(key=lambda pair: (-pair[0], pair[1].value))
        return [one for _, one in found[:_MOST_BARRIERS]]

    def stated(self, least: Fraction) -> float:
        """Return a bound as a number no larger than it; the next whole number where every plan costs one."""
        least = max(least, Fraction())
        if self.program.whole_prices and self.costs == 0:  # pieces of an op cost fractions of it
            return float(math.ceil(least))
        return math.nextafter(float(least) + self.costs, 0.0) if least or self.costs else 0.0


class CaseBound:
    """One case of tilings; with or without what its products must read."""

    def __init__(self, family: CaseFamily, case: TileCase, *, products: bool = True) -> None:
        self.family, self.case, self.with_products = family, case, products
        self.elements, self.flow, self.problem = family.elements, family.flow, family.problem
        self.values = [value for value in range(self.flow.values) if value not in self.elements.vanishing]
        self.tiles = {value: self._tiles(value) for value in range(self.flow.values)}
        self.writes = [
            case.tiles(axes) if maker != NONE else 0
            for axes, maker in zip(family.summed, self.flow.value_maker, strict=True)
        ]
        self._raise_prices()

    def floor(self) -> float:
        """Return the bound without a barrier: the touches that no element can avoid."""
        classes = [one for value in self.values for one in self._temp_classes(None, value)]
        return self.family.stated(self.family.program.least(classes) - self.credit)

    def at(self, barrier: Liveness, *, solve: bool) -> float:
        """Return the bound of a barrier; without `solve`, from prices of room that suited other cases."""
        name = str(barrier.value)
        return self.family.stated(
            self.family.program.least(list(self._classes(barrier)), name, solve=solve) - self.credit
        )

    def _tiles(self, value: int) -> list[tuple[int, ElementPrices]]:
        """Return how many elements of a value are in tiles of full size and in others, with what each costs."""
        case, size, mates = self.case, int(self.flow.value_size[value]), self.family.mates[value]
        count = min(size, case.full(self.elements.tensor(value))[0])
        full = min(case.full(mate)[1] for mate in mates)
        rest = min(case.smallest(mate) for mate in mates)
        of_tile = self.family.prices.of_tile
        return [(n, of_tile(units)) for n, units in ((count, full), (size - count, rest)) if n]

    def _raise_prices(self) -> None:
        """Choose prices that reads are counted at, at the least: by groups of ops, or for the values of a product.

        Either way some reads are counted too high, and `credit` is taken off for that (docs/tiling.md, docs/products.md).
        """
        self.least_price, self.credit, most = self._raised_groups(frozenset())
        self.least_of_value: dict[int, float] = {}
        prices, room = self.family.program.found_within
        for product in self.family.products if self.with_products and len(prices) > 1 else ():
            least, over, gain = self._raised_product(product, prices, room)
            if gain <= 0:
                continue
            groups, credit, others = self._raised_groups(frozenset(product.values))
            if gain + others > most:
                most = gain + others
                self.least_price, self.credit = groups, credit + over
                self.least_of_value = dict.fromkeys(product.values, least)
        for value in self.least_of_value:
            # Copies into the cheapest levels are among the reads from outside of them that have been counted.
            self.tiles[value] = [(count, tile.entries_paid()) for count, tile in self.tiles[value]]

    def _raised_product(
        self, product: TileProduct, prices: list[float], room: list[int]
    ) -> tuple[float, Fraction, float]:
        """Return the price for the reads of a product's values, what that counts too much, and what is left of the gain."""
        piece = largest_piece(product, self.elements, self.case)
        reads: list[tuple[int, float]] = []
        for value in product.values:
            # As many as any classes may count, whichever readers they take for one.
            number = sum(self.case.tiles(axes) for axes in self.family.reads_apart[value])
            number += max(0, self.writes[value] - 1)
            reads += [(number * count, tile.cheapest_read) for count, tile in self.tiles[value]]
        total = sum(number for number, _ in reads)
        best, least, over, credit = 0.0, 0.0, Fraction(), Fraction()
        for at in range(1, 2 if self.problem.machine.management == "explicit" else len(prices)):
            inside = total - min(total, product.outside_reads(room[at - 1], piece))
            over += (Fraction(prices[at]) - Fraction(prices[at - 1])) * inside
            gain = sum(number * (prices[at] - floor) for number, floor in reads if floor < prices[at]) - float(over)
            if gain > best:
                best, least, credit = gain, prices[at], over
        return least, credit, best

    def _raised_groups(self, skipped: frozenset[int]) -> tuple[dict[int, float], Fraction, float]:
        """Return per group of ops a price that its reads are counted at, what that counts too much, and what is gained.

        Of what one piece reads only so much is found in the fast levels: so many reads, in all pieces, are counted too high.
        """
        prices, room = self.family.program.found_within
        found: dict[int, list[tuple[int, float]]] = {}
        for value in self.values if len(prices) > 1 else ():
            if value in skipped:
                continue
            numbers = {group: self._most(axes) for group, axes in self.family.reads[value].items()}
            if self.writes[value] > 1:
                maker = self.elements.group[int(self.flow.value_maker[value])]
                numbers[maker] = numbers.get(maker, 0) + self.writes[value] - 1
            for group, number in numbers.items():
                found.setdefault(group, []).extend(
                    (number * count, tile.cheapest_read) for count, tile in self.tiles[value]
                )
        chosen: dict[int, float] = {}
        credit, gained = Fraction(), 0.0
        for group, reads in found.items():
            ops, axes = self.family.cutting[group]
            pieces = ops * self.case.most_tiles(axes)
            best, chosen_at, over = 0.0, 0, 0.0
            for at in range(1, len(prices)):
                over += (prices[at] - prices[at - 1]) * pieces * room[at - 1]
                gain = sum(number * (prices[at] - floor) for number, floor in reads if floor < prices[at]) - over
                if gain > best:
                    best, chosen_at = gain, at
            if chosen_at:
                chosen[group], gained = prices[chosen_at], gained + best
                for at in range(chosen_at):
                    credit += (Fraction(prices[at + 1]) - Fraction(prices[at])) * pieces * room[at]
        return chosen, credit, gained

    def _most(self, readers: set[Axes]) -> int:
        """Return how often a group of ops reads a value at least: as often as that of them which reads it most."""
        return max(self.case.tiles(axes) for axes in readers)

    def _reads(self, value: int, readers: Readers) -> Reads:
        return Reads(tuple((self._most(axes), self._counted_at(value, group)) for group, axes in readers.items()))

    def _counted_at(self, value: int, group: int) -> float:
        """Return the least price that reads of a value by a group of ops are counted at."""
        return self.least_of_value.get(value, self.least_price.get(group, 0.0))

    def _adding(self, value: int) -> Reads:
        """Return the reads of a sum by the pieces that go on with it."""
        if self.writes[value] <= 1:
            return Reads()
        group = self.elements.group[int(self.flow.value_maker[value])]
        return Reads(((self.writes[value] - 1, self._counted_at(value, group)),))

    def _classes(self, barrier: Liveness) -> Iterator[ElementClass]:
        """Yield what every element must cost, by where it is at the barrier and at the end of the step."""
        flow = self.flow
        covered: set[int] = set()
        for tensor in np.flatnonzero(flow.start_value != NONE).tolist():
            first, last = int(flow.start_value[tensor]), int(flow.final_value[tensor])
            update = int(flow.value_destroyer[first])
            if update != NONE and (update not in barrier.after or last not in self.elements.op_writes[update]):
                continue  # which of its values is alive at the barrier is not known
            covered |= {first, last}
            yield from self._lasting_classes(barrier, tensor)
        for value in self.values:
            if value not in covered:
                yield from self._temp_classes(barrier, value)

    def _lasting_classes(self, barrier: Liveness, tensor: int) -> Iterator[ElementClass]:
        """Yield what an element that exists at the start must cost; the barrier is before its update, if it has one."""
        elements, flow, problem = self.elements, self.flow, self.problem
        first, last = int(flow.start_value[tensor]), int(flow.final_value[tensor])
        update = int(flow.value_destroyer[first])
        kind = problem.graph.tensors[tensor].kind
        early, late, other = (self._reads(first, readers) for readers in barrier.readers[first])
        afterwards = self._reads(last, self.family.reads[last]) if last != first else Reads()
        wraps = problem.steady and (kind == "param" or problem.machine.management != "explicit")
        start = None if wraps else self.family.prices.start_state(problem, tensor)
        takes_end = wraps or (self.family.prices.ends_priced and update != NONE)
        alive = bool(late) or (update == NONE and kind == "param")
        # The update must read what it overwrites, and nothing else may be written with it: else a write could stand for a read.
        alone = update != NONE and first in elements.op_reads[update] and elements.writes_alone(update)
        # Reads beyond those that are counted make up for what a product counts too much, and cannot be counted here as well.
        alone &= first not in self.least_of_value
        pair = wraps and alive and takes_end and alone and bool(early) and not afterwards
        counted = max((price for _, price in (*early.counts, *late.counts, *other.counts)), default=0.0)
        reads = early.number + other.number, late.number + other.number
        for count, prices in self.tiles[first if flow.value_size[first] <= flow.value_size[last] else last]:
            table = prices.lasting(early, late, other, update != NONE, afterwards, start)
            if not takes_end:
                table = table.min(axis=0, keepdims=True)
            if not alive:
                table = table.min(axis=1, keepdims=True)
            room = np.ones(table.shape[1], np.bool_) if alive else None
            yield ElementClass(count, table, takes_end, room, pair, *reads, max(counted, prices.cheapest_read))

    def _temp_classes(self, barrier: Liveness | None, value: int) -> Iterator[ElementClass]:
        """Yield what an element of any other value must cost; it may live across the barrier, or be recomputed after it."""
        maker, writes, adding = int(self.flow.value_maker[value]), self.writes[value], self._adding(value)
        crosses = barrier is not None and maker in barrier.before and bool(barrier.readers[value][1])
        for count, prices in self.tiles[value]:
            if barrier is None or not crosses:
                price = prices.passing(self._reads(value, self.family.reads[value]), writes, adding)
                yield ElementClass(count, np.array([[price]]))
                continue
            early, late, other = (self._reads(value, readers) for readers in barrier.readers[value])
            table = prices.across(early, late, other, writes, adding)
            takes = np.ones(table.shape[1], np.bool_)
            if self.elements.can_rerun(maker):
                again = prices.passing(early, writes, adding) + prices.passing(late, writes, Reads())
                again += other.at(prices.cheapest_read) + self._remaking(value)
                table = np.concatenate([table, [[again]]], axis=1)
                takes = np.append(takes, False)
            yield ElementClass(count, table, False, takes)

    def _remaking(self, value: int) -> float:
        """Return what the operands of a value cost that is made again, per element of it."""
        total = 0.0
        for read, ratio, axes in self.elements.recomputing(value):
            cheapest = min((prices.cheapest_read for _, prices in self.tiles[read]), default=0.0)
            if read in self.least_of_value:  # what more it costs is counted with the product
                cheapest = self.family.program.found_within[0][0]
            total += float(ratio / self.case.share(axes)) * cheapest
        return total
