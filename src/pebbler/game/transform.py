"""Tiling and fusion: graph transformations that compute the same values in smaller or fewer ops.

The result is an ordinary graph. The `meta` of its tensors and ops relates them to the source graph, so that a plan of the result
can be run on the numbers of the source and compared with it:

- `tile` of a tensor or op: the source tensor or op (`of`), and the range of each axis (`at`: start and stop);
- `adds` of an op: reads that are added to a sum only once; `accumulates`: results that the op adds to in place (its last reads);
- `gather` of an op: the untiled op behind an op that reads or writes all tiles at once;
- `parts` of an op: the ops fused into it, and the axes of the temps that are never stored (`inner`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from pebbler.errors import InputError, near_matches, quoted
from pebbler.game.axis_cut import AxisCut
from pebbler.game.graph import Graph, Op
from pebbler.game.tile_meta import origin, tile_of, unused_name

__all__ = ["fusable", "fuse", "fuse_all", "tile"]


def tile(graph: Graph, axis: str, size: int, *, reverse: Sequence[str] = ()) -> Graph:
    """Return the graph with an axis cut into tiles of `size`, the last one smaller where it does not divide.

    Every tensor with the axis becomes one tensor per tile (`W1[0]`, `W1[1]`, ...; where such a name is taken, another), every
    op that touches one becomes one op per tile. An op that reads the axis and does not write it sums over it: its first tile
    writes the result, the others add to it in place. An op that says the axis must stay `whole` reads and writes all tiles at
    once. The ops named in `reverse` visit their tiles backwards, which matters where they add up.

    >>> from pebbler.workloads import mlp
    >>> tiled = tile(mlp(n=20, hidden=1000), "hidden", 300)
    >>> [(t.name, t.size) for t in tiled.tensors if t.name.startswith("W2")]
    [('W2[0]', 300), ('W2[1]', 300), ('W2[2]', 300), ('W2[3]', 100)]
    >>> tiled.op_named("fwd_linear2[1]").reads
    ('W2[1]', 'h[1]', 'y_hat')
    """
    extent = _extent(graph, axis)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InputError(f"a tile of axis {quoted(axis)} must be a whole number of at least 1, got {size!r}")
    for name in reverse:
        graph.op_index(name)
    cuts = [(start, min(start + size, extent)) for start in range(0, extent, size)]
    if len(cuts) == 1:
        return graph
    cut, backwards = AxisCut.of(graph, axis, cuts), set(reverse)
    tensors = [piece for tensor in graph.tensors for piece in cut.cut_tensor(tensor)]
    ops = [piece for op in graph.ops for piece in cut.cut_op(op, backwards=op.name in backwards)]
    return Graph(_renamed(graph.name, "tiled", f"{axis}={size}"), graph.unit, tensors, ops, graph.meta)


def fusable(graph: Graph) -> list[str]:
    """Return the temps that can be fused away.

    >>> from pebbler.workloads import mlp
    >>> fusable(mlp())
    ['loss', 'dW2', 'db2', 'dh', 'dW1', 'db1']
    """
    axes = [tensor.name for tensor in graph.tensors if tensor.axes is not None]
    return [name for name in axes if _why_not_fused(graph, name) is None]


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
    taken = {name for op in graph.ops for name in (op.name, origin(op))}
    meta: dict[str, Any] = {"parts": [*_parts(maker), *_parts(reader)], "inner": inner}
    tiles = [found.at for found in (tile_of(maker), tile_of(reader)) if found is not None]
    if tiles:
        of = unused_name(f"{origin(maker)}+{origin(reader)}", {op.name for op in graph.ops})
        meta["tile"] = {"of": of, "at": {axis: list(part) for at in tiles for axis, part in at.items()}}
    fused = Op(
        name=unused_name(f"{maker.name}+{reader.name}", taken),
        reads=tuple(dict.fromkeys(both)),
        writes=tuple(writes),
        cost=maker.cost + reader.cost,
        once=maker.once or reader.once,
        whole=tuple(dict.fromkeys([*maker.whole, *reader.whole])),
        pointwise=maker.pointwise and reader.pointwise,
        meta=meta,
    )
    tensors = [tensor for tensor in graph.tensors if tensor.name != temp]
    for place in (second, first):
        rest = [(i, op) for i, op in enumerate(graph.ops) if i == place or i not in (first, second)]
        ops = [fused if i == place else op for i, op in rest]
        if _same_meaning(graph, Graph(graph.name, graph.unit, tensors, ops, graph.meta), maker, reader, fused):
            return Graph(_renamed(graph.name, "fused", temp), graph.unit, tensors, ops, graph.meta)
    raise InputError(
        f"{quoted(temp)} cannot be fused away: other ops between {quoted(maker.name)} and {quoted(reader.name)} "
        "depend on one and change what the other needs"
    )


def fuse_all(graph: Graph, temps: Collection[str]) -> Graph:
    """Return the graph with some temps fused away, in the order in which they are declared, as far as they go in that order.

    Two ops that read a temp may become one when another temp is gone: what cannot be fused yet is tried again later.

    >>> from pebbler.workloads import mlp
    >>> fuse_all(mlp(n=3, hidden=4), ["dh", "dW1"]).name
    'mlp:n=3,hidden=4 fused dW1, dh'
    >>> fuse_all(mlp(n=3, hidden=4, batch=2), ["y_hat", "loss"]).op_names[2]
    'fwd_linear2+fwd_loss+bwd_loss'
    """
    fused, waiting = graph, sorted(temps, key=graph.tensor_index)
    while waiting:
        left = []
        for temp in waiting:
            try:
                fused = fuse(fused, temp)
            except InputError:
                left.append(temp)
        if len(left) == len(waiting):
            return fuse(fused, waiting[0])  # says why not
        waiting = left
    if len(temps) < 2:
        return fused
    return Graph(
        _renamed(graph.name, "fused", ", ".join(sorted(temps))), graph.unit, fused.tensors, fused.ops, graph.meta
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
    """Return the reason why a temp cannot be fused away; None if its maker and reader allow it."""
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
