"""What memory a problem needs at the least: never more than brute force can do with, and said in so many words."""

from __future__ import annotations

import random

import pytest

from naive_game import NaiveGame, TooBig, random_game
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.solver.capacity import Requirement, explain_impossible, op_requirement, single_level_requirement
from pebbler.solver.exact import solve_exact
from pebbler.solver.large_games import solve_large
from pebbler.solver.problem import Impossible, Problem, Search


def one_level(capacity: int) -> Machine:
    return Machine("one", "pebble", (Level("fast", 0, 0, capacity=capacity),))


def test_one_op_that_needs_too_much_is_named_with_the_least_that_works() -> None:
    graph = Graph("wide", "pebble")
    graph.tensor("a", 3, "input")
    graph.tensor("b", 4, "output")
    graph.op("f", ["a"], ["b"])
    small = Machine("small", "pebble", (Level("fast", 0, 0, capacity=6), Level("slow", 1, 1)))
    with pytest.raises(Impossible, match=r"^f needs 7 units at once; fast holds 6; the least that works is 7$"):
        solve_exact(Search(Problem.of(graph, small)))


def test_an_update_takes_over_the_room_of_its_old_version() -> None:
    graph = Graph("update", "pebble")
    graph.tensor("W", 5, "param")
    graph.tensor("g", 2, "input")
    graph.op("upd", ["W", "g"], ["W"])
    machine = Machine("m", "pebble", (Level("fast", 0, 0, capacity=9), Level("slow", 1, 1)))
    assert op_requirement(Problem.of(graph, machine)) == Requirement(7, "upd")


def test_what_cannot_leave_a_single_level_counts_for_every_op() -> None:
    graph = Graph("pinned", "pebble")
    graph.tensor("p", 5, "param")
    graph.tensor("x", 1, "input")
    graph.tensor("y", 2, "output")
    graph.op("f", ["x"], ["y"])
    problem = Problem.of(graph, one_level(7), steady=False)
    assert explain_impossible(problem) == "f needs 8 units at once; fast holds 7; at least 8 are needed"


def test_a_start_that_does_not_fit_is_named() -> None:
    graph = Graph("crowd", "pebble")
    graph.tensor("a", 3, "input")
    graph.tensor("b", 3, "input")
    graph.op("f", ["a"], [])
    assert explain_impossible(Problem.of(graph, one_level(5))) == (
        "6 units start in fast, which holds 5; at least 6 are needed"
    )


def test_what_a_glance_does_not_show_is_found_by_search() -> None:
    # Each op fits alone, but two results that only they can make must be there together, with the input of the second.
    graph = Graph("both", "pebble")
    graph.tensor("x", 1, "input")
    for name in ("a", "b"):
        graph.tensor(name, 3, "output")
        graph.op(f"make_{name}", ["x"], [name])
    problem = Problem.of(graph, one_level(6))
    assert explain_impossible(problem) is None
    with pytest.raises(Impossible, match="no legal plan exists"):
        solve_exact(Search(problem))


def test_a_glance_never_calls_a_possible_game_impossible() -> None:
    seen = 0
    for seed in range(1_500):
        game = random_game(random.Random(seed), 6, max_levels=1 if seed % 4 else 2)
        problem = Problem.of(game.graph, game.machine, steady=game.steady, start=game.start)
        if explain_impossible(problem) is not None:
            try:
                assert NaiveGame(game.graph, game.machine, game.steady, game.start).solve(5_000) is None, f"seed {seed}"
            except TooBig:
                continue
            seen += 1
    assert seen >= 200


def test_the_least_that_works_works() -> None:
    for seed in range(150):
        game = random_game(random.Random(seed), 5, operands="fastest", steady=False)
        need = op_requirement(Problem.of(game.graph, game.machine, steady=False))
        if need is None or len(game.machine.level) == 1:
            continue
        levels = (Level("fast", 0, 0, capacity=max(1, need.units)), Level("slow", 1, 1))
        enough = Machine("enough", "pebble", levels)
        search = Search(Problem.of(game.graph, enough, steady=False))
        solve_exact(search)
        assert search.best is not None
        if need.units > 1:
            less = Machine("less", "pebble", (Level("fast", 0, 0, capacity=need.units - 1), Level("slow", 1, 1)))
            assert NaiveGame(game.graph, less, False).solve(20_000) is None


def test_what_must_be_there_at_the_end_counts_in_a_single_level() -> None:
    graph = Graph("ends", "pebble")
    graph.tensor("x", 1, "input")
    for name in ("a", "b", "c"):
        graph.tensor(name, 2, "output")
        graph.op(f"make_{name}", ["x"], [name])
    need = single_level_requirement(Problem.of(graph, one_level(9)))
    assert need.reason == "what must be there at the end needs 6 units at once"
    why = "what must be there at the end needs 6 units at once; "
    assert explain_impossible(Problem.of(graph, one_level(5))) == why + "fast holds 5; at least 6 are needed"
    with pytest.raises(Impossible, match="at the end"):
        solve_large(Search(Problem.of(graph, one_level(5))))
