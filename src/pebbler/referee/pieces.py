"""The pieces of a form: which ops of the source each op of a tiled and fused graph carries out, and which elements it touches.

A form is made from its source by fusing temps away and then cutting axes (`game.transform`). Each of its tensors is a tile of one
tensor of the source. Its values are the source's values, except that a sum over an axis that is cut has one value per
piece that adds to it: the first begins the source's value, the last completes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from pebbler.arrays import Ints
from pebbler.errors import InputError, quoted
from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph, Op, Tensor
from pebbler.game.tile_meta import origin, tile_of

__all__ = ["Pieces"]

_Box = Mapping[str, tuple[int, int]]  # per axis that is cut: start and stop


class Pieces:
    """The ops and values of a form as parts of those of its source.

    >>> from pebbler.game.transform import fuse, tile
    >>> from pebbler.workloads import mlp
    >>> step = mlp(n=2, hidden=5)
    >>> form = tile(fuse(step, "dW1"), "hidden", 2)
    >>> pieces, piece = Pieces(form, step), form.op_index("bwd_dW1+upd_W1[2]")
    >>> [step.ops[op].name for op in pieces.ops[piece]], pieces.full[piece], pieces.share[piece]
    (['bwd_dW1', 'upd_W1'], False, Fraction(1, 5))
    >>> pieces.elements[form.tensor_index("W1[2]")].tolist()
    [8, 9]
    """

    def __init__(self, graph: Graph, source: Graph) -> None:
        self.graph, self.source = graph, source
        self.flow, self.source_flow = graph.dataflow, source.dataflow
        boxes = [_box(op) for op in graph.ops]
        self.sizes: dict[str, int] = {}  # of the tiles of each axis that is cut; the last may be smaller
        self._extent: dict[str, int] = {}
        for box in (*boxes, *map(_box, graph.tensors)):
            for axis, (start, stop) in box.items():
                self.sizes[axis] = max(self.sizes.get(axis, 0), stop - start)
                self._extent[axis] = max(self._extent.get(axis, 0), stop)
        self.ops = [self._source_ops(op) for op in graph.ops]
        # Whether an op has the full size along every axis that cuts it, and which part of its source ops it is.
        self.full = [all(stop - start == self.sizes[axis] for axis, (start, stop) in box.items()) for box in boxes]
        self.share = [self._share(box) for box in boxes]
        self.elements = [self._elements(tensor) for tensor in graph.tensors]
        self.value = [self._source_value(value) for value in range(self.flow.values)]
        self.begins, self.completes = self._sums()
        # What one run of an op costs: its parts of what the ops cost that it stands for.
        costs = self.source_flow.op_cost.tolist()
        self.cost = [
            share * sum(Fraction(costs[op]) for op in ops) for share, ops in zip(self.share, self.ops, strict=True)
        ]

    def tiles_of(self, tensor: int) -> list[int]:
        """Return the tensors of the form that are tiles of one of the source."""
        return self._tiles.get(self.source.tensors[tensor].name, [])

    @cached_property
    def _tiles(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, one in enumerate(self.graph.tensors):
            found.setdefault(origin(one), []).append(number)
        return found

    def _source_ops(self, op: Op) -> list[int]:
        meta = op.meta
        while "gather" in meta:
            meta = meta["gather"]["op"].get("meta", {})
        if "parts" not in meta:
            return [self.source.op_index(origin(op))]
        # Every axis that cuts a fused op adds one `[number]` to the names of its parts.
        ending = re.compile(r"(\[\d+\]){" + str(len(_box(op))) + "}$")
        names: list[str] = [part["name"] for part in meta["parts"]]
        return [self.source.op_index(ending.sub("", name)) for name in names]

    def _share(self, box: _Box) -> Fraction:
        share = Fraction(1)
        for axis, (start, stop) in box.items():
            share *= Fraction(stop - start, self._extent[axis])
        return share

    def _elements(self, tensor: Tensor) -> Ints:
        """Return the source's elements that a tile has, in the order of its units."""
        whole, box = self.source.tensor_named(origin(tensor)), _box(tensor)
        numbers: Ints = np.arange(whole.size)
        if not box:
            return numbers
        axes: Any = whole.axes or ()
        shaped = numbers.reshape([extent for _, extent in axes])
        return shaped[tuple(slice(*box.get(axis, (0, extent))) for axis, extent in axes)].ravel()

    def _source_value(self, value: int) -> int:
        tensor = self.source.tensor_index(origin(self.graph.tensors[int(self.flow.value_tensor[value])]))
        maker, flow = int(self.flow.value_maker[value]), self.source_flow
        if maker == NONE:
            return int(flow.start_value[tensor])
        made = [one for op in self.ops[maker] for one in flow.op_writes.row(op).tolist()]
        found = [one for one in made if flow.value_tensor[one] == tensor]
        if len(found) != 1:
            op, name = self.graph.ops[maker].name, self.graph.tensors[int(self.flow.value_tensor[value])].name
            raise InputError(f"op {quoted(op)} writes {quoted(name)}, which the ops that it stands for do not")
        return int(found[0])

    def _sums(self) -> tuple[list[bool], list[bool]]:
        """Return, per value, whether it begins a value of the source, and whether it completes it."""
        begins, completes = [True] * self.flow.values, [True] * self.flow.values
        newest: dict[tuple[int, int], int] = {}
        for value, tensor in enumerate(self.flow.value_tensor.tolist()):
            before = newest.get((tensor, self.value[value]))
            if before is not None:
                begins[value], completes[before] = False, False
            newest[tensor, self.value[value]] = value
        return begins, completes

    def goes_on(self, op: int, value: int) -> bool:
        """Whether an op reads a value only to add to it: a part of a sum that it writes itself."""
        return any(self.value[made] == self.value[value] for made in self.flow.op_writes.row(op).tolist())


def _box(piece: Tensor | Op) -> _Box:
    found = tile_of(piece)
    return {} if found is None else found.at
