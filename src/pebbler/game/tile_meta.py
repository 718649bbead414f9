"""`meta["tile"]`: the source tensor or op of a tile, and the part that the tile covers.

Tiles are never recognised by name, because names are the user's and may contain anything.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from pebbler.game.form_meta import TileMeta, tile_of
from pebbler.game.graph import Graph, Op, Tensor

__all__ = ["TileMeta", "origin", "tile_numbers", "tile_of", "unused_name", "without_tiles"]


def origin(piece: Tensor | Op) -> str:
    """Return the name of what a tensor or op is a tile of, its own name if it is no tile.

    >>> origin(Tensor("W[0]", 10, "temp")), origin(Tensor("W[0]", 10, "temp", meta={"tile": {"of": "W"}}))
    ('W[0]', 'W')
    """
    found = tile_of(piece)
    return piece.name if found is None else found.of


def tile_numbers(graph: Graph) -> list[dict[str, int]]:
    """Return, per op, which tile of each cut axis it is, in the order in which the axes were cut; empty for ops that are no tiles.

    >>> from pebbler.game.transform import tile
    >>> from pebbler.workloads import mlp
    >>> tile_numbers(tile(mlp(), "hidden", 500))[:3]
    [{'hidden': 0}, {'hidden': 1}, {'hidden': 0}]
    """
    parts = [{} if (found := tile_of(op)) is None else found.at for op in graph.ops]
    starts: dict[str, set[int]] = {}
    for at in parts:
        for axis, (start, _) in at.items():
            starts.setdefault(axis, set()).add(start)
    number = {axis: {start: i for i, start in enumerate(sorted(found))} for axis, found in starts.items()}
    return [{axis: number[axis][start] for axis, (start, _) in at.items()} for at in parts]


def without_tiles(graph: Graph) -> Graph:
    """Return the graph with its tiles as tensors and ops in their own right; the graph itself if it has no tiles."""
    if not any("tile" in one.meta for one in graph.tensors) and not any("tile" in one.meta for one in graph.ops):
        return graph
    tensors = [msgspec.structs.replace(one, meta=_without_tile(one)) for one in graph.tensors]
    ops = [msgspec.structs.replace(one, meta=_without_tile(one)) for one in graph.ops]
    return Graph(graph.name, graph.unit, tensors, ops, graph.meta)


def unused_name(name: str, taken: Collection[str]) -> str:
    """Return the name, with as many `'` behind it as it takes to be none of those taken.

    >>> unused_name("W[0]", {"W", "W[0]"})
    "W[0]'"
    """
    while name in taken:
        name += "'"
    return name


def _without_tile(piece: Tensor | Op) -> dict[str, object]:
    return {key: value for key, value in piece.meta.items() if key != "tile"}
