"""Tiling and fusion: a graph in, a graph out that computes the same in smaller or fewer pieces.

The result is a graph like any other. Its tensors and ops say in `meta` what they are pieces of, so that a plan of it can be
run on the source's numbers and compared with the source:

- a tensor's `tile`: the source tensor it is part `of`, and which part of each axis (`at`);
- an op's `adds`: reads that are added once to a sum, `accumulates`: results that it adds to in place (its last reads);
- an op's `gather`: the op on whole tensors that stands behind one that reads or writes all tiles at once;
- an op's `parts`: the ops fused into it, and the axes of the temps that are never stored (`inner`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pebbler.errors import InputError, near_matches, quoted
from pebbler.game.graph import Graph, Op, Tensor

__all__ = ["fusable", "fuse", "tile"]


def tile(graph: Graph, axis: str, size: int, *, reverse: Sequence[str] = ()) -> Graph:
    """Return the graph with an axis cut into tiles of `size`, the last one smaller where it does not divide.

    Every tensor with the axis becomes one tensor per tile (`W1[0]`, `W1[1]`, ...), every op that touches one becomes one op
    per tile. An op that reads the axis and does not write it sums over it: its first tile writes the result, the others add
    to it in place. An op that says the axis must stay `whole` reads and writes all tiles at once. The ops named in `reverse`
    visit their tiles backwards, which matters where they add up.

    >>> from pebbler.workloads import mlp
    >>> tiled = tile(mlp(n=20, hidden=1000), "hidden", 300)
    >>> [(t.name, t.size) for t in tiled.tensors if t.name.startswith("W2")]
    [('W2[0]', 300), ('W2[1]', 300), ('W2[2]', 300), ('W2[3]', 100)]
    >>> tiled.op_named("fwd_linear2[1]").reads
    ('W2[1]', 'h[1]', 'y_hat')
    """
    axes_of = {tensor.name: tuple(name for name, _ in tensor.axes or ()) for tensor in graph.tensors}
    extent = _extent(graph, axis)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InputError(f"a tile of axis {quoted(axis)} must be a whole number of at least 1, got {size!r}")
    for name in reverse:
        graph.op_index(name)
    cuts = [(start, min(start + size, extent)) for start in range(0, extent, size)]
    if len(cuts) == 1:
        return graph
    knife = _Knife(axis, cuts, axes_of)
    tensors = [piece for tensor in graph.tensors for piece in knife.cut_tensor(tensor)]
    ops = [piece for op in graph.ops for piece in knife.cut_op(op, backwards=op.name in reverse)]
    return Graph(_renamed(graph.name, "tiled", f"{axis}={size}"), graph.unit, tensors, ops, graph.meta)


def fusable(graph: Graph) -> list[str]:
    """Return the temps that can be fused away.

    >>> from pebbler.workloads import mlp
    >>> fusable(mlp())
    ['loss', 'dW2', 'db2', 'dh', 'dW1', 'db1']
    """
    return [tensor.name for tensor in graph.tensors if _why_not_fused(graph, tensor.name) is None]


def fuse(graph: Graph, temp: str) -> Graph:
    """Return the graph with a temp fused away: its maker and its only reader, a pointwise op, become one op.

    The temp is never stored or priced, so the reader must need of it only the element it is about to write.

    >>> from pebbler.workloads import mlp
    >>> fuse(mlp(), "dW1").op_named("bwd_dW1+upd_W1").reads
    ('dh_pre', 'x', 'W1')
    """
    why_not = _why_not_fused(graph, temp)
    if why_not is not None:
        raise InputError(f"{quoted(temp)} cannot be fused away: {why_not}")
    flow = graph.dataflow
    value = int((flow.value_tensor == graph.tensor_index(temp)).argmax())
    first, second = int(flow.value_maker[value]), int(flow.value_readers.row(value)[0])
    maker, reader = graph.ops[first], graph.ops[second]
    both = [*maker.reads, *(name for name in reader.reads if name != temp)]
    writes = [*(name for name in maker.writes if name != temp), *reader.writes]
    inner = dict(maker.meta.get("inner", {})) | dict(reader.meta.get("inner", {}))
    inner[temp] = [name for name, _ in graph.tensor_named(temp).axes or ()]
    fused = Op(
        name=f"{maker.name}+{reader.name}",
        reads=tuple(dict.fromkeys(both)),
        writes=tuple(writes),
        cost=maker.cost + reader.cost,
        once=maker.once or reader.once,
        whole=tuple(dict.fromkeys([*maker.whole, *reader.whole])),
        pointwise=maker.pointwise and reader.pointwise,
        meta={"parts": [*_parts(maker), *_parts(reader)], "inner": inner},
    )
    tensors = [tensor for tensor in graph.tensors if tensor.name != temp]
    for place in (second, first):
        ops: list[Op] = []
        for i, op in enumerate(graph.ops):
            if i == place:
                ops.append(fused)
            elif i not in (first, second):
                ops.append(op)
        if _same_meaning(graph, Graph(graph.name, graph.unit, tensors, ops, graph.meta), maker, reader, fused):
            return Graph(_renamed(graph.name, "fused", temp), graph.unit, tensors, ops, graph.meta)
    raise InputError(
        f"{quoted(temp)} cannot be fused away: other ops between {quoted(maker.name)} and {quoted(reader.name)} "
        "depend on one and change what the other needs"
    )


def _renamed(name: str, done: str, what: str) -> str:
    """Return a graph's name with one more change: `mlp fused dW1, dh tiled hidden=10`."""
    last = re.search(r" (fused|tiled) [^ ]+(, [^ ]+)*$", name)
    return f"{name}, {what}" if last is not None and last[1] == done else f"{name} {done} {what}"


def _parts(op: Op) -> list[dict[str, Any]]:
    """Return the ops behind a fused op, or the op itself, as plain data."""
    parts: list[dict[str, Any]] = op.meta.get("parts") or [msgspec.to_builtins(op)]
    return parts


def _why_not_fused(graph: Graph, temp: str) -> str | None:
    """Return why a temp cannot be fused away, None if it can (as far as its own maker and reader go)."""
    tensor = graph.tensor_named(temp)
    if tensor.kind != "temp":
        return f"it is of kind {tensor.kind}, not temp"
    flow = graph.dataflow
    values = (flow.value_tensor == graph.tensor_index(temp)).nonzero()[0]
    if len(values) != 1 or flow.value_destroyer[values[0]] >= 0 or tensor.overwrites is not None:
        return "it must be written exactly once, into storage of its own"
    readers = flow.value_readers.row(int(values[0])).tolist()
    if len(readers) != 1:
        return f"exactly one op must read it, not {len(readers)}"
    maker, reader = graph.ops[int(flow.value_maker[values[0]])], graph.ops[readers[0]]
    if not reader.pointwise:
        return f"its reader {quoted(reader.name)} is not pointwise"
    if tensor.axes is None or any(graph.tensor_named(name).axes != tensor.axes for name in reader.writes):
        return f"it does not have the axes of what {quoted(reader.name)} writes"
    if maker.meta.get("accumulates") or maker.meta.get("gather") or reader.meta.get("gather"):
        return "its maker or reader works on several tiles"
    overwritten = {graph.dataflow.storage[graph.tensor_index(name)] for name in reader.writes}
    for name in maker.reads:
        clash = graph.dataflow.storage[graph.tensor_index(name)] in overwritten
        if clash and not (maker.pointwise and graph.tensor_named(name).axes == tensor.axes):
            return (
                f"{quoted(maker.name)} reads {quoted(name)} out of step with {quoted(reader.name)}, which overwrites it"
            )
    return None


def _same_meaning(before: Graph, after: Graph, maker: Op, reader: Op, fused: Op) -> bool:
    """Whether every op still reads the versions that it read before."""

    def seen(graph: Graph, op: str) -> dict[str, int]:
        flow, index = graph.dataflow, graph.op_index(op)
        values = flow.op_reads.row(index)
        return {flow.tensor_names[flow.value_tensor[value]]: int(flow.value_version[value]) for value in values}

    try:
        _ = after.dataflow
    except InputError:
        return False
    for op in after.ops:
        expected = (seen(before, maker.name) | seen(before, reader.name)) if op is fused else seen(before, op.name)
        if any(expected[name] != version for name, version in seen(after, op.name).items()):
            return False
    merged = [seen(before, maker.name), seen(before, reader.name)]
    return all(merged[0][name] == merged[1][name] for name in merged[0].keys() & merged[1].keys())


@dataclass(frozen=True)
class _Knife:
    """Cuts tensors and ops along one axis."""

    axis: str
    cuts: list[tuple[int, int]]
    axes_of: dict[str, tuple[str, ...]]

    def has(self, name: str) -> bool:
        return self.axis in self.axes_of[name]

    def piece(self, name: str, i: int) -> str:
        return f"{name}[{i}]" if self.has(name) else name

    def pieces(self, name: str) -> list[str]:
        return [f"{name}[{i}]" for i in range(len(self.cuts))] if self.has(name) else [name]

    def cut_tensor(self, tensor: Tensor) -> list[Tensor]:
        if not self.has(tensor.name):
            return [tensor]
        if tensor.overwrites is not None and not self.has(tensor.overwrites):
            raise InputError(
                f"{quoted(tensor.name)} has axis {quoted(self.axis)}, but {quoted(tensor.overwrites)}, whose storage it takes "
                "over, does not"
            )
        source = tensor.meta.get("tile", {"of": tensor.name, "at": {}})
        pieces = []
        for i, (start, stop) in enumerate(self.cuts):
            axes = tuple((axis, stop - start if axis == self.axis else extent) for axis, extent in tensor.axes or ())
            meta = tensor.meta | {"tile": {"of": source["of"], "at": source["at"] | {self.axis: [start, stop]}}}
            size = tensor.size // self.cuts[-1][1] * (stop - start)
            overwrites = None if tensor.overwrites is None else f"{tensor.overwrites}[{i}]"
            pieces.append(Tensor(f"{tensor.name}[{i}]", size, tensor.kind, axes, overwrites, meta))
        return pieces

    def cut_op(self, op: Op, backwards: bool = False) -> list[Op]:
        if not any(self.has(name) for name in (*op.reads, *op.writes)):
            return [op]
        if self.axis in op.whole:
            return [self.gather(op)]
        sums = [name for name in op.writes if not self.has(name)]
        already = op.meta.get("accumulates", [])
        if any(name in op.reads and name not in already for name in sums) or (
            sums and op.meta.keys() & {"parts", "gather"}
        ):
            raise InputError(
                f"axis {quoted(self.axis)}: op {quoted(op.name)} updates {quoted(sums[0])} from a sum over the axis, so it cannot "
                "be cut; name the axis in its `whole`"
            )
        order = range(len(self.cuts))
        tiles = reversed(order) if backwards else order
        return [self.cut_piece(op, i, sums if place else []) for place, i in enumerate(tiles)]

    def cut_piece(self, op: Op, i: int, sums: list[str]) -> Op:
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
            inner = _Knife(self.axis, self.cuts, self.axes_of | {k: tuple(v) for k, v in meta["inner"].items()})
            parts = [msgspec.convert(part, Op) for part in meta["parts"]]
            meta["parts"] = [msgspec.to_builtins(inner.cut_piece(part, i, [])) for part in parts]
            meta["inner"] = {inner.piece(name, i): axes for name, axes in meta["inner"].items()}
        if "gather" in meta:
            meta["gather"] = self.cut_gather(meta["gather"], i)
        return msgspec.structs.replace(
            op,
            name=f"{op.name}[{i}]",
            reads=(*reads, *new),
            writes=tuple(self.piece(name, i) for name in op.writes),
            cost=op.cost * (stop - start) / self.cuts[-1][1],
            pointwise=op.pointwise and not new,
            meta=meta,
        )

    def cut_gather(self, behind: dict[str, Any], i: int) -> dict[str, Any]:
        """Return one tile of what stands behind an op that works on all tiles of another axis."""
        whole = _Knife(self.axis, self.cuts, {name: tuple(axes) for name, axes in behind["axes"].items()})
        return {
            **behind,
            "op": msgspec.to_builtins(whole.cut_piece(msgspec.convert(behind["op"], Op), i, [])),
            "pieces": {
                whole.piece(name, i): [self.piece(one, i) for one in row] for name, row in behind["pieces"].items()
            },
            "axes": {whole.piece(name, i): axes for name, axes in behind["axes"].items()},
        }

    def gather(self, op: Op) -> Op:
        """Return the op that reads and writes all tiles at once, for an axis that must stay whole."""
        names = dict.fromkeys([*op.reads, *op.writes])
        behind = {
            "axis": self.axis,
            "cuts": [start for start, _ in self.cuts[1:]],
            "op": msgspec.to_builtins(op),
            "pieces": {name: self.pieces(name) for name in names},
            "axes": {name: list(self.axes_of[name]) for name in names},
        }
        return msgspec.structs.replace(
            op,
            reads=tuple(piece for name in op.reads for piece in self.pieces(name)),
            writes=tuple(piece for name in op.writes for piece in self.pieces(name)),
            pointwise=False,
            meta={"gather": behind},
        )


def _extent(graph: Graph, axis: str) -> int:
    extents = {extent for tensor in graph.tensors for name, extent in tensor.axes or () if name == axis}
    if not extents:
        known = {name for tensor in graph.tensors for name, _ in tensor.axes or ()}
        raise InputError(f"graph {quoted(graph.name)} has no axis {quoted(axis)}{near_matches(axis, known)}")
    if len(extents) > 1:
        found = ", ".join(str(extent) for extent in sorted(extents))
        raise InputError(
            f"axis {quoted(axis)} has different extents in different tensors ({found}); it cannot be tiled"
        )
    return extents.pop()
