"""A bound from all moments of a plan together: at none of them can all that is alive be in the fastest level.

A value is wanted in the fastest level by several ops, one after the other. Between two of them it stays there or comes back. Which
do what is an integer program with the room at each moment as a constraint; `docs/exact.md` proves that no plan costs less.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction

from ortools.sat.python import cp_model

from pebbler.referee.certificates import NotProven
from pebbler.referee.programs.fact_program import FactProgram, Key
from pebbler.referee.programs.stay_moments import StayMoments, TightMoment
from pebbler.referee.programs.stay_program import StayFacts
from pebbler.solver.bounds import Bound, bounds
from pebbler.solver.bounds.bound import certified
from pebbler.solver.bounds.program_search import ProgramSearch
from pebbler.solver.bounds.sampled_moments import large_bounds
from pebbler.solver.cp_sat import SearchedBound, new_solver
from pebbler.solver.problem import Problem

__all__ = ["all_moments", "bounds_in_stages", "tight_moments"]

_LONGEST = 1e6  # seconds, where there is no limit
_LEAVES = 60  # of a tree, whatever the time
_MOST_TERMS = 300_000  # values alive, added up over moments: what a program may have


def bounds_in_stages(
    problem: Problem, seconds_left: Callable[[], float], energy: Callable[[], float] = lambda: math.inf
) -> Iterator[list[Bound]]:
    """Yield bounds on every legal plan of an explicit machine: those known at once first, then those that take longer.

    `energy` is what a plan costs that is known: no bound need be higher.
    """
    yield bounds(problem, cuts=0)
    yield bounds(problem)
    yield large_bounds(problem, lambda: 0.3 * seconds_left())
    yield all_moments(problem, 0.3 * seconds_left(), energy())


def all_moments(problem: Problem, seconds: float, enough: float = math.inf) -> list[Bound]:
    """Return bounds of an explicit machine whose ops take their operands from the fastest level, the best first; none of others.

    Some have a certificate, and are no better than what is searched.

    >>> from pebbler import Graph, Level, Machine
    >>> graph = Graph("sgd", "pebble")
    >>> for name in ("A", "B", "C"):
    ...     _ = graph.tensor(name, 2, "param").op(f"update_{name}", [name], [name], cost=1)
    >>> two = Machine("two", "pebble", (Level("fast", 0, 0, capacity=4), Level("slow", 10, 10)))
    >>> [bound.value for bound in all_moments(Problem.of(graph, two, steady=True), 1.0)]  # two of three come and go in every step
    [83.0, 83.0]
    """
    if not StayFacts.known_of(problem):
        return []
    seconds = min(seconds, _LONGEST)
    ends = time.monotonic() + seconds
    # The larger program comes second: less of it may be proven in the same time.
    found = list(_proven(problem, StayFacts.of(problem, remade=False), ends - 0.5 * seconds, enough))
    facts = StayFacts.of(problem, remade=True)
    if facts.remade.updates and time.monotonic() < ends and not any(one.value >= enough for one in found):
        found += _proven(problem, facts, ends, enough)
    return sorted(found, key=lambda one: -one.value)


def _proven(problem: Problem, facts: StayFacts, ends: float, enough: float) -> Iterator[Bound]:
    """Yield what is proven of one program by the time that is given, with a certificate, and what is searched beyond that."""
    began = time.monotonic()
    seconds = ends - began
    moments = tight_moments(facts.moments, began + 0.3 * seconds)
    program = facts.program(moments.items())
    proof = f"compulsory traffic, and what is alive at any moment cannot all be in {problem.machine.names[0]}"
    search = ProgramSearch(program, Fraction(problem.scale.quantum), began + 0.5 * seconds)
    searched = searched_bound(program, max(0.0, began + 0.75 * seconds - time.monotonic()))
    yield Bound(problem.scale.lowered(searched.value), searched.proof(proof))
    search.run(ends - 0.15 * seconds, min(enough, searched.value), _LEAVES)  # the rest is for adding up again
    rows, splits = search.used()
    needed = {name: moment for name, moment in moments.items() if any(name == row[1 : 1 + len(name)] for row in rows)}
    fewer = facts.program(needed.items())
    if not (rows <= fewer.rows.keys() and splits <= fewer.numbers.keys()):
        needed = moments
    listed, remade = [list(name) for name in needed], bool(facts.remade.updates)
    with suppress(NotProven):  # if there is no time to add it up
        yield certified(problem, proof, "stays", ends, remade=remade, moments=listed, **search.certificate())


def tight_moments(moments: StayMoments, ends: float = math.inf) -> dict[Key, TightMoment]:
    """Return the moments at which not everything that is alive has room, by name.

    Each is a fact by itself: fewer of them, because they are many or the monotonic clock is past `ends`, are a weaker program.
    """
    listed: dict[TightMoment, Key] = {}
    terms = 0
    for name in moments.names():
        moment = moments.named(name)
        if moment is not None and moments.is_tight(moment) and moment not in listed:
            listed[moment] = name
            terms += len(moment.alive) + 3 * len(moment.remakings)
        if terms > _MOST_TERMS or time.monotonic() >= ends:
            break
    return {name: moment for moment, name in listed.items()}


# Lower bounds of programs in 0-1 variables by CP-SAT. The search leaves no certificate --------------------------------


EFFORT = 5.0  # of CP-SAT, in its deterministic seconds
_SCALE = 1 << 40


def searched_bound(program: FactProgram, seconds: float, effort: float = EFFORT) -> SearchedBound:
    """Return the best bound that CP-SAT finds in some time; costs are rounded down where they are not whole.

    >>> program = FactProgram(10)
    >>> x = [program.variable((name,), 2) for name in "abc"]
    >>> for i in range(3):
    ...     program.row(("pair", i), [(x[i], 1), (x[i - 1], 1)], 1)
    >>> searched_bound(program, 1.0).value
    14.0
    """
    total = sum(program.costs, Fraction())
    if not program.rows or total <= 0:
        return SearchedBound(float(program.constant))
    whole = all(cost.denominator == 1 for cost in program.costs) and total < _SCALE
    scale = Fraction(1) if whole else _SCALE / Fraction(total)
    model = cp_model.CpModel()
    variables = [model.new_bool_var("") for _ in program.costs]
    for row in program.rows.values():
        model.add(sum(factor * variables[v] for v, factor in row.terms) >= row.least)
    model.minimize(sum(math.floor(cost * scale) * one for cost, one in zip(program.costs, variables, strict=True)))
    solver = new_solver(seconds, effort)
    solver.parameters.linearization_level = 2  # all of it: most of the bound comes from the linear relaxation
    if solver.solve(model) in (cp_model.MODEL_INVALID, cp_model.INFEASIBLE):
        return SearchedBound(float(program.constant))
    more = max(0, math.floor(solver.best_objective_bound + 1e-6)) / scale
    return SearchedBound(float(program.constant + more), solver.num_branches)
