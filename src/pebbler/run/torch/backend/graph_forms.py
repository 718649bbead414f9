"""Forms of a graph that compute the same and hold less: losses in a few chunks, which take little time, in more, MLPs in tiles.

How many chunks and tiles there are follows from the budget, but in the last form, so that all budgets end in the same one: what is
refused there with the bytes that it held does with those bytes when they are asked for.
"""

from __future__ import annotations

import logging

from torch import fx

from pebbler.run.torch.backend.chunked_loss import chunk_losses, cut_off_losses, find_losses
from pebbler.run.torch.backend.mlp_tiles import find_mlps, tile_mlps

__all__ = ["GraphForms"]

_LOG = logging.getLogger(__name__)
# A chunk or tile may take one part in so many of the budget. Every chunk adds to the whole gradient of the layer's weight, so there
# are few as long as that keeps the budget.
_FEW, _MANY = 10, 32
_CHUNKED = 2  # the last level that only computes losses in chunks
_MOST = 4  # the last level


class GraphForms:
    """The form of a graph that is compiled, by its `level`; `done` says what the form changed.

    Level 0 is the graph as it is, 1 has losses in a few chunks, 2 in more chunks, 3 MLPs in tiles too, 4 as many of both as can be.

    >>> GraphForms(2**30).levels(fx.symbolic_trace(lambda x: x + 1).graph)
    []
    """

    def __init__(self, budget: int | None, level: int = 0) -> None:
        self._few, self._many = (budget or 0) // _FEW, (budget or 0) // _MANY
        self.level = level
        self.done: list[str] = []
        self._advised = False

    def write(self, gm: fx.GraphModule) -> fx.GraphModule:
        """Bring a graph into the form of this level, and return it; log once the further forms that are possible."""
        for line in [] if self._advised else cut_off_losses(gm.graph, self._few):
            _LOG.warning("%s", line)
        self._advised = True
        self.done = []
        room = self._few if self.level == 1 else self._many if self.level < _MOST else 0
        if self.level > 0:
            self.done += chunk_losses(gm.graph, lambda loss: loss.chunks_within(room))
        if self.level > _CHUNKED:
            self.done += tile_mlps(gm.graph, lambda mlp: mlp.tiles_within(room))
        for line in self.done:
            _LOG.info("%s", line)
        gm.recompile()
        return gm

    def levels(self, graph: fx.Graph) -> list[int]:
        """Return the levels above 0 that change a graph."""
        losses, mlps = find_losses(graph), find_mlps(graph)
        changes = (
            any(loss.chunks_within(self._few) > 1 for loss in losses),
            any(loss.chunks_within(self._many) > loss.chunks_within(self._few) for loss in losses),
            any(mlp.tiles_within(self._many) > 1 for mlp in mlps),
            any(loss.chunks_within(0) > loss.chunks_within(self._many) for loss in losses)
            or any(mlp.tiles_within(0) > mlp.tiles_within(self._many) for mlp in mlps),
        )
        return [level for level, any_does in enumerate(changes, 1) if any_does]
