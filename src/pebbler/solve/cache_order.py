"""Orders under `lru` and `recency`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pebbler import pricing
from pebbler.graph import Graph
from pebbler.hazards import NONE
from pebbler.kernels.cache_order import Touching
from pebbler.machine import Machine

__all__ = ["touching_of"]

Ints = npt.NDArray[np.int64]


def touching_of(graph: Graph, machine: Machine, *, steady: bool) -> Touching:
    """Return the graph as LRU caches see it; the machine is in the graph's unit.

    >>> from pebbler import machine, workloads
    >>> from pebbler.kernels.cache_order import lru_price
    >>> step = touching_of(workloads.mlp(), machine("notes"), steady=True)
    >>> lru_price(step, np.arange(15))
    12743390.0
    """
    flow, line = graph.dataflow, machine.line
    sizes = np.array([tensor.size for tensor in graph.tensors], np.int64)
    room = -(-sizes // line)
    start, storage, tensor, write, fresh = [0], [], [], [], []
    owner, root = flow.value_tensor.tolist(), flow.storage.tolist()
    for reads, writes in zip(flow.op_reads, flow.op_writes, strict=True):
        tensors = [owner[value] for value in (*reads.tolist(), *writes.tolist())]
        roots = [root[one] for one in tensors]
        tensor += tensors
        storage += roots
        write += [False] * len(reads) + [True] * len(writes)
        read_roots = set(roots[: len(reads)])
        fresh += [False] * len(reads) + [one not in read_roots for one in roots[len(reads) :]]
        start.append(len(storage))
    home = np.full(len(sizes), NONE, np.int64)
    lasting = np.zeros(len(sizes), np.bool_)
    if machine.allocator == "own":
        fixed = np.unique(flow.storage)
        lasting[:] = True
    else:
        fixed = np.unique(flow.storage[np.flatnonzero(flow.start_value != NONE)])
        lasting[flow.storage[[i for i, one in enumerate(graph.tensors) if one.kind != "temp"]]] = True
    home[fixed] = np.cumsum(room[fixed]) - room[fixed]
    tensors_touched = np.array(tensor, np.int64)
    capacities = pricing.capacities(machine)
    return Touching(
        start=np.array(start, np.int64),
        storage=np.array(storage, np.int64),
        tensor=tensors_touched,
        lines=room[tensors_touched],
        units=sizes[tensors_touched],
        write=np.array(write, np.bool_),
        fresh=np.array(fresh, np.bool_),
        room=room,
        home=home,
        lasting=lasting,
        top=int(room[fixed].sum()),
        cost=flow.op_cost,
        reach=np.cumsum(capacities[:-1]) // line,
        read=pricing.prices(machine, "read"),
        store=pricing.prices(machine, "write"),
        line=line,
        steady=steady,
        recency=machine.management == "recency",
        read_start=flow.op_reads.start,
        read_tensor=flow.value_tensor[flow.op_reads.items],
        write_start=flow.op_writes.start,
        write_tensor=flow.value_tensor[flow.op_writes.items],
        size=sizes,
        initial=flow.start_value != NONE,
        capacity=capacities,
    )
