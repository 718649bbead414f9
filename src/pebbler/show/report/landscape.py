"""The rank of a plan among other orders of its graph, and its energy with more or less fast memory."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from pebbler.game.energy_scale import EnergyScale
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.game.orders import count_orders, iterate_orders
from pebbler.game.plan import Plan
from pebbler.game.ready_list import ReadyList
from pebbler.referee.judgement import check
from pebbler.referee.kernels.cache_price import price
from pebbler.referee.pricing import cache_game
from pebbler.show.report.capacity_sweep import CapacityCurve, capacity_curves
from pebbler.solver.paging.demand_paging import demand_plan
from pebbler.solver.problem import Problem

__all__ = ["Landscape", "Mark", "survey"]

BINS = 60
MOST_STEPS = {True: 150_000, False: 12_000}  # ops run over all orders: compiled for caches, a Python runtime otherwise
MOST_SAMPLED = {True: 2_000, False: 200}


@dataclass(frozen=True)
class Mark:
    """A named order on the landscape."""

    name: str
    energy: float
    legal: bool


@dataclass(frozen=True)
class Landscape:
    """Energies of all orders of the first plan's graph, or of a sample, in bins; and energy against memory."""

    rule: str
    orders: str | None  # how many legal ones there are, in words; None when that is too much to count
    complete: bool
    seen: int
    misfits: int  # orders that do not fit into the memory by this rule
    low: float
    high: float
    counts: list[int]
    marks: list[Mark]
    curves: list[CapacityCurve]


def survey(
    plans: Sequence[Plan],
    names: Sequence[str],
    *,
    references: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
) -> Landscape | None:
    """Return the landscape of the first plan's graph on its machine, with every plan on the same two marked; None without ops.

    `references` are orders of op names that are marked as well, on a cache and where the graph has exactly these ops.

    >>> from pebbler import machine, workloads
    >>> found = survey([Plan.in_order(workloads.note_mlp(), machine("notes-recency"))], ["mine"])
    >>> found.orders, found.complete, found.low
    ('7,290', True, 10764315.0)
    """
    graph, steady = plans[0].graph, bool(plans[0].steady)
    machine = plans[0].machine.in_unit(graph.unit)
    ops = len(graph.ops)
    if ops == 0:
        return None
    cached = machine.management != "explicit"
    pricer, rule = _pricer(plans[0], machine)
    total = count_orders(graph)
    complete = total is not None and (total == 1 or (ops <= 200 and total * ops <= MOST_STEPS[cached]))
    sample = max(10, min(MOST_SAMPLED[cached], MOST_STEPS[cached] // ops))
    # A single order needs no listing, which would recurse as deep as the graph is long.
    orders = (
        iterate_orders(graph)
        if complete and total != 1
        else islice(_random_orders(graph, seed), 1 if total == 1 else sample)
    )
    energies: list[float] = []
    seen = 0
    for order in orders:
        seen += 1
        energy = pricer(np.asarray(order, np.int64))
        if energy is not None:
            energies.append(energy)
    low, high = min(energies, default=0.0), max(energies, default=0.0)
    if not EnergyScale.of(graph, machine).is_less(low, high):
        energies, high = [low] * len(energies), low
    same = [
        (plan, name)
        for plan, name in zip(plans, names, strict=True)
        if plan.machine == plans[0].machine and bool(plan.steady) == steady
    ]
    return Landscape(
        rule=rule,
        orders=None if total is None else _in_words(total),
        complete=complete,
        seen=seen,
        misfits=seen - len(energies),
        low=low,
        high=high,
        counts=_binned(energies),
        marks=[*_marks(same, graph, machine), *_reference_marks(references or {}, graph, machine, steady)],
        curves=capacity_curves(same),
    )


def _binned(energies: Sequence[float]) -> list[int]:
    """Return a histogram of energies with bins of equal width from the least to the most; one bin if all are equal.

    numpy's histogram refuses energies so large that they differ in their last digits only.

    >>> _binned([2.0**60, 2.0**60 + 256]), _binned([1.0, 1.0])
    ([1, 0, 0, 0, 0, 0, 0, 1], [2])
    """
    low, high = min(energies, default=0.0), max(energies, default=0.0)
    if not high > low:
        return [len(energies)]
    bins = int(min(BINS, max(8, 1.5 * len(energies) ** 0.5)))
    place = (np.asarray(energies) - low) / (high - low) * bins
    counts: list[int] = np.bincount(np.minimum(place.astype(np.int64), bins - 1), minlength=bins).tolist()
    return counts


def _in_words(count: int) -> str:
    """Return a count as people read it; some have more digits than a float can hold."""
    return f"{count:,}" if count < 10**15 else f"about 10^{int((count.bit_length() - 1) * math.log10(2))}"


def _pricer(plan: Plan, machine: Machine) -> tuple[Callable[[npt.NDArray[np.int64]], float | None], str]:
    """Return the function that prices an order, and a description of the rule."""
    steady = bool(plan.steady)
    if machine.management != "explicit":
        game = cache_game(plan.graph, machine, steady=steady)
        rule = "as hardware LRU caches" if machine.management == "lru" else "by recency rank, note 000's rule"
        return lambda order: price(game, order), f"priced {rule}"
    problem = Problem.of(plan.graph, machine, steady=steady, start=plan.start)

    def run(order: npt.NDArray[np.int64]) -> float | None:
        plan = demand_plan(problem, order.tolist(), "farthest")
        return None if plan is None else check(plan).energy

    return run, "run without recomputation, evicting what is needed last (Belady)"


def _random_orders(graph: Graph, seed: int) -> Iterator[list[int]]:
    """Yield random legal orders: at every step any op that is ready, all alike. Not uniform over orders."""
    bits = random.Random(seed).getrandbits
    while True:
        ready = ReadyList.of(graph.dataflow)
        choices, order = ready.first, list[int]()
        while choices:
            count = len(choices)
            pick = bits(count.bit_length())
            while (
                pick >= count
            ):  # `randrange`, without what it does for other arguments: half of the time of a page went there
                pick = bits(count.bit_length())
            choices[pick], choices[-1] = choices[-1], choices[pick]
            order.append(choices.pop())
            choices += ready.run(order[-1])
        yield order


def _marks(same: Sequence[tuple[Plan, str]], graph: Graph, machine: Machine) -> list[Mark]:
    marks = []
    for plan, label in same:
        judgement = check(plan)
        name = label if plan.graph == graph else f"{label} (another graph)"
        if not judgement.legal and machine.management != "explicit":
            judgement = check(plan, ignore_war=True)
            if judgement.legal:
                marks.append(Mark(name, judgement.energy, False))
        elif judgement.legal:
            marks.append(Mark(name, judgement.energy, True))
    return marks


def _reference_marks(
    references: Mapping[str, Sequence[str]], graph: Graph, machine: Machine, steady: bool
) -> Iterator[Mark]:
    ops = sorted(op.name for op in graph.ops)
    for name, order in references.items() if machine.management != "explicit" else ():
        if sorted(order) == ops:
            plan = Plan.in_order(graph, machine, order, steady=steady)
            yield Mark(name, check(plan, ignore_war=True).energy, check(plan).legal)
