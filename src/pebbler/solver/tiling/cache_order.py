"""Orders on caches (`lru` and `recency`): all orders of a small graph, and what each op costs at least."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.referee import pricing
from pebbler.referee.kernels.cache_price import price
from pebbler.solver.kernels.state_table import StatesMet
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.kernels.cache_exact import DONE, all_orders
from pebbler.solver.tiling.kernels.order_walk import begin_walk
from pebbler.solver.tiling.list_order import nearest_first
from pebbler.solver.tiling.node_graph import NodeGraph

__all__ = ["BestOrder", "best_order", "next_share", "op_floors"]

_MOST_BITS = 21  # of the table of states met: 48 MiB
_FIRST_SHARE = 2_500  # prefixes of the first attempt; each further one gets four times as many
_AGAIN = 1.5  # times as many as before, for which an attempt is worth while


@dataclass(frozen=True)
class BestOrder:
    """The cheapest order found (of single runs, or of any), the prefixes visited, and whether it is proven to be the cheapest."""

    order: Ints
    energy: float
    proven: bool
    prefixes: int


def best_order(
    problem: Problem,
    *,
    enough: float = 0.0,
    limit: int = 2_000_000,
    seconds_left: Callable[[], float] = lambda: float("inf"),
) -> BestOrder:
    """Return the cheapest order that runs every op once, searching all of them as far as `limit` prefixes or the time allow.

    An order that costs no more than `enough`, a bound, ends the search.

    >>> from pebbler import machine, workloads
    >>> best = best_order(Problem.of(workloads.note_mlp(), machine("notes-recency")))
    >>> best.energy, best.proven
    (10764315.0, True)
    """
    graph, machine, flow = problem.graph, problem.machine, problem.graph.dataflow
    game = pricing.cache_game(graph, machine, steady=problem.steady)
    nodes = NodeGraph.of(graph)
    assert nodes is not None
    candidates = [np.arange(flow.ops, dtype=np.int64)]
    candidates += [nodes.order(nearest_first(nodes, machine, by_price=by_price)) for by_price in (False, True)]
    energy, pick = min((float(price(game, order)), i) for i, order in enumerate(candidates))
    best = candidates[pick].copy()
    floors, share, reason, prefixes = op_floors(graph, machine), _FIRST_SHARE, ~DONE, 0
    # The search starts anew with a larger share, so that the time is looked at now and then; a better order prunes more.
    while reason != DONE and energy > enough and 0 < share <= limit and seconds_left() > 0:
        began = time.monotonic()
        walk = begin_walk(np.diff(flow.before.start), flow.after.start, flow.after.items, floors)
        met = StatesMet.room(min(_MOST_BITS, (4 * share).bit_length()))
        energy, reason, count = all_orders(game, walk, best, energy, problem.scale.rounding, share, met)
        prefixes += count
        share = next_share(share, (time.monotonic() - began) / count, seconds_left())
    return BestOrder(best, float(energy), reason == DONE or energy <= enough, prefixes)


def next_share(share: int, seconds: float, left: float) -> int:
    """Return the number of prefixes of the next attempt, of which each takes so many seconds; 0 where hardly more than now fit.

    It is four times as many, or all that there is time for where that leaves none for a third attempt.

    >>> next_share(1_000, 0.001, 100.0), next_share(1_000, 0.001, 5.0), next_share(1_000, 0.001, 1.2)
    (4000, 5000, 0)
    """
    fit = left / seconds if seconds > 0 else math.inf
    if fit < _AGAIN * share:
        return 0
    return 4 * share if fit >= 4 * (1 + _AGAIN) * share else int(fit)


def op_floors(graph: Graph, machine: Machine) -> Floats:
    """Return a price that each op cannot fall below on a cache, whatever runs before it.

    A value is always touched whole, so each of its lines has at least its own number of lines above it, itself included.

    >>> from pebbler import machine, workloads
    >>> op_floors(workloads.note_mlp(), machine("notes-recency"))[:2].tolist()  # W1 alone is larger than L1
    [2040100.0, 40000.0]
    """
    flow = graph.dataflow
    sizes = flow.tensor_size
    read, write = pricing.prices(machine, "read"), pricing.prices(machine, "write")
    capacity = pricing.capacities(machine)
    ranked = machine.management == "recency"
    line = 1 if ranked else machine.line  # ranks are of whole tensors, in units
    reach = np.cumsum(capacity[:-1]) // line
    depth = -(-sizes // line)
    if not ranked:
        # Tensors of one storage may differ in size; then a touch of the smallest is all that is known.
        least = np.full(len(sizes), pricing.UNBOUNDED, np.int64)
        np.minimum.at(least, flow.storage, depth)
        depth = least[flow.storage]
    # Deeper levels cost more as a rule, but not on every machine.
    cheapest = np.minimum.accumulate(read[::-1])[::-1]
    read_price = cheapest[np.searchsorted(reach, depth, "left")]
    single = np.array(
        [next((k for k, room in enumerate(capacity) if size <= room), len(capacity) - 1) for size in sizes], np.int64
    )
    write_price = write[single] if ranked else np.full(len(sizes), write[0])
    floors = flow.op_cost.copy()
    for op in range(flow.ops):
        reads, writes = flow.value_tensor[flow.op_reads.row(op)], flow.value_tensor[flow.op_writes.row(op)]
        seen: set[int] = set()
        for tensor in reads.tolist():
            # A value that is read twice is found on top the second time.
            on_top = tensor in seen and not ranked
            seen.add(tensor)
            floors[op] += sizes[tensor] * (read.min() if on_top else read_price[tensor])
        floors[op] += (sizes[writes] * write_price[writes]).sum()
    return floors
