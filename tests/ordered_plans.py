"""The best plan of a tiled graph among some orders of its ops."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pebbler.errors import PebblerError
from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph
from pebbler.game.moves import Moves
from pebbler.game.plan import Plan
from pebbler.game.ready_list import ReadyList, schedule_by_key
from pebbler.game.tile_meta import tile_numbers
from pebbler.game.transform import tile
from pebbler.referee.judgement import check
from pebbler.solver.paging.sequence_search import PagingSearch
from pebbler.solver.problem import Problem

__all__ = ["least_energy", "nested_order", "nested_orders", "tiled", "with_reruns"]


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
    """Return program order, and the ops in eight nests of loops over their tiles."""
    return [list(range(len(graph.ops))), *(nested_order(graph, rng) for _ in range(8))]


def nested_order(graph: Graph, rng: random.Random) -> list[int]:
    """Return the ops in loops over their tiles, op by op or all together, blocks in loops and elements in blocks."""
    numbers = tile_numbers(graph)
    every = sorted({axis for one in numbers for axis in one})
    names = [op.name.split("[")[0] for op in graph.ops]
    place = {name: number for number, name in enumerate(reversed(names))}
    axes = rng.sample(every, len(every))
    block, apart = [rng.choice([1, 2, 3, 99]) for _ in every], rng.random() < 0.7
    keys: list[tuple[int, ...]] = []
    for name, one in zip(names, numbers, strict=True):
        at = [one.get(axis, 0) for axis in axes]
        coarse = [number // by for number, by in zip(at, block, strict=True)]
        keys.append((-place[name], *coarse, *at[::-1]) if apart else (*coarse, -place[name], *at[::-1]))
    return schedule_by_key(ReadyList.of(graph.dataflow), keys.__getitem__)


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
