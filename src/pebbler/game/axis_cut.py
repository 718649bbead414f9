"""Tiling of tensors and ops along one axis."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from pebbler.errors import InputError, quoted
from pebbler.game.graph import Graph, Op, Tensor
from pebbler.game.tile_meta import TileMeta, origin, tile_of, unused_name

__all__ = ["AxisCut"]


@dataclass(frozen=True)
class AxisCut:
    """Cuts tensors and ops along one axis."""

    axis: str
    cuts: list[tuple[int, int]]
    axes_of: Mapping[str, tuple[str, ...]]  # per tensor
    taken: Set[str]  # names that no new tensor may have
    taken_ops: Set[str] = frozenset()

    @classmethod
    def of(cls, graph: Graph, axis: str, cuts: list[tuple[int, int]]) -> AxisCut:
        """Return the cut for the tensors and ops of a graph."""
        axes_of = {tensor.name: tuple(name for name, _ in tensor.axes or ()) for tensor in graph.tensors}
        inner = {name for op in graph.ops for name in op.meta.get("inner", ())}
        taken = {*axes_of, *inner, *map(origin, graph.tensors)}
        return cls(axis, cuts, axes_of, taken, {name for op in graph.ops for name in (op.name, origin(op))})

    def has(self, name: str) -> bool:
        """Whether a tensor has the axis."""
        return self.axis in self.axes_of[name]

    def piece(self, name: str, i: int) -> str:
        """Return the name of a tensor's tile; tensors without the axis keep theirs."""
        return unused_name(f"{name}[{i}]", self.taken) if self.has(name) else name

    def pieces(self, name: str) -> list[str]:
        """Return the names of all tiles of a tensor."""
        return [self.piece(name, i) for i in range(len(self.cuts))] if self.has(name) else [name]

    def cut_tensor(self, tensor: Tensor) -> list[Tensor]:
        """Return the tiles of a tensor."""
        if not self.has(tensor.name):
            return [tensor]
        if tensor.overwrites is not None and not self.has(tensor.overwrites):
            raise InputError(
                f"{quoted(tensor.name)} has axis {quoted(self.axis)}, but {quoted(tensor.overwrites)}, whose storage it takes "
                "over, does not"
            )
        pieces = []
        for i, (start, stop) in enumerate(self.cuts):
            axes = tuple((axis, stop - start if axis == self.axis else extent) for axis, extent in tensor.axes or ())
            size = tensor.size // self.cuts[-1][1] * (stop - start)
            overwrites = None if tensor.overwrites is None else self.piece(tensor.overwrites, i)
            meta = tensor.meta | self._tile_meta(tensor, i)
            pieces.append(Tensor(self.piece(tensor.name, i), size, tensor.kind, axes, overwrites, tensor.start, meta))
        return pieces

    def cut_op(self, op: Op, backwards: bool = False) -> list[Op]:
        """Return the tiles of an op, or one op that reads and writes all tiles where it needs the axis whole."""
        if not any(self.has(name) for name in (*op.reads, *op.writes)):
            return [op]
        if self.axis in op.whole:
            return [self._gather(op)]
        sums = [name for name in op.writes if not self.has(name)]
        already = op.meta.get("accumulates", [])
        if any(name in op.reads and name not in already for name in sums) or (
            sums and op.meta.keys() & {"parts", "gather"}
        ):
            raise InputError(
                f"axis {quoted(self.axis)}: op {quoted(op.name)} updates {quoted(sums[0])} from a sum over the axis, so it cannot "
                "be cut; name the axis in its `whole`"
            )
        added = [name for name in op.meta.get("adds", ()) if self.has(name)]
        if sums and added:
            raise InputError(
                f"axis {quoted(self.axis)}: op {quoted(op.name)} sums over the axis and `adds` {quoted(added[0])}, which has it; "
                "what is added once to a sum must not have an axis that is summed over"
            )
        order = range(len(self.cuts))
        pieces = []
        for place, i in enumerate(reversed(order) if backwards else order):
            piece = self._cut_piece(op, i, sums if place else [])
            name, meta = unused_name(piece.name, self.taken_ops), piece.meta | self._tile_meta(op, i)
            pieces.append(msgspec.structs.replace(piece, name=name, meta=meta))
        return pieces

    def _tile_meta(self, whole: Tensor | Op, i: int) -> dict[str, Any]:
        known = tile_of(whole) or TileMeta(whole.name)
        at = {axis: list(part) for axis, part in (known.at | {self.axis: self.cuts[i]}).items()}
        return {"tile": {"of": known.of, "at": at}}

    def _cut_piece(self, op: Op, i: int, sums: list[str]) -> Op:
        """Return one tile of an op; it adds to the results in `sums`, which another tile has begun."""
        start, stop = self.cuts[i]
        meta = dict(op.meta)
        already = op.meta.get("accumulates", [])
        new = [name for name in sums if name not in already]
        added = meta.pop("adds", [])
        reads = [self.piece(name, i) for name in op.reads if not (new and name in added)]
        if added and not new:
            meta["adds"] = [self.piece(name, i) for name in added]
        if already or new:
            meta["accumulates"] = [self.piece(name, i) for name in [*already, *new]]
        if "parts" in meta:
            temps = {name: tuple(axes) for name, axes in meta["inner"].items()}
            inner = replace(self, axes_of=ChainMap(temps, self.axes_of))  # type: ignore[arg-type]
            parts = [msgspec.convert(part, Op) for part in meta["parts"]]
            meta["parts"] = [msgspec.to_builtins(inner._cut_piece(part, i, [])) for part in parts]
            meta["inner"] = {inner.piece(name, i): axes for name, axes in meta["inner"].items()}
        if "gather" in meta:
            meta["gather"] = self._cut_gather(meta["gather"], i)
        return msgspec.structs.replace(
            op,
            name=f"{op.name}[{i}]",
            reads=(*reads, *new),
            writes=tuple(self.piece(name, i) for name in op.writes),
            cost=op.cost * (stop - start) / self.cuts[-1][1],
            pointwise=op.pointwise and not new,
            meta=meta,
        )

    def _cut_gather(self, gather: dict[str, Any], i: int) -> dict[str, Any]:
        """Return one tile of what stands behind an op that works on all tiles of another axis."""
        op = msgspec.convert(gather["op"], Op)
        axes_of = {name: tuple(axes) for name, axes in gather["axes"].items()}
        whole = AxisCut(self.axis, self.cuts, axes_of, {*axes_of, *op.meta.get("inner", ())})
        return {
            **gather,
            "op": msgspec.to_builtins(whole._cut_piece(op, i, [])),
            "pieces": {
                whole.piece(name, i): [self.piece(one, i) for one in row] for name, row in gather["pieces"].items()
            },
            "axes": {whole.piece(name, i): axes for name, axes in gather["axes"].items()},
        }

    def _gather(self, op: Op) -> Op:
        """Return the op that reads and writes all tiles at once, for an axis that must stay whole."""
        names = dict.fromkeys([*op.reads, *op.writes])
        gather = {
            "axis": self.axis,
            "cuts": [start for start, _ in self.cuts[1:]],
            "op": msgspec.to_builtins(op),
            "pieces": {name: self.pieces(name) for name in names},
            "axes": {name: list(self.axes_of[name]) for name in names},
        }
        kept = {"tile": op.meta["tile"]} if "tile" in op.meta else {}
        return msgspec.structs.replace(
            op,
            reads=tuple(piece for name in op.reads for piece in self.pieces(name)),
            writes=tuple(piece for name in op.writes for piece in self.pieces(name)),
            pointwise=False,
            meta={"gather": gather} | kept,
        )
