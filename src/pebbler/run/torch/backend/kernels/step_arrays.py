"""A joint graph of forward and backward as flat arrays, for kernels that simulate it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array, Bools, Ints, Shorts
from pebbler.compiled import kernel

__all__ = ["CALL", "GIVEN", "INLINED", "STORED", "VIEW", "StepArrays", "depths"]

# How Inductor computes a node.
GIVEN = 0  # an input or a constant
VIEW = 1  # no memory of its own
INLINED = 2  # computed inside the kernels that read it, unless they are too many or it is large
STORED = 3  # a reduction or a scatter: what it reads may be computed inside it, its own result is written
CALL = 4  # a kernel of a library or a template: its operands and its results are in memory


class StepArrays(NamedTuple):
    """A joint graph: what nodes read and who reads them (`first` into flat lists), memory, costs, and what may run when."""

    first_input: Ints
    inputs: Ints
    first_user: Ints
    users: Ints
    kind: Shorts
    storage: Ints  # the node whose memory holds it
    size: Ints
    extent: Ints  # bytes that whoever reads a node reads, at most; of views too
    reach: Ints  # bytes that a node reads of each operand, at most
    cost: Array  # of a call
    apart: Bools  # whether whatever reads it must be another kernel
    tangent: Bools
    fixed: Bools
    operations: Ints  # in its expression
    forward_end: Bools
    backward_end: Bools
    byte_cost: float  # of reading or writing a byte
    launch_cost: float  # of a kernel


@kernel
def depths(step: StepArrays, order: Ints, place: Ints, counted: Bools) -> Ints:
    """Return for every node how many that count are at most on a way to it, itself left out, among those that have a place."""
    depth = np.zeros(len(step.kind), np.int64)
    for node in order:
        for k in range(step.first_input[node], step.first_input[node + 1]):
            source = step.inputs[k]
            if place[source] >= 0:
                depth[node] = max(depth[node], depth[source] + counted[source])
    return depth
