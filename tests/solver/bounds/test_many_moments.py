"""The bound of all moments together: against the optimum of random games, its program against brute force, and planted faults."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from naive_game import random_game
from pebbler import workloads
from pebbler.game.machine import Level, Machine
from pebbler.referee.programs.compulsory_traffic import ValuePrices, compulsory_traffic
from pebbler.referee.programs.remade_values import NOTHING_REMADE
from pebbler.referee.programs.stay_moments import StayMoments, TightMoment
from pebbler.referee.programs.stay_program import StayFacts
from pebbler.referee.programs.wanted_values import WantedValue, stays
from pebbler.solver.bounds import bounds
from pebbler.solver.bounds.many_moments import all_moments, searched_bound, tight_moments
from pebbler.solver.bounds.program_search import ProgramSearch
from pebbler.solver.exact import solve_exact
from pebbler.solver.problem import Impossible, Problem, Search

Change = Callable[[list[WantedValue]], list[WantedValue]]


def solved_game(seed: int, max_ops: int) -> tuple[Problem, float] | None:
    """Return a random game with operands from the fastest level and its optimum, or None if there is none to be had."""
    rng = random.Random(seed)
    game = random_game(rng, max_ops, monotone=rng.random() < 0.8)
    problem = Problem.of(game.graph, game.machine, steady=game.steady, start=game.start)
    if not all_moments(problem, 10.0):
        return None
    search = Search(problem)
    try:
        solve_exact(search, max_states=100_000)
    except Impossible:
        return None
    return None if search.cut_off else (problem, search.energy)


def ratios(seeds: range, max_ops: int) -> list[float]:
    """Return bound / optimum of each game, none above 1."""
    found = []
    for seed in seeds:
        solved = solved_game(seed, max_ops)
        if solved is None:
            continue
        problem, optimum = solved
        proven = all_moments(problem, 10.0)
        for bound in proven:
            assert bound.value <= optimum * (1 + 1e-12) + 1e-12, f"seed {seed}: {bound} is above {optimum}"
        found.append(proven[0].value / optimum if optimum else 1.0)
    return found


def test_it_is_never_above_the_optimum() -> None:
    found = ratios(range(600), 6)
    assert len(found) >= 200
    assert sum(ratio > 1 - 1e-9 for ratio in found) >= 0.75 * len(found)


@pytest.mark.slow
def test_it_is_never_above_the_optimum_of_thousands() -> None:
    assert len(ratios(range(10_000, 22_000), 8)) >= 4_000


def facts_of(problem: Problem, found: list[WantedValue]) -> StayFacts:
    flow, capacity = problem.graph.dataflow, problem.machine.level[0].capacity
    assert capacity is not None
    base = compulsory_traffic(problem, ValuePrices.of(problem))
    return StayFacts(base, found, NOTHING_REMADE, StayMoments(flow, capacity, found, NOTHING_REMADE))


def undercut(change: Change, seeds: range) -> bool:
    """Say whether some game's optimum is below the bound with a fault in it."""
    for seed in seeds:
        solved = solved_game(seed, 6)
        if solved is None:
            continue
        problem, optimum = solved
        prices = ValuePrices.of(problem)
        wrong = change(stays(problem, prices))
        facts = facts_of(problem, wrong)
        if searched_bound(facts.program(tight_moments(facts.moments).items()), 10.0).value > optimum * (1 + 1e-9):
            return True
    return False


FAULTS: dict[str, Change] = {
    "it is always alive": lambda found: [replace(stay, idle=frozenset()) for stay in found],
    "before the step and after it are two gaps": lambda found: [replace(stay, around=False) for stay in found],
    "coming back after the end costs": lambda found: [replace(stay, tail=False) for stay in found],
    "a copy out for every value": lambda found: [replace(stay, away=stay.away + stay.back) for stay in found],
    "operands count beside the op": lambda found: [replace(stay, values=frozenset()) for stay in found],
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_attack_finds_planted_faults(name: str) -> None:
    assert undercut(FAULTS[name], range(1_500)), name


def brute_force(found: list[WantedValue], when: list[TightMoment]) -> float:
    """Return the least cost over all choices of gaps in which values are away."""
    gaps = sorted({(place, gap) for moment in when for place, all_gaps in moment.alive for gap in all_gaps})
    best = float("inf")
    for chosen in itertools.product([False, True], repeat=len(gaps)):
        gone = {gap for gap, away in zip(gaps, chosen, strict=True) if away}
        if any(
            sum(
                found[place].size
                for place, all_gaps in moment.alive
                if not any((place, gap) in gone for gap in all_gaps)
            )
            > moment.room
            for moment in when
        ):
            continue
        cost = sum(found[place].price(gap) for place, gap in gone)
        best = min(best, cost + sum(found[place].away for place in {place for place, _ in gone}))
    return best


def test_the_program_is_solved_exactly() -> None:
    compared = 0
    for seed in range(1_500):
        rng = random.Random(seed)
        game = random_game(rng, 7)
        problem = Problem.of(game.graph, game.machine, steady=game.steady, start=game.start)
        if not StayFacts.known_of(problem):
            continue
        found = stays(problem, ValuePrices.of(problem))
        facts = facts_of(problem, found)
        when = tight_moments(facts.moments)
        if not when or sum(len(stay.wanted) for stay in found) > 13:
            continue
        program, least = facts.program(when.items()), float(facts.base) + float(brute_force(found, [*when.values()]))
        assert searched_bound(program, 10.0).value == pytest.approx(least, rel=1e-6)
        search = ProgramSearch(program)
        search.run(math.inf)
        assert float(search.bound) == pytest.approx(least, rel=1e-6)
        assert search.bound <= Fraction(least) * (1 + Fraction(1, 10**12))
        compared += 1
    assert compared >= 60


def paged(batch: int) -> Problem:
    graph = workloads.get(f"deep-mlp:n=20,hidden=100,layers=8,batch={batch}")
    two = Machine("two", graph.unit, (Level("fast", 0, 0, capacity=30_000), Level("slow", 1, 1)), "explicit", "fastest")
    return Problem.of(graph, two, steady=True)


def test_weights_leave_twice_in_a_step() -> None:
    problem = paged(4)
    assert bounds(problem)[0].value < 90_000
    assert all_moments(problem, 10.0)[0].value == 180_084


def test_nothing_is_said_of_other_machines() -> None:
    graph = workloads.chain(5)
    one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=4),))
    anywhere = Machine("any", "pebble", (Level("fast", 0, 0, capacity=4), Level("slow", 1, 1)), operands="any")
    for machine in (one, anywhere):
        assert all_moments(Problem.of(graph, machine), 1.0) == []
