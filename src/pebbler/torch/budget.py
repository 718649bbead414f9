"""One phase of a step within a capacity: the recomputation game, solved and judged like any other."""

from __future__ import annotations

import time
from dataclasses import replace

from pebbler.graph import Graph
from pebbler.machine import Level, Machine
from pebbler.plan import Plan
from pebbler.referee import check
from pebbler.solve import finish
from pebbler.solve.problem import Impossible, Problem, Search
from pebbler.solve.recompute import solve_recompute
from pebbler.solve.recompute.capacity import LeastCapacity, least_capacity
from pebbler.solve.recompute.game import Game
from pebbler.solve.recompute.greedy import fit
from pebbler.solve.recompute.search import Recipe, improve
from pebbler.torch.sizes import shown_bytes
from pebbler.torch.torch_plan import MEMORY

__all__ = ["least_units", "solve_phase"]

_MOST = 2**50  # bytes: more than any device has
_LEAST_SECONDS = 5.0  # spent on what would do when a budget does not


def least_units(graph: Graph, seconds: float) -> tuple[int, int]:
    """Return a capacity below which no plan exists, and the least one for which a plan was found."""
    least = _least(Problem.of(graph, _machine(_MOST)), seconds)
    return least.lower, least.upper


def _least(problem: Problem, seconds: float) -> LeastCapacity:
    """Return the least capacity found by halving: on graphs of hundreds of ops that gets further than trying the bound first."""
    ends = time.monotonic() + seconds
    least = least_capacity(problem, 0.0)
    endless = Game.of(problem)
    best, upper, failed = endless.program, least.upper, least.lower - 1
    while failed + max(1, upper // 200) < upper and time.monotonic() < ends:
        middle = (failed + upper) // 2
        game = Game.of(problem, middle)
        for start in (best, endless.program):
            found = fit(game, start)
            for number in range(3):
                if game.measure(found).fits:
                    break
                found = improve(game, found, Recipe.of(number, problem.seed))
            if game.measure(found).fits:
                best, upper = found, int(endless.measure(found).memory.max())
                break
        else:
            failed = middle
    if upper < least.upper:
        return replace(least, upper=upper, plan=problem.plan(endless.moves(best)))
    return least


class _Enough(Exception):
    """Ends a search as soon as it has a plan."""


def _stop(search: Search) -> None:
    if search.best is not None:
        raise _Enough


def solve_phase(graph: Graph, capacity: int | None, spare: int, seconds: float, seed: int, *, hasty: bool) -> Plan:
    """Return the cheapest plan found of a phase; with `hasty`, the first. `spare` is what messages add to a capacity."""
    endless = Problem.of(graph, _machine(_MOST), seed=seed)
    if capacity is None:
        game = Game.of(endless)
        capacity = int(game.measure(game.program).memory.max()) if graph.ops else 1
    problem = Problem.of(graph, _machine(capacity), seed=seed)
    search = Search(problem, seconds, _stop if hasty else None)
    why = "none was found in the time given"
    try:
        solve_recompute(search)
    except _Enough:
        pass
    except Impossible as error:
        why = str(error)
    if search.best is not None:
        return finish(search)
    least = _least(endless, max(_LEAST_SECONDS, seconds))
    if least.upper <= capacity:
        return _judged(replace(least.plan, machine=problem.machine))
    raise Impossible(
        f"no plan within {shown_bytes(capacity + spare)}: {why}; the least budget that is known to work is {least.upper + spare:,} "
        f"bytes ({shown_bytes(least.upper + spare)}), and less than {least.lower + spare:,} cannot: {least.reason}"
    )


def _judged(plan: Plan) -> Plan:
    judgement = check(plan)
    return replace(plan, energy=judgement.energy, status="heuristic", bound=0)


def _machine(capacity: int) -> Machine:
    return Machine("device", "byte", (Level(MEMORY, 0, 0, capacity=capacity),), operands="fastest")
