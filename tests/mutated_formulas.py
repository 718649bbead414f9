"""Certificates of small games as they are, with formulas and programs, and mutants of them."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec

from mutated_certificates import JUNK
from naive_game import NaiveGame, RandomGame, TooBig, random_game
from one_level_games import small_game
from pebbler.errors import InputError
from pebbler.game.machine import Machine
from pebbler.referee.programs.milestone_program import MilestoneProgram
from pebbler.solver.bounds.bound import certified
from pebbler.solver.bounds.many_moments import bounds_in_stages
from pebbler.solver.bounds.program_search import ProgramSearch
from pebbler.solver.problem import Problem

__all__ = ["certificates_of", "mutant_of", "optimum_of", "other_game", "random_certified_game"]

Json = Any


def optimum_of(game: RandomGame, states: int = 4_000) -> float | None:
    """Return what the cheapest plan costs by brute force; infinite where there is none, None where that takes too long."""
    try:
        found = NaiveGame(game.graph, game.machine, game.steady, game.start).solve(states)
    except (TooBig, ValueError):
        return None
    return float("inf") if found is None else found


def certificates_of(game: RandomGame) -> list[Json]:
    """Return the certificates of all bounds of a game, as a file has them."""
    problem = Problem.of(game.graph, game.machine, steady=game.steady, start=game.start)
    stages = bounds_in_stages(problem, lambda: 2.0)
    found = [dict(bound.certificate) for stage in stages for bound in stage if bound.certificate is not None]
    found += _milestones(problem)
    return [json.loads(json.dumps(one)) for one in found]


def _milestones(problem: Problem) -> list[Json]:
    """Return certificates of milestones of a game of one level: each op alone, and two that follow each other."""
    found: list[Json] = []
    flow = problem.graph.dataflow
    if not MilestoneProgram.known_of(problem):
        return found
    pairs = [[a, b] for b in range(flow.ops) for a in range(b) if flow.ancestors[b] >> a & 1]
    for milestones in [*([op] for op in range(flow.ops)), *pairs[:4]]:
        search = ProgramSearch(MilestoneProgram(problem, milestones).program, Fraction(problem.scale.quantum))
        search.run(math.inf, most=20)
        bound = certified(problem, "", "milestones", milestones=milestones, **search.certificate())
        found.append(dict(bound.certificate or {}))
    return found


def random_certified_game(seed: int) -> tuple[RandomGame, float, list[Json]] | None:
    """Return a random game with its optimum and certificates; None where brute force takes too long."""
    rng = random.Random(seed)
    game = small_game(seed, max_ops=5) if rng.random() < 0.25 else random_game(rng, 5, monotone=rng.random() < 0.8)
    best = optimum_of(game)
    return None if best is None else (game, best, certificates_of(game))


def other_game(rng: random.Random, game: RandomGame) -> RandomGame | None:
    """Return a game whose machine differs in a capacity, a price or a rule, or that is steady where it was not."""
    machine = game.machine
    pick, at = rng.random(), rng.randrange(len(machine.level))
    levels, level = list(machine.level), machine.level[at]
    if pick < 0.1:
        inputs = {tensor.name for tensor in game.graph.tensors if tensor.kind == "input"}
        start = {name: levels for name, levels in (game.start or {}).items() if name not in inputs}
        return replace(game, steady=not game.steady, start=start)  # inputs of a steady step arrive in the slowest level
    if pick < 0.5 and level.capacity is not None:
        levels[at] = msgspec.structs.replace(level, capacity=max(1, level.capacity + rng.choice([-1, 1, 2, 9])))
    elif pick < 0.9:
        prices = {"read": rng.choice([0, 1, level.read / 2, 0.1]), "write": rng.choice([0, 1, level.write, 0.3])}
        levels[at] = msgspec.structs.replace(level, **prices)
    rules = {"operands": rng.choice(["any", "fastest"])} if pick >= 0.9 else {}
    try:
        other: Machine = msgspec.structs.replace(machine, level=tuple(levels), **rules)
    except InputError:
        return None
    return replace(game, machine=other)


def _places(node: Json) -> Iterator[tuple[Json, Json]]:
    """Yield every place of a piece of JSON: what it is in, and its key there."""
    for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        yield node, key
        yield from _places(node[key])


def _other_number(rng: random.Random, found: Json) -> Json:
    if isinstance(found, str) and found.replace("/", "").isdigit() and "/0" not in found:
        by = rng.choice(["0", "2", "1/2", "1001/1000", "999/1000", "1000000", "3", "7/5"])
        return str(Fraction(found) * Fraction(by))
    if type(found) is int:
        return found + rng.choice([-1, 1, 2, 10])
    return copy.deepcopy(rng.choice(JUNK))  # which a second change may change


def _change(rng: random.Random, where: Json, key: Json) -> None:
    where[key] = _other_number(rng, where[key])


def _junk(rng: random.Random, where: Json, key: Json) -> None:
    where[key] = copy.deepcopy(rng.choice(JUNK))


def _drop(rng: random.Random, where: Json, key: Json) -> None:
    del where[key]


def _repeat(rng: random.Random, where: Json, key: Json) -> None:
    if isinstance(where, list):
        where.append(copy.deepcopy(where[key]))


def _swap(rng: random.Random, where: Json, key: Json) -> None:
    other = rng.choice(list(where) if isinstance(where, dict) else range(len(where)))
    where[key], where[other] = where[other], where[key]


CHANGES: tuple[Callable[[random.Random, Json, Json], None], ...] = (
    _change,
    _change,
    _change,
    _junk,
    _drop,
    _repeat,
    _swap,
)


def mutant_of(rng: random.Random, certificate: Json) -> Json:
    """Return a certificate with one or two things changed."""
    mutant = copy.deepcopy(certificate)
    for _ in range(rng.choice([1, 1, 2])):
        places = [(where, key) for where, key in _places(mutant) if key not in ("formula", "covers")]
        if places:
            rng.choice(CHANGES)(rng, *rng.choice(places))
    return mutant
