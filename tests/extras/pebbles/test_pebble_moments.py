"""The tightest moment ahead of every set of ops that can have run: against every order, and against plans."""

from __future__ import annotations

import math
import random
from itertools import permutations, product

import numpy as np
import pytest

from pebble_games import pebble_game
from pebbler.extras.pebbles.kernels.pebble_state import BEFORE, NEVER, READS, WRITES, PebbleGame
from pebbler.extras.pebbles.pebble_moments import with_tightest_moments
from pebbler.extras.pebbles.pebble_rules import PebbleRules, pebble_rules
from pebbler.extras.pebbles.pebble_search import solve_pebbles
from pebbler.game.bit_sets import members
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
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


def price_of_set(game: PebbleGame, ran: int) -> float:
    row = game.tightest[game.sets[:, 0].tolist().index(ran)].tolist()
    return min(stores * game.store + loads * game.least for stores, loads in enumerate(row) if loads < NEVER)


def alive(game: PebbleGame, ran: set[int], own: int) -> tuple[int, int, int]:
    """How many values that come back without a store, are made and read later, are only kept, are alive beside an op's own."""
    counts = [0, 0, 0]
    for v in range(len(game.readers)):
        readers, maker = set(members(int(game.readers[v]))), int(game.maker[v])
        later = readers - ran
        if own >> v & 1:
            continue
        if maker < 0:
            counts[0] += bool(later and (readers & ran or not game.fetched >> v & 1))
        elif maker in ran and game.cheap >> v & 1:
            counts[0] += bool(later)
        elif maker in ran and (later or game.survive >> v & 1):
            counts[1 if later else 2] += 1
    return counts[0], counts[1], counts[2]


def ops_before(game: PebbleGame, op: int) -> set[int]:
    direct = set(members(int(game.ops[op, BEFORE])))
    return direct.union(*(ops_before(game, other) for other in direct))


def sure_loads(game: PebbleGame, ran: set[int], op: int) -> int:
    """How many reads an op that took the whole fast level has pushed out, with nothing that can have used them since."""
    found = 0
    for v in members(int(game.ops[op, READS])):
        used = set(members(int(game.readers[v]))) & ran | ({int(game.maker[v])} - {-1})
        for full in ran:
            own = int(game.ops[full, READS] | game.ops[full, WRITES])
            whole = game.needs[full] == game.capacity and not own >> v & 1 and used <= ops_before(game, full)
            if whole and (used or not game.fetched >> v & 1):
                found += 1
                break
    return 0 if game.repeat else found


def price_of_order(game: PebbleGame, ran: tuple[int, ...], order: tuple[int, ...]) -> float:
    """What an order of the other ops pays at the least: so many stores, and the loads that it needs with them."""
    done, moments = set(ran), []
    for op in order:
        sure = sure_loads(game, done, op)
        done.add(op)
        own = int(game.ops[op, READS] | game.ops[op, WRITES])
        moments.append((sure, alive(game, done, own), game.capacity - int(game.needs[op])))
    moments.append((0, alive(game, done, 0), game.capacity))
    best = math.inf
    for stores in range(len(game.readers) + 1):
        loads = 0.0
        for sure, (started, made, kept), room in reversed(moments):
            # Every choice of which of each kind are out, with no more stores than that.
            ways = [
                a + b
                for a, b, c in product(range(started + 1), range(made + 1), range(kept + 1))
                if b + c <= stores and started + made + kept - a - b - c <= room
            ]
            loads = sure + max(loads, min(ways, default=math.inf))
        if loads < math.inf:
            best = min(best, stores * game.store + loads * game.least)
    return best


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
    for ran in priced.sets[:, 0].tolist():
        price = price_of_set(priced, ran)
        done = tuple(members(ran))
        orders = permutations(op for op in ops if op not in done)
        best = min(price_of_order(priced, done, order) for order in orders if can_run(priced, done, order))
        assert math.isclose(price, best, abs_tol=1e-9), (seed, done)


def test_sets_are_all_that_can_have_run() -> None:
    rules = rules_of(rows(6, 4))
    assert with_tightest_moments(rules, lambda: 1.0).game.sets[:, 0].tolist() == list(range(64))


def test_the_last_op_leaves_less_room_than_the_end() -> None:
    # Beside the last row's own three pebbles two are left: 7 results stay, of which only 2 do not go before it.
    rules = with_tightest_moments(rules_of(rows(9, 5)), lambda: 1.0)
    assert price_of_set(rules.game, 0) == 9 - 1 - 2
    assert rules.game.tightest[0].tolist() == [NEVER] * 6 + [0] * 4
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


def test_a_result_that_is_stored_is_not_paid_for_again() -> None:
    """`kept` may be made again for less than a store and a load; once it is stored, being out costs nothing."""
    graph = Graph("kept", unit="pebble").tensor("a", 3, kind="input").tensor("kept", 3, kind="output")
    for name in "bcde":
        graph.tensor(name, 3)
    graph.op("op0", ["a"], ["kept"], 3).op("op1", ["a", "kept"], ["b"], 3).op("op2", ["b", "a"], ["c"], 3)
    graph.tensor("f", 3).op("op3", ["kept"], ["d"], 3).op("op4", ["c"], ["e", "f"], 10)
    levels = (Level("fast", 1, 0, capacity=9), Level("slow", 3, 1))
    search = Search(Problem.of(graph, Machine("two", "pebble", levels), steady=False))
    solve_pebbles(search)
    assert (search.energy, search.bound) == (37, 37)


def test_what_a_full_memory_pushed_out_comes_back_for_each_later_op() -> None:
    """Two ops that need every pebble, one after the other: what both push out and is read after each is loaded twice."""
    graph = Graph("full", unit="pebble").tensor("x", 1, kind="input").tensor("r", 1, kind="output")
    for name in "abc":
        graph.tensor(name, 1, kind="input")
    for name in "pqst":
        graph.tensor(name, 1)
    graph.op("p", ["x"], ["p"], 9).op("q", ["p", "a", "b"], ["q"], 9).op("s", ["x", "q"], ["s"], 9)
    graph.op("t", ["s", "b", "c"], ["t"], 9).op("r", ["t", "x", "c"], ["r"], 9)
    levels = (Level("fast", 0, 0, capacity=4), Level("slow", 1, 1))
    problem = Problem.of(graph, Machine("two", "pebble", levels), steady=False)
    game = with_tightest_moments(rules_of(problem), lambda: 1.0).game
    assert price_of_set(game, 0) == 2
    search = Search(problem)
    solve_pebbles(search)
    assert search.energy == search.bound == 45 + 4 + 2
