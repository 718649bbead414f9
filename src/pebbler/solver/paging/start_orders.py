"""Orders of the ops to start a search from, and graphs that have only one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph
from pebbler.solver.paging.kernels.liveness_order import LEAST_LIVE, RECENT, schedule_by_liveness

__all__ = ["start_orders"]

Ints = npt.NDArray[np.int64]


def start_orders(graph: Graph) -> list[Ints]:
    """Return legal orders to start from: program order and two by list scheduling, without repetitions.

    >>> from pebbler import workloads
    >>> len(start_orders(workloads.chain(3))), len(start_orders(workloads.note_mlp()))
    (1, 3)
    """
    flow = graph.dataflow
    orders = [np.arange(flow.ops)]
    for rule in (RECENT, LEAST_LIVE):
        order = schedule_by_liveness(
            rule, np.diff(flow.before.start), flow.after.start, flow.after.items,
            flow.op_reads.start, flow.op_reads.items, flow.op_writes.start, flow.op_writes.items,
            np.diff(flow.value_readers.start), flow.value_size, flow.value_must_survive | (flow.value_maker == NONE),
        )  # fmt: skip
        if not any(np.array_equal(order, known) for known in orders):
            orders.append(order)
    return orders
