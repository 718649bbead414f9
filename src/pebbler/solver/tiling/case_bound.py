"""The bound of one case of tilings: what every element must cost there, by its touches and the tiles it is part of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from pebbler.game.dataflow import NONE
from pebbler.solver.tiling.case_family import CaseFamily
from pebbler.solver.tiling.case_reads import CaseReads
from pebbler.solver.tiling.element_pairs import Beside, Company, ElementClass
from pebbler.solver.tiling.element_prices import Reads
from pebbler.solver.tiling.liveness import Axes, Liveness, Readers
from pebbler.solver.tiling.pair_company import in_company, touched_beside
from pebbler.solver.tiling.piece_room import GroupTouches, RaisedGroups, full_touches, raise_groups
from pebbler.solver.tiling.tile_cases import TileCase
from pebbler.solver.tiling.tile_parts import read_floors, tile_parts
from pebbler.solver.tiling.tile_products import ProductFamily, largest_piece

__all__ = ["CaseBound", "Raising"]

_TRIED = 3  # families of products that groups of ops are raised beside


@dataclass(frozen=True)
class Raising:
    """Which reads may be counted at raised prices: those of a product's values or none, and of which groups of ops not."""

    products: bool = True
    groups: bool = True
    lasting: bool = False  # also groups that gain nothing themselves, for the room that what lasts needs beside them
    rows: bool = False  # on caches, by what pieces that come one after the other find near
    dropped: frozenset[int] = frozenset()

    def concerns(self, family: CaseFamily) -> bool:
        """Whether there is anything that only these raised prices count."""
        return not (self.lasting and not family.lasting) and not (self.rows and family.rows is None)


class CaseBound:
    """One case of tilings, with the prices that its reads are counted at."""

    def __init__(self, family: CaseFamily, case: TileCase, raising: Raising) -> None:
        self.family, self.case, self.raising = family, case, raising
        self.elements, self.flow, self.problem = family.elements, family.flow, family.problem
        self.values = [value for value in range(self.flow.values) if value not in self.elements.vanishing]
        self.tiles = {value: tile_parts(family, case, value) for value in range(self.flow.values)}
        self.reads = CaseReads(family, case)
        self.writes = [self.reads.writes(value) for value in range(self.flow.values)]
        self.company: dict[int, Company] = {}
        self.paired: frozenset[int] = frozenset()
        self.beside = Beside(), Beside()
        self._raise_prices()

    @property
    def raised(self) -> object:
        """What tells these raised prices from others of the same case."""
        return frozenset(self.groups.least_price.items()), frozenset(self.least_of_value.items()), self.credit

    def floor(self) -> float:
        """Return the bound without a barrier: the touches that no element can avoid."""
        return self.family.stated(self.family.program.least(list(self._classes(None))) - self.credit)

    def at(self, barrier: Liveness, *, solve: bool) -> float:
        """Return the bound of a barrier; without `solve`, from prices of room that suited other cases."""
        self.company, self.paired = {}, frozenset()
        if self.family.program.caches:
            tensors = np.flatnonzero(self.flow.start_value != NONE).tolist()
            self.paired = frozenset(int(self.flow.start_value[one]) for one in tensors if self._pairs(barrier, one))
            crossing = {value for value in self.values if self._crosses(barrier, value)}
            self.company = in_company(self.elements, self.case, barrier, self.paired, crossing)
            self.beside = touched_beside(self.elements, self.case, barrier, self.paired, self.company)
        least = self.family.program.least(
            list(self._classes(barrier)),
            str(barrier.value),
            company=list(self.company.values()),
            beside=self.beside,
            solve=solve,
        )
        return self.family.stated(least - self.credit)

    def _raise_prices(self) -> None:
        """Choose prices that reads are counted at, at the least: by groups of ops, or for the values of a product.

        Either way some reads are counted too high, and `credit` is taken off for that (docs/tiling.md, docs/products.md).
        """
        self.groups = self._raised_groups(frozenset())
        self.credit, most = self.groups.credit, self.groups.gain
        self.least_of_value: dict[int, float] = {}
        prices, room = self.family.program.found_within
        raised = [
            (self._raised_product(products, prices, room), products)
            for products in (self.family.products if self.raising.products and len(prices) > 1 else ())
        ]
        raised = [one for one in raised if one[0][2] > 0]
        for (least, over, gain), products in sorted(raised, key=lambda one: -one[0][2])[:_TRIED]:
            groups = self._raised_groups(products.values)
            if gain + groups.gain > most:
                most = gain + groups.gain
                self.groups, self.credit = groups, groups.credit + over
                self.least_of_value = dict.fromkeys(products.values, least)
        self.least_price, self.least_write = self.groups.least_price, self.groups.least_write
        self.reads = CaseReads(self.family, self.case, self.least_price, self.least_of_value)
        for value in self.least_of_value:
            # Copies into the cheapest levels are among the reads from outside of them that have been counted.
            self.tiles[value] = [one._replace(prices=one.prices.entries_paid()) for one in self.tiles[value]]

    def _raised_product(
        self, products: ProductFamily, prices: list[float], room: list[int]
    ) -> tuple[float, Fraction, float]:
        """Return the price for the reads of products' values, what that counts too much, and what is left of the gain."""
        piece = largest_piece(products, self.elements, self.case)
        reads: list[tuple[int, float]] = []
        for value in products.values:
            # As many as any classes may count, whichever readers they take for one.
            number = sum(self.case.tiles(axes) for axes in self.family.reads_apart[value])
            number += max(0, self.writes[value] - 1)
            reads += [(number * one.number, one.prices.cheapest_read) for one in self.tiles[value]]
        total = sum(number for number, _ in reads)
        best, least, over, credit = 0.0, 0.0, Fraction(), Fraction()
        for at in range(1, 2 if self.problem.machine.management == "explicit" else len(prices)):
            inside = total - min(total, products.outside_reads(room[at - 1], piece))
            over += (Fraction(prices[at]) - Fraction(prices[at - 1])) * inside
            gain = sum(number * (prices[at] - floor) for number, floor in reads if floor < prices[at]) - float(over)
            if gain > best:
                best, least, credit = gain, prices[at], over
        return least, credit, best

    def _raised_groups(self, skipped: frozenset[int]) -> RaisedGroups:
        """Return the prices that the touches of groups of ops are counted at; some values are left out."""
        levels, family = self.family.program.room_prices, self.family
        touched = {
            group: GroupTouches(*family.cutting[group]) for group in family.cutting if group not in self.raising.dropped
        }
        if self.raising.rows and family.rows is not None:
            for group, one in touched.items():
                one.rows = tuple(family.rows.of(self.case, group, room) for room in levels.room)
        for value in self.values if len(levels.read) > 1 and self.raising.groups else ():
            if value in skipped:
                continue
            for group, floors, full, readers in self._floors[value]:
                if group in touched:
                    touched[group].add_reads(floors, full, readers=readers, cold=value in family.cold)
            maker = self.elements.group[int(self.flow.value_maker[value])]
            if value in family.written_apart and maker in touched:
                full = self.case.full(self.elements.tensor(value))[0]
                writes = [(one.number, one.prices.cheapest_write) for one in self.tiles[value]]
                touched[maker].add_writes(writes, full)
        return raise_groups(self.case, touched, levels, self._lasting_beside if self.raising.lasting else {})

    @cached_property
    def _lasting_beside(self) -> dict[int, tuple[int, list[float]]]:
        """Per group of ops: how many elements last beside it, and what one of the largest tensor pays for leaving its level."""
        size, found = self.flow.value_size, {}
        for group, tensors in self.family.lasting_beside.items():
            values = [int(self.flow.start_value[tensor]) for tensor in tensors]
            first = max(values, key=lambda value: int(size[value]), default=NONE)
            if first != NONE and size[first]:
                _, prices, full = self.tiles[first][0]
                reads = self.reads.of(first, self.family.reads[first], full=full)
                leaving = prices.leaving(reads, updated=bool(self.flow.value_destroyer[first] != NONE))
                found[group] = int(size[values].sum()), leaving
        return found

    @cached_property
    def _floors(self) -> dict[int, list[tuple[int, list[tuple[int, int, float]], int, int]]]:
        """Per value: the groups of ops that read it, how many elements how often at which least price, how often in full pieces.

        Last comes how many ops of the group read it.
        """
        found: dict[int, list[tuple[int, list[tuple[int, int, float]], int, int]]] = {}
        for value in self.values:
            tiles, full = self.tiles[value], self.case.full(self.elements.tensor(value))[0]
            rows = found[value] = []
            for group, readers in self.family.reads[value].items():
                by = [(one, self.reads.by(value, group, readers, full=one.full)) for one in tiles]
                pieces = self.reads.full_pieces(value, group, readers)
                rows.append((group, read_floors(by), full * pieces, self.family.reader_count[value, group]))
            if self.writes[value] > 1:
                by = [(one, self.reads.adding_by(value, full=one.full)) for one in tiles]
                pieces = self.case.full_tiles(self.family.summed[value]) - 1
                maker = self.elements.group[int(self.flow.value_maker[value])]
                rows.append((maker, read_floors(by), full * pieces, 1))
        return found

    def _classes(self, barrier: Liveness | None) -> Iterator[ElementClass]:
        """Yield what every element must cost, by where it is at the barrier and at the end of the step."""
        flow = self.flow
        covered: set[int] = set()
        for tensor in np.flatnonzero(flow.start_value != NONE).tolist():
            first, last = int(flow.start_value[tensor]), int(flow.final_value[tensor])
            update = int(flow.value_destroyer[first])
            if update != NONE and last not in self.elements.op_writes[update]:
                continue
            known = barrier if update == NONE or (barrier is not None and update in barrier.after) else None
            if known is None and self.family.program.caches:
                continue  # which of its values is alive at the barrier is not known
            covered |= {first, last}
            yield from self._lasting_classes(known, tensor)
        for value in self.values:
            if value not in covered:
                yield from self._temp_classes(barrier, value)

    def _wraps(self, tensor: int) -> bool:
        """Whether a step finds a tensor where the step before has left it."""
        kind, management = self.problem.graph.tensors[tensor].kind, self.problem.machine.management
        return self.problem.steady and (kind == "param" or management != "explicit")

    def _pairs(self, barrier: Liveness, tensor: int) -> bool:
        """Whether every element of a tensor is read before a barrier and updated after it, by ops that do nothing else to it."""
        elements, flow = self.elements, self.flow
        first, last = int(flow.start_value[tensor]), int(flow.final_value[tensor])
        update = int(flow.value_destroyer[first])
        if not self._wraps(tensor) or update == NONE or update not in barrier.after or self.family.reads[last]:
            return False
        # Reads beyond those that are counted make up for what a product counts too much, and cannot be counted here as well.
        if first in self._made_up_for or last not in elements.op_writes[update]:
            return False
        # The update must read what it overwrites, and nothing else may be written with it: else a write could stand for a read.
        early, late, _ = barrier.readers[first]
        return bool(early and late) and first in elements.op_reads[update] and elements.writes_alone(update)

    @cached_property
    def _made_up_for(self) -> set[int]:
        """Values of which reads beyond those that are counted make up for what is counted too much."""
        row = [group for group in self.least_price if self.raising.rows and any(self.groups.rows.get(group, ()))]
        return {*self.least_of_value, *(value for group in row for value in self.elements.op_reads[group])}

    def _crosses(self, barrier: Liveness, value: int) -> bool:
        """Whether a value is made before a barrier and read after it."""
        return int(self.flow.value_maker[value]) in barrier.before and bool(barrier.readers[value][1])

    def _lasting_classes(self, barrier: Liveness | None, tensor: int) -> Iterator[ElementClass]:
        """Yield what an element that exists at the start must cost; a barrier is before its update, if it has one."""
        flow, problem = self.flow, self.problem
        first, last = int(flow.start_value[tensor]), int(flow.final_value[tensor])
        update = int(flow.value_destroyer[first])
        kind = problem.graph.tensors[tensor].kind
        when: tuple[Readers, Readers, Readers] = ({}, self.family.reads[first], {})
        when = barrier.readers[first] if barrier is not None else when
        wraps = self._wraps(tensor)
        start = None if wraps else self.family.prices.start_state(problem, tensor)
        takes_end = wraps or (self.family.prices.ends_priced and update != NONE)
        alive = barrier is not None and (bool(when[1]) or (update == NONE and kind == "param"))
        pair = barrier is not None and alive and self._pairs(barrier, tensor)
        stays = self.groups.stays(self.family.lasting[tensor]) if tensor in self.family.lasting else ()
        pushed = self._pushed_out(tensor) if wraps else 0
        smaller = first if flow.value_size[first] <= flow.value_size[last] else last
        for count, prices, full in self.tiles[smaller]:
            early, late, other = (self.reads.of(first, readers, full=full) for readers in when)
            afterwards = self.reads.of(last, self.family.reads[last], full=full) if last != first else Reads()
            counted = max((price for _, price in (early | late | other).counts), default=0.0)
            reads = early.number + other.number, late.number + other.number
            table = prices.lasting(early, late, other, update != NONE, afterwards, start, stays)
            if pushed:
                # At some moment of the step it is that far down, and its next touch is a read.
                every = early | late | other | afterwards
                far = prices.lasting(Reads(), every, Reads(), update != NONE, Reads(), None)[pushed, pushed]
                table = np.maximum(table, far)
            if not takes_end:
                table = table.min(axis=0, keepdims=True)
            if not alive:
                table = table.min(axis=1, keepdims=True)
            room = np.ones(table.shape[1], np.bool_) if alive else None
            least = max(counted, prices.cheapest_read)
            yield ElementClass(count, table, takes_end, room, pair, *reads, least, read_late=bool(late))

    def _pushed_out(self, tensor: int) -> int:
        """Return out of how many levels a piece that touches enough else pushes a tensor that is always there, on caches."""
        first, last = int(self.flow.start_value[tensor]), int(self.flow.final_value[tensor])
        update, reach = int(self.flow.value_destroyer[first]), self.family.program.reach
        if not self.family.program.caches or self.problem.machine.line > 1 or first in self._made_up_for:
            return 0
        if update != NONE and (
            first not in self.elements.op_reads[update] or last not in self.elements.op_writes[update]
        ):
            return 0  # what comes next could be a write
        touching = self.family.touching[tensor]
        most = max((units for group, units in self._full_touches.items() if group not in touching), default=0)
        return int(np.searchsorted(reach, most, "right"))

    @cached_property
    def _full_touches(self) -> dict[int, int]:
        """Per group of ops: how many elements a piece of full size touches at least."""
        return full_touches(self.elements, self.case)

    def _temp_classes(self, barrier: Liveness | None, value: int) -> Iterator[ElementClass]:
        """Yield what an element of any other value must cost; it may live across the barrier, or be recomputed after it."""
        maker, writes = int(self.flow.value_maker[value]), self.writes[value]
        raised = value in self.family.written_apart and value not in self.least_of_value
        first = self.least_write.get(self.elements.group[maker], 0.0) if raised else 0.0
        for count, prices, full in self.tiles[value]:
            adding = self.reads.adding(value, full=full)
            if barrier is None or not self._crosses(barrier, value):
                reads = self.reads.of(value, self.family.reads[value], full=full)
                yield ElementClass(count, np.array([[prices.passing(reads, writes, adding, first)]]))
                continue
            early, late, other = (self.reads.of(value, readers, full=full) for readers in barrier.readers[value])
            table = prices.across(early, late, other, writes, adding, first)
            takes = np.ones(table.shape[1], np.bool_)
            remade = self.elements.can_rerun(maker)
            if remade:
                again = prices.passing(early, writes, adding, first) + prices.passing(late, writes, Reads())
                if value in self.company:  # it may also be made twice before the barrier, for nobody the first time
                    both = early | late
                    again = min(
                        again, prices.passing(Reads(), writes, adding, first) + prices.passing(both, writes, Reads())
                    )
                remaking = self._remaking(value, full)
                again += other.at(prices.cheapest_read) + remaking
                table = np.concatenate([table, [[again]]], axis=1)
                takes = np.append(takes, False)
            apart = remade and value in self.company
            pairs = remaking - self._remaking(value, full, self.paired) if remade and self.paired else 0.0
            yield ElementClass(count, table, False, takes, read_late=True, remade_apart=apart, remade_of_pairs=pairs)

    def _remaking(self, value: int, full: Axes, without: frozenset[int] = frozenset()) -> float:
        """Return what the operands of a value cost that is made again, per element of it; some may be left out.

        A piece has the same indices of its operands as of its result: in tiles of full size, if those are.
        """
        elements, case = self.elements, self.case
        full = full - elements.kept_whole[int(self.flow.value_maker[value])]
        counted, reads, maker = 0.0, [], int(self.flow.value_maker[value])
        sharing: list[int] = []
        for read, ratio, own in elements.recomputing(value):
            if read in without:
                continue
            sharing.append(elements.sharing(maker, read))
            number = float(ratio / case.share(own))
            if read in self.least_of_value:  # what more it costs is counted with the product
                counted += number * self.family.program.found_within[0][0]
                continue
            axes = elements.tensor(read).axes
            units = min(case.smallest(mate, full if mate.axes == axes else ()) for mate in self.family.mates[read])
            reads.append((number, self.family.prices.of_tile(units).cheapest_read))
        # Of what a piece reads, only so much is found in the fast levels; every element has its largest share of that taken off.
        results = case.smallest(elements.tensor(value), full) * min(sharing, default=1)
        best, over = sum(number * price for number, price in reads), 0.0
        prices, room = self.family.program.found_within
        for at in range(1, len(prices)):
            over += (prices[at] - prices[at - 1]) * room[at - 1] / results
            best = max(best, sum(number * max(price, prices[at]) for number, price in reads) - over)
        return counted + best
