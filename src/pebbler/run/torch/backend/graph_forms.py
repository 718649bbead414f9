"""Forms of a graph that compute the same and hold less: first losses in chunks, which take no more time, then MLPs in tiles."""

from __future__ import annotations

import logging
from collections.abc import Callable

from torch import fx

from pebbler.run.torch.backend.chunked_loss import chunk_losses, cut_off_losses, find_losses
from pebbler.run.torch.backend.mlp_tiles import find_mlps, tile_mlps

__all__ = ["GraphForms"]

_LOG = logging.getLogger(__name__)
_SHARE = 32  # a chunk or tile may take one part in so many of the budget


class GraphForms:
    """Which form of a graph is compiled: `level` 0 as it is, 1 with chunked losses, 2 with tiled MLPs too; `done` says what it did.

    >>> GraphForms(2**30).next_level(fx.symbolic_trace(lambda x: x + 1).graph) is None
    True
    """

    def __init__(self, budget: int | None, level: int = 0) -> None:
        self._room = (budget or 0) // _SHARE
        self.level = level
        self.done: list[str] = []
        self._advised = False

    def write(self, gm: fx.GraphModule) -> fx.GraphModule:
        """Bring a graph into the form of this level, and return it; say once what could be done if the graph went further."""
        for line in [] if self._advised else cut_off_losses(gm.graph, self._room):
            _LOG.warning("%s", line)
        self._advised = True
        self.done = []
        for _, rewrite in self._rewrites()[: self.level]:
            self.done += rewrite(gm.graph)
        for line in self.done:
            _LOG.info("%s", line)
        gm.recompile()
        return gm

    def next_level(self, graph: fx.Graph) -> int | None:
        """Return the next level that changes a graph, or None."""
        levels = enumerate(self._rewrites(), start=1)
        return next((level for level, (changes, _) in levels if level > self.level and changes(graph)), None)

    def _rewrites(self) -> list[tuple[Callable[[fx.Graph], bool], Callable[[fx.Graph], list[str]]]]:
        room = self._room
        return [
            (
                lambda graph: any(loss.chunks_within(room) > 1 for loss in find_losses(graph)),
                lambda graph: chunk_losses(graph, lambda loss: loss.chunks_within(room)),
            ),
            (
                lambda graph: any(mlp.tiles_within(room) > 1 for mlp in find_mlps(graph)),
                lambda graph: tile_mlps(graph, lambda mlp: mlp.tiles_within(room)),
            ),
        ]
