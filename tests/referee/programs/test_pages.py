"""The formula `pages`: what the only order of a graph pays, with any prices of room, is no more than brute force finds."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest

from mutated_formulas import mutant_of, optimum_of
from naive_game import RandomGame
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.referee.rows.task import Task
from pebbler.referee.verify import NotProven, verify
from pebbler.solver.paging.paging_solver import solve_paging
from pebbler.solver.problem import Problem, Search


def forced_game(rng: random.Random) -> RandomGame:
    """Return a game whose ops wait for one another in a row, and run once or cost too much to run again."""
    graph = Graph("row", unit="pebble")
    values: list[str] = []
    for number in range(rng.randint(2, 4)):
        graph.tensor(f"g{number}", rng.randint(1, 2), rng.choice(["input", "param", "param"]))
        values.append(f"g{number}")
    last, updated = rng.choice(values), set[str]()
    for number in range(rng.randint(3, 6)):
        reads = [last, *(one for one in rng.sample(values, min(2, len(values))) if one != last)]
        once, cost = rng.random() < 0.5, rng.choice([0, 1, 500])
        params = [one for one in reads if graph.tensor_named(one).kind == "param" and one not in updated]
        if params and rng.random() < 0.4 and number:
            last = params[0]
            updated.add(last)
            graph.op(f"o{number}", reads, [last], cost=cost)
            values = [last, *(one for one in values if one != last)]
            continue
        last = f"t{number}"
        graph.tensor(last, rng.randint(1, 2), rng.choice(["temp", "temp", "temp", "output"]))
        graph.op(f"o{number}", reads, [last], cost=cost if once else 500, once=once)
        values.append(last)
    most = max(sum(graph.tensor_named(one).size for one in {*op.reads, *op.writes}) for op in graph.ops)
    prices = [rng.choice([0, 1, 2.5, 3]) for _ in range(2)] + [rng.choice([1, 4, 10]) for _ in range(2)]
    operands: Any = rng.choice(["fastest", "any"])
    fast = Level("fast", prices[0], prices[1], capacity=max(1, most + rng.randint(0, 1) - (operands == "any")))
    machine = Machine("two", "pebble", (fast, Level("slow", *prices[2:])), operands=operands)
    return RandomGame(graph, machine, rng.random() < 0.5, {})


def task_of(game: RandomGame) -> Task:
    return Task(game.graph, game.machine, game.steady, game.start)


def pages(prices: list[list[Any]]) -> dict[str, Any]:
    return {"covers": "graph", "formula": "pages", "prices": prices}


def attack(seeds: range) -> dict[str, int]:
    """Hold what random prices prove, and those of the solver, against optima; return how often which was so."""
    found = {"games": 0, "reached": 0, "raised": 0, "mutants": 0}
    for seed in seeds:
        rng = random.Random(seed)
        game = forced_game(rng)
        best = optimum_of(game, 20_000)
        try:
            nothing = verify(task_of(game), pages([]))
        except NotProven:
            continue
        if best is None:
            continue
        found["games"] += 1
        assert nothing <= best, f"seed {seed}"
        for _ in range(6):
            some = rng.sample(range(len(game.graph.ops)), rng.randint(1, len(game.graph.ops)))
            priced = pages([[op, str(Fraction(rng.randint(1, 12), rng.choice([1, 2, 3])))] for op in some])
            assert verify(task_of(game), priced) <= best, f"seed {seed}: {priced}"
        if seed % 3:
            continue
        search = Search(Problem.of(game.graph, game.machine, steady=game.steady), 5)
        search.as_it_is = True
        solve_paging(search)
        certificate = dict(search.certificate or pages([]))
        proven = verify(task_of(game), certificate)
        assert proven == certificate.get("bound", nothing) <= best == search.energy, f"seed {seed}: {certificate}"
        found["reached"] += proven == best
        found["raised"] += proven > nothing
        for _ in range(4):
            try:
                assert verify(task_of(game), mutant := mutant_of(rng, certificate)) <= best, f"seed {seed}: {mutant}"
                found["mutants"] += 1
            except NotProven:
                pass
    return found


def test_no_prices_of_room_prove_more_than_a_plan_costs() -> None:
    found = attack(range(20))
    assert found["games"] > 12, found
    assert found["reached"] > 0, found
    assert found["raised"] > 1, found


@pytest.mark.slow
@pytest.mark.parametrize("hundred", [0, *range(10, 40)])
def test_no_prices_of_room_prove_more_than_a_plan_costs_in_thousands(hundred: int) -> None:
    attack(range(100 * hundred, 100 * hundred + 100))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prices": None}, "expected a list"),
        ({"prices": "12"}, "expected a list"),
        ({"prices": [[0, "-1"]]}, "not an op with a price"),
        ({"prices": [[True, "1"]]}, "not an op with a price"),
        ({"prices": [[99, "1"]]}, "not an op with a price"),
        ({"prices": [[0]]}, "not an op with a price"),
        ({"covers": "forms"}, "a formula is for the graph as it is"),
    ],
)
def test_what_is_malformed_is_refused(change: dict[str, Any], words: str) -> None:
    game = next(game for seed in range(99) if not_refused(game := forced_game(random.Random(seed))))
    with pytest.raises(NotProven, match=words):
        verify(task_of(game), {**pages([]), **change})


def not_refused(game: RandomGame) -> bool:
    try:
        return verify(task_of(game), pages([])) >= 0
    except NotProven:
        return False


def test_nothing_is_proven_where_orders_differ_or_running_again_may_pay() -> None:
    graph = Graph("two", unit="pebble").tensor("x", 1, "input").tensor("y", 1, "output").tensor("z", 1, "output")
    graph.op("a", ["x"], ["y"]).op("b", ["x"], ["z"])
    machine = Machine("two", "pebble", (Level("fast", 0, 0, capacity=3), Level("slow", 9, 9)))
    with pytest.raises(NotProven, match="not the only order"):
        verify(Task(graph, machine, False), pages([]))
    graph = Graph("row", unit="pebble").tensor("x", 1, "input").tensor("y", 1).tensor("z", 1, "output")
    graph.op("a", ["x"], ["y"], cost=1).op("b", ["y"], ["z"], cost=1)
    with pytest.raises(NotProven, match="running an op again"):
        verify(Task(graph, machine, False), pages([]))
