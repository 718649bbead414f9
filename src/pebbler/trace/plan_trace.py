"""The trace of a plan or of any order of a graph: every unit of memory that its ops touch, in order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.game.machine import UNIT_BYTES
from pebbler.game.plan import Plan
from pebbler.referee.touches import touch
from pebbler.trace.traces import CHUNK, Trace

__all__ = ["trace_of", "trace_plan"]

# A terabyte at 17 bytes each: beyond, a disk would fill up for hours before it said no.
MOST_ACCESSES = 1 << 36


def trace_plan(plan: Plan | Graph, allocator: str | None = None) -> Iterator[Trace]:
    """Yield the accesses of a plan's computes, unit by unit, in pieces; a graph runs in program order.

    Addresses come from the machine's allocator, or from the one named; a graph by itself gives each tensor its own.

    >>> from pebbler.workloads import mlp
    >>> sum(len(piece) for piece in trace_plan(mlp()))
    122056
    """
    if allocator not in (None, "own", "reuse"):
        raise InputError(f"allocator must be own or reuse, got {allocator!r}")
    if isinstance(plan, Graph):
        return trace_of(plan, range(len(plan.ops)), allocator or "own")
    machine = plan.machine.in_unit(plan.graph.unit)
    return trace_of(plan.graph, plan.moves.order, allocator or machine.allocator, machine.line)


def trace_of(
    graph: Graph, order: npt.ArrayLike, allocator: str = "own", line: int = 1, chunk: int = CHUNK
) -> Iterator[Trace]:
    """Yield the trace of an order unit by unit, in pieces of about `chunk` accesses.

    >>> from pebbler.workloads import mlp
    >>> sum(len(piece) for piece in trace_of(mlp(), range(15)))
    122056
    """
    touches = touch(graph, order, allocator, line)
    steps = np.asarray(order, np.int64)
    tensor_names = tuple(tensor.name for tensor in graph.tensors)
    op_names = tuple(op.name for op in graph.ops)
    total = sum(touches.units.tolist())  # may be more than 64 bits hold
    if total > MOST_ACCESSES:
        raise InputError(
            f"{graph.name}: touches {total:,} units one by one; a trace holds at most {MOST_ACCESSES:,} "
            "(`pebbler check` prices a plan without one)"
        )
    ends = np.cumsum(touches.units)
    begin = 0
    while begin < total:
        # A run may be larger than a chunk, so pieces are cut at accesses, not at runs.
        end = min(begin + chunk, total)
        low, high = int(np.searchsorted(ends, begin, "right")), int(np.searchsorted(ends, end, "left")) + 1
        starts = ends[low:high] - touches.units[low:high]
        skipped = np.maximum(begin - starts, 0)
        counts = np.minimum(ends[low:high], end) - np.maximum(starts, begin)
        run = np.repeat(np.arange(low, high), counts)
        within = np.arange(end - begin) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(skipped, counts)
        yield Trace(
            touches.address[run] + within,
            touches.write[run],
            touches.tensor[run].astype(np.int32),
            steps[touches.step[run]].astype(np.int32),
            tensor_names,
            op_names,
            UNIT_BYTES.get(graph.unit),
        )
        begin = end
