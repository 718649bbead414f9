"""Lower bounds that hold for every order, tiling, fusion and recomputation of a graph.

At a barrier (`liveness`) some elements must be alive: each is in some level, and levels have room for so many. What an element
costs between barriers depends on where it is at each of them. The least total over all ways of sharing the room out is a small
linear program; its dual prices are turned into a bound by exact arithmetic, so no solver's tolerance is trusted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pebbler.game.dataflow import NONE
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.capacity_lp import CapacityLP, ElementClass
from pebbler.solver.tiling.element_prices import CachePrices, ElementPrices, ExplicitPrices
from pebbler.solver.tiling.liveness import Elements, Liveness

__all__ = ["TiledBound", "tiled_bound"]

_MOST_BARRIERS = 24  # those for which a linear program is solved
_MOST_OPS = 20_000
_MOST_LEVELS = 5  # an explicit machine has a state for every set of levels


@dataclass(frozen=True)
class TiledBound:
    """A bound, and where it comes from."""

    energy: float
    proof: str


def tiled_bound(problem: Problem) -> TiledBound:
    """Return the best bound over all barriers; it holds for the graph and for every tiled or fused form of it.

    >>> from pebbler import machine, workloads
    >>> bound = tiled_bound(Problem.of(workloads.mlp(), machine("notes")))
    >>> bound.energy > 3e6
    True
    """
    graph = problem.graph
    if problem.machine.management == "recency" or not graph.ops or len(problem.machine.level) > _MOST_LEVELS:
        return TiledBound(0.0, "no energy is negative")
    elements = Elements(graph)
    prices: ElementPrices = (ExplicitPrices if problem.machine.management == "explicit" else CachePrices)(
        problem.machine
    )
    program = CapacityLP(problem.machine, steady=problem.steady)
    floor = [_temp_class(elements, None, prices, value) for value in range(elements.flow.values)]
    costs = math.fsum(elements.flow.op_cost.tolist())  # every op runs at least once, in however many pieces
    whole = program.whole_prices and costs == 0  # pieces of an op cost fractions of it
    best = TiledBound(
        _stated(program.least(floor), costs, whole),
        "every tiling: the touches that no element can avoid, at the best price",
    )
    for value in _candidates(elements):
        energy = _stated(program.least(list(_classes(problem, Liveness(elements, value), prices))), costs, whole)
        if energy > best.energy:
            name = graph.tensors[elements.flow.value_tensor[value]].name
            proof = f"every tiling: room for what must be alive when all of {name} has been made"
            best = TiledBound(energy, proof + (", and between steps" if problem.steady else ""))
    return best


def _candidates(elements: Elements) -> list[int]:
    """Return the barriers across which most must live, by size."""
    flow = elements.flow
    made = [value for value in range(flow.values) if flow.value_maker[value] != NONE]
    if flow.ops > _MOST_OPS:
        return []
    step = max(1, len(made) * flow.ops // 2_000_000)
    sized = []
    for value in made[::step]:
        liveness = Liveness(elements, value)
        if not liveness.after:
            continue
        alive = 0
        for other in range(flow.values):
            early, late, _ = liveness.readers(other)
            born = flow.value_maker[other] == NONE or int(flow.value_maker[other]) in liveness.before
            if late and born:
                alive += int(flow.value_size[other]) * (1 + (early > 0))
        sized.append((-alive, value))
    return [value for _, value in sorted(sized)[:_MOST_BARRIERS]]


def _classes(problem: Problem, liveness: Liveness, prices: ElementPrices) -> Iterator[ElementClass]:
    """Yield what every element must cost, by where it is at the barrier and at the end of the step."""
    elements, flow = liveness.elements, liveness.elements.flow
    covered: set[int] = set()
    for tensor in np.flatnonzero(flow.start_value != NONE).tolist():
        first, last = int(flow.start_value[tensor]), int(flow.final_value[tensor])
        update = int(flow.value_destroyer[first])
        if update != NONE and (update not in liveness.after or last not in flow.op_writes.row(update).tolist()):
            continue  # which of its values is alive at the barrier is not known
        covered |= {first, last}
        yield _lasting_class(problem, liveness, prices, tensor)
    for value in range(flow.values):
        if value not in covered:
            yield _temp_class(elements, liveness, prices, value)


def _stated(least: Fraction, costs: float, whole: bool) -> float:
    """Return a bound as a number no larger than it; the next whole number where every plan costs one."""
    return float(math.ceil(least)) if whole else math.nextafter(float(least) + costs, 0.0) if least or costs else 0.0


def _lasting_class(problem: Problem, liveness: Liveness, prices: ElementPrices, tensor: int) -> ElementClass:
    """Return what an element that exists at the start must cost; the barrier is before its update, if it has one."""
    elements, flow = liveness.elements, liveness.elements.flow
    first, last = int(flow.start_value[tensor]), int(flow.final_value[tensor])
    update = int(flow.value_destroyer[first])
    kind = problem.graph.tensors[tensor].kind
    early, late, other = liveness.readers(first)
    afterwards = len(elements.reader_groups(last)) if last != first else 0
    wraps = problem.steady and (kind == "param" or problem.machine.management != "explicit")
    start = None if wraps else prices.start_state(problem, tensor)
    table = prices.lasting(early, late, other, update != NONE, afterwards, start)
    takes_end = wraps or (prices.ends_priced and update != NONE)
    if not takes_end:
        table = table.min(axis=0, keepdims=True)
    alive = late > 0 or (update == NONE and kind == "param")
    if not alive:
        table = table.min(axis=1, keepdims=True)
    # The update must read what it overwrites, and nothing else may be written with it: else a write could stand for a read.
    alone = update != NONE and first in flow.op_reads.row(update).tolist() and elements.writes_alone(update)
    pair = wraps and alive and takes_end and alone and early > 0 and afterwards == 0
    size = int(min(flow.value_size[first], flow.value_size[last]))
    room = np.ones(table.shape[1], np.bool_) if alive else None
    return ElementClass(size, table, takes_end, room, pair, early + other, late + other)


def _temp_class(elements: Elements, liveness: Liveness | None, prices: ElementPrices, value: int) -> ElementClass:
    """Return what an element of any other value must cost; it may live across the barrier, or be recomputed after it."""
    flow, size = elements.flow, int(elements.flow.value_size[value])
    maker, groups = int(flow.value_maker[value]), len(elements.reader_groups(value))
    if value in elements.vanishing:
        return ElementClass(size, np.zeros((1, 1)))
    if maker == NONE or liveness is None or maker not in liveness.before:
        return ElementClass(size, np.array([[prices.passing(groups, made=maker != NONE)]]))
    early, late, other = liveness.readers(value)
    if late == 0:
        return ElementClass(size, np.array([[prices.passing(groups, made=True)]]))
    table = prices.across(early, late, other)
    takes = np.ones(table.shape[1], np.bool_)
    if flow.op_can_rerun[maker]:
        recomputed = prices.passing(early, made=True) + prices.passing(late, made=True) + other * prices.cheapest_read
        recomputed += sum(share for _, share in elements.recomputing(value)) * prices.cheapest_read
        table = np.concatenate([table, [[recomputed]]], axis=1)
        takes = np.append(takes, False)
    return ElementClass(size, table, False, takes)
