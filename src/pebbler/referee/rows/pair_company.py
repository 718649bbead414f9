"""Elements touched together with parameters that are read before a moment T and updated after it, and the cache room they take.

`near_twice` has the names: P are the N elements that pair, C is a reach, X are those before whose first touch in a phase at least
C others are touched in it, Y those after whose last touch at least C others are.

- *Company.* Let v pair, let its only reader that is not after T be op a, and let a make a value q that fusion cannot remove, that
  is read after T, and all of whose axes are axes of v. Whenever an element of v is touched before T, the same piece touches the
  element of q with the same indices. Every element of q belongs to r = size(v) / size(q) elements of v. If it is made once only,
  it is in a place of its own from then on until after T. Let A be the elements of v outside of X in the phase before T, and take
  the element outside of X that is touched last for the first time, in a piece p. Everything else outside of X was touched before,
  and so were the elements of q that belong to elements of A touched by earlier pieces: at least |A| / r, less those that p makes,
  at most L, and those that are made twice, Z. All of these are within C:  |P outside of X| + |A| / r <= C + L + Z.  For Y it
  holds from the other end. If several pieces add q up, only the one that begins an element of it may run again, and only before
  the next one goes on. Then no more of the r elements have been touched than this piece reads, and it reads them again: Z counts
  one r-th of those reads, of each piece once. The most that these inequalities allow for several v is a knapsack (`most_near`);
  company is counted for one q per v and one v per q.
- *Beside.* Let v be the largest value that pairs, with M of its elements in tiles of full size, of which one piece touches at
  most L. Suppose that in a phase more than N - M + L elements are outside of X. Then more than L of them are in full tiles of v,
  so not all are touched for the first time by one piece: if e is the one touched last for the first time, in p, some full tile of
  v was touched by another piece before p. Whatever that piece touches has been touched in the phase before e. So, with z elements
  that do not pair among what such a piece touches at least,  |P outside of X| <= max(N - M + L, C - z);  for Y from the other
  end. The pieces are those of ops that may touch v in the phase. In z count the smallest tiles of operands and results, full
  along the axes of v, without what is added once to a sum; an operand that fusion may remove is there, or what it is made of is
  read by the same piece: the less of the two counts.
- *Both* take room together, if z is counted without what is in anybody's company.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from pebbler.referee.rows.elements import Elements, Liveness
from pebbler.referee.rows.tile_range import TileRange

__all__ = ["Beside", "Company", "in_company", "most_near", "touched_beside"]


@dataclass(frozen=True)
class Company:
    """Elements that are only touched before the barrier by ops that make others, which stay until after it."""

    first: int  # the value of these elements
    count: int
    share: Fraction  # how many others there are for each
    piece: int  # how many others one piece makes at most


@dataclass(frozen=True)
class Beside:
    """Units without a pair that a phase touches as soon as more than a few elements that pair have been touched in it."""

    unsure: int = 0  # so many elements may be touched without it
    units: int = 0
    apart: int = 0  # without what is in anybody's company

    def most_near(self, reach: int) -> int:
        """Return the greatest number of pairing elements among the first, or the last, `reach` units touched in the phase.

        >>> Beside(unsure=30, units=20).most_near(100), Beside(unsure=90, units=20).most_near(100)
        (80, 90)
        """
        return min(reach, max(self.unsure, reach - self.units))


def most_near(reach: int, total: int, company: Sequence[Company]) -> int:
    """Return the greatest number of `total` pairing elements among the first, or the last, `reach` units touched before a barrier.

    >>> most_near(100, 500, [])
    100
    >>> most_near(100, 500, [Company(0, 480, Fraction(1, 4), 5)])  # 20 alone, and 68 with 17 others, 5 of which may not yet be made
    88
    """
    room, near = Fraction(reach + sum(one.piece for one in company)), Fraction()
    alone = Company(-1, total - sum(one.count for one in company), Fraction(), 0)
    for one in sorted([alone, *company], key=lambda one: one.share):
        fits = min(Fraction(one.count), room / (1 + one.share))
        near, room = near + fits, room - fits * (1 + one.share)
    return min(reach, math.floor(near))


def in_company(
    elements: Elements, tiles: TileRange, barrier: Liveness, paired: Collection[int], crossing: Collection[int]
) -> dict[int, Company]:
    """Return values that stay until after a barrier, with the elements that are touched before it only when these are made.

    No value is in two companies, and none has two. `crossing` are the values that are made before the barrier and read after it.
    """
    flow = elements.flow
    found: dict[int, Company] = {}
    for first in sorted(paired, key=lambda one: (-int(flow.value_size[one]), one)):
        tensor = int(flow.value_tensor[first])
        makers = {op for op in elements.readers[first] if op not in barrier.after}
        axes = set(elements.tensor(first).axes or ())
        kept = [
            made
            for made in (elements.op_writes[min(makers)] if len(makers) == 1 else ())
            if made in crossing
            and made not in found
            and made not in elements.vanishing
            and flow.value_size[made]
            and flow.value_size[first] <= flow.value_size[int(flow.final_value[tensor])]
            and set(elements.tensor(made).axes or ()) <= axes
        ]
        if kept:
            made = max(kept, key=lambda value: int(flow.value_size[value]))
            share = Fraction(int(flow.value_size[made]), int(flow.value_size[first]))
            piece = tiles.largest(elements.tensor(made), elements.kept_whole[min(makers)])
            found[made] = Company(first, int(flow.value_size[first]), share, piece)
    return found


def touched_beside(
    elements: Elements, tiles: TileRange, barrier: Liveness, paired: Collection[int], company: Collection[int]
) -> tuple[Beside, Beside]:
    """Return the units touched in the phases before and after a barrier whenever many elements that pair are touched.

    It is what a piece touches that touches a full tile of the largest value that pairs; each phase has its own ops that do.
    """
    flow = elements.flow
    known = [one for one in paired if flow.value_size[one] <= flow.value_size[flow.final_value[flow.value_tensor[one]]]]
    if not known:
        return Beside(), Beside()
    first = max(known, key=lambda one: (int(flow.value_size[one]), -one))
    early = [op for op in elements.readers[first] if op not in barrier.after]
    late = [op for op in elements.readers[first] if op not in barrier.before or elements.can_rerun(op)]
    total = sum(int(flow.value_size[one]) for one in paired)
    storages = {int(flow.storage[flow.value_tensor[one]]) for one in paired}
    found = []
    for ops in (early, late):
        tensor = elements.tensor(first)
        piece = max(tiles.largest(tensor, elements.kept_whole[op]) for op in ops)
        unsure = total - min(tiles.full(tensor)[0], int(flow.value_size[first])) + piece
        every, apart = (
            min(_beside(elements, tiles, op, first, storages, skipped) for op in ops) for skipped in ((), company)
        )
        found.append(Beside(unsure, every, apart))
    return found[0], found[1]


def _beside(
    elements: Elements, tiles: TileRange, op: int, value: int, paired: Collection[int], skipped: Iterable[int]
) -> int:
    """Return the least number of elements without a pair that a piece of an op touches where it touches a full tile of a value.

    An operand that fusion may remove is touched, or what it is made of is.
    """
    flow, full, left_out = elements.flow, elements.axes[int(elements.flow.value_tensor[value])], set(skipped)

    def touched(one: int, values: Iterable[int]) -> dict[int, int]:
        added = set(elements.graph.ops[one].meta.get("adds", ()))
        found: dict[int, int] = {}
        for other in values:
            tensor, storage = elements.tensor(other), int(flow.storage[flow.value_tensor[other]])
            if tensor.name not in added and storage not in paired and other not in left_out:
                units = tiles.smallest(tensor, full, elements.whole[one])
                found[storage] = min(units, found.get(storage, units))
        return found

    operands = [*elements.op_reads[op], *elements.op_writes[op]]
    certain = touched(op, (one for one in operands if one not in elements.vanishing))
    ways = []
    for one in elements.op_reads[op]:
        if one in elements.vanishing:
            maker = int(flow.value_maker[one])
            inner = (other for other in elements.op_reads[maker] if other not in elements.vanishing)
            ways.append((touched(op, [one]), touched(maker, inner)))
    least = []
    for chosen in product(*ways):
        together = dict(certain)
        for parts in chosen:
            for storage, units in parts.items():
                together[storage] = max(units, together.get(storage, 0))
        least.append(sum(together.values()))
    return min(least)
