"""The data of the bound for uneven chains: the chain, the nodes that may wait, and tables by group and units of memory.

Node 0 of these tables stands below the chain: it takes no room, is always there, and N_0 comes from it at the price of a load. So
node i + 1 is N_i.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.arrays import Floats, Ints
from pebbler.compiled import kernel

__all__ = ["BLOCK", "TOPS", "BoundChain", "SegmentBounds", "Waiting", "segment_tables", "table_rows"]

# Nodes and tops that are filled in together, so that each part of a long table is read once for all of them; tops lie side by
# side, as many as fit into a vector register.
BLOCK, TOPS = 4, 8


class BoundChain(NamedTuple):
    """The figures of a chain that the recurrence uses."""

    size: Ints
    pair: Ints  # per node: the room in which it is computed, with the node below; none in the adjoint convention
    prefix: Floats  # the cost of making each node from N_0; one entry more than nodes
    first: float  # the price of N_0 from below: a load, or infinity
    need: Ints  # per top: the room of its backward step, its node and the one above
    above: Ints  # per top: the room of the node above it
    again: Floats  # per top: what the node above costs if it has to be made again
    store: Floats
    load: Floats


class Waiting(NamedTuple):
    """The nodes that may wait for each node e: e itself first, then lower ones, each smaller than those before it."""

    begin: Ints  # per node: where its own begin; one entry more than nodes
    node: Ints
    size: Ints  # the room that is counted


class SegmentBounds(NamedTuple):
    """Bounds of groups, and what the nodes of a block share."""

    begin: Ints  # per tile of tops: its first row
    width: Ints  # per tile: its rows of one amount of memory, one per node
    last: Ints  # by units and node: the highest top whose group may be of use to any waiting node
    # By row (tile, units of memory and node) and top of the tile: the node is reached by steps, what they cost not counted.
    swept: npt.NDArray[Any]
    loaded: npt.NDArray[Any]  # the same by way of a load, with its price; empty where nothing can be loaded
    # Per waiting node of the block, units left and top: the steps down to the node it waits for. Then per node of the block: the
    # steps down to its own by groups that begin with loads, whatever waits.
    path: npt.NDArray[Any]
    room: Ints  # per row of `path` and node above: the units a run to there takes
    least: npt.NDArray[Any]  # of the tops at hand, by row of `path` and units
    useful: Ints  # nodes whose groups may be of use to the tops at hand
    prices: npt.NDArray[Any]  # of a load, by units
    cheapest: float  # load


@kernel
def table_rows(tops: int) -> int:
    """Return the number of rows that the tables of a chain have per unit of memory."""
    rows = 0
    for high in range(TOPS - 1, tops + TOPS, TOPS):
        rows += min(high, tops) + 1
    return rows


@kernel
def segment_tables(
    chain: BoundChain, waiting: Waiting, swept: npt.NDArray[Any], loaded: npt.NDArray[Any], units: int
) -> SegmentBounds:
    """Return tables in `swept` and `loaded`, by row and top; nothing is filled in. Without loads, the second has no rows."""
    tops, kind = chain.need.size - 1, swept.dtype
    begin, width = np.zeros(tops // TOPS + 1, np.int64), np.zeros(tops // TOPS + 1, np.int64)
    at = 0
    for tile in range(begin.size):
        begin[tile], width[tile] = at, min(tile * TOPS + TOPS - 1, tops) + 1
        at += units * width[tile]
    most = 0
    for low in range(tops + 1):
        most = max(most, waiting.begin[min(tops + 1, low + BLOCK)] - waiting.begin[low])
    most += BLOCK if loaded.size > 0 else 0
    path = np.full((most, units, tops + 1), np.inf, kind)
    room, last = np.zeros((most, tops + 1), np.int64), np.zeros((units, tops + 1), np.int64)
    least, prices = np.empty((most, units, TOPS), kind), np.empty(units, kind)
    useful, cheapest = np.empty(tops + 1, np.int64), np.min(chain.load)
    return SegmentBounds(begin, width, last, swept, loaded, path, room, least, useful, prices, cheapest)
