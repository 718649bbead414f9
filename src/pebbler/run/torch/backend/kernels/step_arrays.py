"""A joint graph of forward and backward as flat arrays, for kernels that simulate it."""

from __future__ import annotations

from typing import NamedTuple

from pebbler.arrays import Array, Bools, Ints, Shorts

__all__ = ["CALL", "GIVEN", "INLINED", "STORED", "VIEW", "StepArrays"]

# How Inductor computes a node.
GIVEN = 0  # an input or a constant
VIEW = 1  # no memory of its own
INLINED = 2  # computed inside the kernels that read it, unless they are several
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
    cost: Array  # of a call
    drawing: Array  # of a fused node's random numbers
    tangent: Bools
    fixed: Bools
    forward_end: Bools
    backward_end: Bools
    byte_cost: float  # of reading or writing a byte
    launch_cost: float  # of a kernel
