"""Energy of plans against the size of a memory level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pebbler.errors import PebblerError
from pebbler.game.plan import Plan
from pebbler.referee import pricing
from pebbler.referee.judgement import check
from pebbler.referee.kernels.cache_price import price
from pebbler.solver.chain import solve_chain_problem
from pebbler.solver.paging.demand_paging import demand_plan
from pebbler.solver.problem import Problem, Search

__all__ = ["CapacityCurve", "capacity_curves"]

SOLVED = "solved anew at each size"
# Sizes tried per level, and the ops that all of them together may run.
POINTS, MOST_STEPS = {True: 25, False: 16}, {True: 60_000, False: 30_000}


@dataclass(frozen=True)
class CapacityCurve:
    """One plan's energy for several capacities of one level; the plan's own is where `own` says."""

    plan: str
    level: int
    rule: str
    capacity: list[int]
    energy: list[float]
    own: int


def capacity_curves(plans: Sequence[tuple[Plan, str]]) -> list[CapacityCurve]:
    """Return the curves of named plans on one machine: caches re-price the same moves, explicit memories re-plan the same order.

    >>> from pebbler import machine, workloads
    >>> capacity_curves([(Plan.in_order(workloads.note_mlp(), machine("notes-recency")), "mine")])[0].capacity[:3]
    [1, 2, 3]
    """
    found: list[CapacityCurve] = []
    for plan, name in plans:
        if not check(plan).legal:
            continue
        cached = plan.machine.management != "explicit"
        bounded = [i for i, level in enumerate(plan.machine.level) if level.capacity is not None]
        for level in bounded if cached else bounded[:1]:
            budget = MOST_STEPS[cached] // max(1, len(plan.moves) * len(plans))
            points = min(POINTS[cached], budget)
            if points >= 4 and not cached and not any(curve.rule == SOLVED for curve in found):
                found += _solved_curve(plan, name, points)
            if points >= 4:
                found.append(_cache_curve(plan, name, level, points) if cached else _explicit_curve(plan, name, points))
    kept: list[CapacityCurve] = []
    for curve in found:
        same = [
            one for one in kept if (one.level, one.capacity, one.energy) == (curve.level, curve.capacity, curve.energy)
        ]
        if curve.capacity and not same:
            kept.append(curve)
    return kept


def _solved_curve(plan: Plan, name: str, points: int) -> list[CapacityCurve]:
    """Return the optimum at every capacity where that is quick: on chains, which have a solver of their own."""
    capacities, energies = [], []
    for room in _ladder(plan, 0, points):
        machine = plan.machine.in_unit(plan.graph.unit).resized(0, room)
        problem = Problem.of(plan.graph, machine, steady=plan.steady, start=plan.start)
        search = Search(problem)
        try:
            if not solve_chain_problem(search):
                continue  # no chain, or too little memory to be played as one
        except PebblerError:
            continue  # too little memory for any plan
        capacities.append(room)
        energies.append(search.energy)
    return [
        CapacityCurve(
            name, 0, SOLVED, capacities, energies, plan.machine.in_unit(plan.graph.unit).level[0].capacity or 0
        )
    ]


def _cache_curve(plan: Plan, name: str, level: int, points: int) -> CapacityCurve:
    capacities = _ladder(plan, level, points)
    machine = plan.machine.in_unit(plan.graph.unit)
    game = pricing.cache_game(plan.graph, machine, steady=bool(plan.steady))
    order = plan.moves.order
    energies = []
    for room in capacities:
        sizes = pricing.capacities(machine.resized(level, room))
        changed: dict[str, Any] = {"reach": np.cumsum(sizes[:-1]) // machine.line, "capacity": sizes}
        resized = game._replace(**{name: changed[name] for name in changed if name in game._fields})
        energies.append(price(resized, order))
    own = machine.level[level].capacity or 0
    return CapacityCurve(name, level, "same order, priced anew", capacities, energies, own)


def _explicit_curve(plan: Plan, name: str, points: int) -> CapacityCurve:
    order = list(dict.fromkeys(plan.moves.order.tolist()))
    capacities, energies = [], []
    for room in _ladder(plan, 0, points):
        machine = plan.machine.in_unit(plan.graph.unit).resized(0, room)
        problem = Problem.of(plan.graph, machine, steady=plan.steady, start={} if plan.steady else plan.start)
        loaded = demand_plan(problem, order, "farthest")
        judgement = None if loaded is None else check(loaded)
        if judgement is not None and judgement.legal:
            capacities.append(room)
            energies.append(judgement.energy)
    own = plan.machine.in_unit(plan.graph.unit).level[0].capacity or 0
    return CapacityCurve(name, 0, "same order, evicting what is needed last", capacities, energies, own)


def _ladder(plan: Plan, level: int, points: int) -> list[int]:
    """Return capacities from 1 to what holds everything, the machine's own among them."""
    own = plan.machine.in_unit(plan.graph.unit).level[level].capacity or 1
    most = max(int(plan.graph.dataflow.value_size.sum()), own, 2)
    ladder = np.geomspace(1, most, points - 1).round().astype(np.int64).tolist()
    return sorted({*ladder, own})
