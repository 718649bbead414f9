"""The best plan of a tiled graph among some orders of its ops."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from pebbler.errors import PebblerError
from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph
from pebbler.game.moves import Moves
from pebbler.game.plan import Plan
from pebbler.game.tile_meta import tile_numbers
from pebbler.game.transform import tile
from pebbler.referee.judgement import check
from pebbler.solver.paging.sequence_search import PagingSearch
from pebbler.solver.problem import Problem

__all__ = ["least_energy", "nested_orders", "tiled", "with_reruns"]


def tiled(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Return a graph cut into tiles of these sizes."""
    for axis, size in sizes.items():
        graph = tile(graph, axis, size)
    return graph


def least_energy(problem: Problem, form: Graph, orders: Iterable[Sequence[int]]) -> float:
    """Return the least energy of the legal plans of a tiled form in these orders; infinite where there is none."""
    best, own = float("inf"), problem.transformed(form)
    for order in orders:
        try:
            plan = _plan(problem, own, form, order)
        except PebblerError:
            continue  # an order that cannot be
        judgement = None if plan is None else check(plan)
        if judgement is not None and judgement.legal:
            best = min(best, judgement.energy)
    return best


def nested_orders(graph: Graph, rng: random.Random) -> list[list[int]]:
    """Return the ops in loops over their tiles, op by op and all together, blocks in loops and elements in blocks."""
    numbers, found = tile_numbers(graph), [list(range(len(graph.ops)))]
    every = sorted({axis for one in numbers for axis in one})
    place = {op.name.split("[")[0]: number for number, op in enumerate(reversed(graph.ops))}
    for axes in (rng.sample(every, len(every)) for _ in range(8)):
        block, apart = {axis: rng.choice([1, 2, 3, 99]) for axis in every}, rng.random() < 0.7

        def key(op: int, axes: list[str] = axes, block: dict = block, apart: bool = apart) -> tuple[int, ...]:
            at = [numbers[op].get(axis, 0) for axis in axes]
            coarse = [one // block[axis] for one, axis in zip(at, axes, strict=True)]
            own = -place[graph.ops[op].name.split("[")[0]]
            return (own, *coarse, *at[::-1]) if apart else (*coarse, own, *at[::-1])

        found.append(_legal(graph, key))
    return found


def _legal(graph: Graph, key: Callable[[int], tuple[int, ...]]) -> list[int]:
    flow = graph.dataflow
    waits, ready, order = np.diff(flow.before.start).tolist(), [], []
    ready = [op for op in range(flow.ops) if waits[op] == 0]
    while ready:
        op = min(ready, key=key)
        ready.remove(op)
        order.append(op)
        for other in flow.after.row(op).tolist():
            waits[other] -= 1
            ready += [other] if waits[other] == 0 else []
    return order


def with_reruns(graph: Graph, order: Sequence[int], rng: random.Random, share: float) -> list[int]:
    """Return an order in which some of what can be made again is, right before it is read."""
    flow, found = graph.dataflow, []
    for op in order:
        makers = {int(flow.value_maker[value]) for value in flow.op_reads.row(op).tolist()} - {NONE}
        found += [maker for maker in sorted(makers) if flow.op_can_rerun[maker] and rng.random() < share]
        found.append(op)
    return found


def _plan(problem: Problem, own: Problem, form: Graph, order: Sequence[int]) -> Plan | None:
    machine = problem.machine
    if machine.management == "lru":
        moves = Moves.computes(form, machine, list(order))
        return Plan(form, machine, moves, steady=problem.steady, source=problem.graph)
    paging = PagingSearch(own, lambda: 1.0)
    paged = paging.page(np.array(order, np.int64))
    return None if paged is None else paging.plan(paging.improve(paged, 1))
