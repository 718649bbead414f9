"""Orders from the structure of a graph."""
from __future__ import annotations

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.dataflow import NONE, Dataflow, Rows
from pebbler.solver.structure.kernels.bisection import Cutting, Net, bisect


def make_net(flow: Dataflow) -> Net:
    values = max(flow.values, 1)
    op = np.repeat(np.arange(flow.ops), np.diff(flow.op_reads.start))
    made = np.repeat(np.arange(flow.ops), np.diff(flow.op_writes.start))
    pairs = np.unique(np.concatenate([op * values + flow.op_reads.items, made * values + flow.op_writes.items]))
    touched = Rows.flat(np.bincount(pairs // values, minlength=flow.ops), pairs % values)
    ops = touched.transposed(flow.values)
    return Net(
        touched.start, touched.items, ops.start, ops.items, flow.before.start, flow.before.items, flow.after.start, flow.after.items,
        flow.value_size.astype(np.float64), flow.value_must_survive, flow.value_maker == NONE,
    )


def bisected(flow: Dataflow, order: Ints, least=0.3,most=0.7,share=1.0, blend=0.3, room=0.0,wide=0.0) -> Ints:
    return bisect(make_net(flow), order, 0, flow.ops, Cutting(least,most,share, blend,room,wide))
