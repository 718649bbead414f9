"""The tightest moment ahead of every set of ops that can have run: against every order, and against plans."""

from __future__ import annotations

import math
import random
from itertools import permutations

import numpy as np
import pytest

from pebble_games import pebble_game
from pebbler.game.bit_sets import members
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.solver.exact.kernels.pebble_state import BEFORE, READS, WRITES, PebbleGame
from pebbler.solver.exact.pebble_moments import with_tightest_moments
from pebbler.solver.exact.pebble_rules import PebbleRules, pebble_rules
from pebbler.solver.exact.pebble_search import solve_pebbles
from pebbler.solver.problem import Problem, Search


def rows(count: int, capacity: int) -> Problem:
    """Products of two numbers each, all of which are wanted: every op needs three pebbles."""
    graph = Graph("rows", unit="pebble")
    for i in range(count):
        graph.tensor(f"a{i}", 1, kind="input").tensor(f"x{i}", 1, kind="input").tensor(f"y{i}", 1, kind="output")
        graph.op(f"row{i}", [f"a{i}", f"x{i}"], [f"y{i}"], 2)
    levels = (Level("fast", 0, 0, capacity=capacity), Level("slow", 1, 1))
    return Problem.of(graph, Machine("two", "pebble", levels), steady=False)


def rules_of(problem: Problem) -> PebbleRules:
    rules = pebble_rules(problem)
    assert rules is not None
    return rules


def price_of_value(game: PebbleGame, v: int, ran: set[int]) -> float | None:
    """What a value costs at the least if it is not in the fast level once these ops have run; None if it is not alive."""
    readers, maker = set(members(int(game.readers[v]))), int(game.maker[v])
    later = readers - ran
    if maker < 0:
        return game.load if later and (readers & ran or not game.fetched >> v & 1) else None
    if maker not in ran or not (later or game.survive >> v & 1):
        return None
    if game.cheap >> v & 1:
        return game.least
    return game.load + game.store if later else game.store


def price_of_order(game: PebbleGame, ran: tuple[int, ...], order: tuple[int, ...]) -> float:
    """What an order of the other ops pays at its tightest moment."""
    worst, done = 0.0, set(ran)
    moments = [(op, int(game.ops[op, READS] | game.ops[op, WRITES]), int(game.needs[op])) for op in order]
    for op, own, needs in [*moments, (-1, 0, 0)]:
        done.add(op)
        prices = [price_of_value(game, v, done) for v in range(len(game.readers)) if not own >> v & 1]
        alive = sorted(price for price in prices if price is not None)
        worst = max(worst, sum(alive[: max(0, len(alive) - (game.capacity - needs))]))
    return worst


def can_run(game: PebbleGame, ran: tuple[int, ...], order: tuple[int, ...]) -> bool:
    return all(set(members(int(game.ops[op, BEFORE]))) <= {*ran, *order[:at]} for at, op in enumerate(order))


@pytest.mark.parametrize("seed", range(150))
def test_prices_are_those_of_the_best_order(seed: int) -> None:
    rng = random.Random(seed)
    game = pebble_game(rng, 6, dear_runs=seed % 2 == 0)
    rules = pebble_rules(Problem.of(game.graph, game.machine, steady=False, start=game.start))
    if rules is None:
        return
    priced = with_tightest_moments(rules, lambda: 1.0).game
    ops = range(len(priced.needs))
    for ran, price in zip(priced.sets.tolist(), priced.tightest.tolist(), strict=True):
        done = tuple(members(ran))
        orders = permutations(op for op in ops if op not in done)
        best = min(price_of_order(priced, done, order) for order in orders if can_run(priced, done, order))
        assert math.isclose(price, best, abs_tol=1e-9), (seed, done)


def test_sets_are_all_that_can_have_run() -> None:
    rules = rules_of(rows(6, 4))
    assert with_tightest_moments(rules, lambda: 1.0).game.sets.tolist() == list(range(64))


def test_the_last_op_leaves_less_room_than_the_end() -> None:
    # Beside the last row's own three pebbles two are left: 7 results stay, of which only 2 do not go before it.
    rules = with_tightest_moments(rules_of(rows(9, 5)), lambda: 1.0)
    assert rules.game.tightest[0] == 9 - 1 - 2
    search = Search(rows(9, 5))
    solve_pebbles(search)
    assert search.done
    assert search.energy == 9 * 2 + 18 + 6


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_without_time_there_are_no_prices(seconds: float) -> None:
    game = with_tightest_moments(rules_of(rows(6, 4)), lambda: seconds).game
    assert (len(game.sets) > 0) == (seconds > 0)


def test_too_many_sets_are_not_listed() -> None:
    game = with_tightest_moments(rules_of(rows(30, 4)), lambda: 1.0).game
    assert np.size(game.sets) == 0
