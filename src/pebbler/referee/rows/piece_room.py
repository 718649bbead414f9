"""The share of a piece's elements that can be near.

Let R(t) be the room of the levels up to t. Of the elements that one piece reads, at most R(t) are found in those levels. Where a
plan places tiles, all of them are there just before the move. On a cache take the last element that the piece finds there: all
that the piece read before lies above it. So all first runs of a group of ops together find at most R(t) times the number of its
pieces there: the number of its ops times ceil(E / least) over their axes. The same holds for pieces of full size, of which there
are at most floor(E / least) per axis.

Where a plan places tiles and results need room beside operands, what a piece makes for the first time is there, too, right after
the move: values in a storage of their own, unless the op overwrites something by something smaller. And a parameter that lasts
through a steady step takes room beside every piece that does not touch it, if it is near at every moment (`lasting`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pebbler.game.dataflow import NONE
from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.row import ONE, Counter, Number, Row, at_most

__all__ = ["piece_room"]


def piece_room(leaf: Leaf) -> Iterator[Row]:
    """The pieces of a group of ops find at most so much near: all of them, and those of full size."""
    family, task = leaf.family, leaf.family.task
    if not task.caches and task.machine.operands == "fastest":
        return
    touched: dict[int, list[tuple[Counter, bool]]] = defaultdict(
        list
    )  # per group: its touches, and whether by full pieces
    for value in leaf.values:
        maker = int(family.flow.value_maker[value])
        for part in range(len(leaf.parts[value])):
            for counter in leaf.reads(value, part, task.levels):
                touched[counter[1]].append((counter, counter[-2]))
            for counter in leaf.adds(value, part, task.levels):
                touched[family.elements.group[maker]].append((counter, counter[-2]))
            if maker != NONE and value in family.written_apart:
                first = "begun" if leaf.writes(value) > 1 else "made"
                made = [(first, value, part, level) for level in task.levels]
                # The piece that begins a sum, or completes it, may be a smaller one.
                touched[family.elements.group[maker]] += [(one, False) for one in made]
    for group, counters in touched.items():
        ops, axes = family.cutting[group]
        pieces, full_pieces = ops * leaf.tiles.most_tiles(axes), ops * leaf.tiles.most_full(axes)
        tiles, factor = leaf.most_count(axes)
        lasting = [
            (tensor, part)
            for tensor, touching in family.lasting.items()
            if group not in touching
            for part in range(len(leaf.parts[int(family.flow.start_value[tensor])]))
        ]
        for tier in leaf.tight_tiers:
            room, near = leaf.tier_room(tier), leaf.tiers[tier]
            every: list[tuple[Counter, Number]] = [(one, 1) for one, _ in counters if one[-1] in near]
            beside: list[tuple[Counter, Number]]
            if tiles == ONE or lasting:
                beside = [(("stays", *one, tier), pieces) for one in lasting]
                yield at_most("room of pieces", (group, tier), every + beside, pieces * room)
            if tiles != ONE:
                beside = [(("stays", *one, tier), ops * leaf.tiles.tiles(axes)) for one in lasting]
                terms = [*every, *beside, (tiles, -ops * factor * room)]
                yield at_most("room of all pieces", (group, tier), terms, 0)
            if full_pieces < pieces:
                large = [(one, 1) for one, full in counters if one[-1] in near and full]
                yield at_most("room of full pieces", (group, tier), large, full_pieces * room)
