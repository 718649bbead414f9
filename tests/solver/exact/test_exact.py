"""The exact solver against brute force, and what it says when time, states or memory run out."""

from __future__ import annotations

import random

import pytest

from naive_game import NaiveGame, RandomGame, TooBig, random_game
from pebbler import workloads
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine, machine
from pebbler.solver.exact import PROOF, fits_exact, solve_exact
from pebbler.solver.problem import Impossible, Problem, Search


def problem_of(game: RandomGame) -> Problem:
    return Problem.of(game.graph, game.machine, steady=game.steady, start=game.start)


def exact(problem: Problem) -> float | None:
    """The least energy, None when no plan is legal; the search itself refuses illegal plans."""
    search = Search(problem)
    try:
        solve_exact(search)
    except Impossible:
        return None
    assert search.done
    assert search.proof.startswith(PROOF) or search.energy == 0
    return search.energy


def agree(seed: int, max_ops: int, limit: int, **kinds: object) -> bool:
    """Compare one random game with brute force; False when that would take too long."""
    game = random_game(random.Random(seed), max_ops, **kinds)
    naive = NaiveGame(game.graph, game.machine, game.steady, game.start)
    try:
        expected = naive.solve(limit) if kinds.get("monotone", True) else naive.solve_plain(limit)
    except TooBig:
        return False
    found = exact(problem_of(game))
    if expected is None or found is None:
        assert found == expected, f"seed {seed}"
    else:
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9), f"seed {seed}"
    return True


def test_the_two_oracles_agree() -> None:
    for seed in range(120):
        game = random_game(random.Random(seed), 3, max_levels=2, max_start=2)
        naive = NaiveGame(game.graph, game.machine, game.steady, game.start)
        plain, lazy = naive.solve_plain(50_000), naive.solve(50_000)
        assert lazy == (None if plain is None else pytest.approx(plain, rel=1e-9, abs=1e-9)), f"seed {seed}"


@pytest.mark.parametrize("operands", ["fastest", "any"])
@pytest.mark.parametrize("steady", [False, True])
def test_random_games_are_solved_as_by_brute_force(operands: str, steady: bool) -> None:
    compared = sum(agree(seed, 5, 3_000, operands=operands, steady=steady) for seed in range(90))
    assert compared >= 70


def test_games_where_slower_levels_are_cheaper_to_read_are_solved_too() -> None:
    assert sum(agree(seed, 3, 4_000, monotone=False, max_start=2) for seed in range(100)) >= 90


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_thousands_of_random_games_of_up_to_eight_ops(part: int) -> None:
    compared = sum(agree(10_000 + 500 * part + i, 8, 60_000) for i in range(500))
    assert compared >= 300


@pytest.mark.slow
def test_many_games_where_slower_levels_are_cheaper() -> None:
    assert sum(agree(seed, 4, 60_000, monotone=False, max_start=2) for seed in range(5_000, 6_000)) >= 800


@pytest.mark.parametrize(("steady", "energy"), [(False, 26_574_470), (True, 10_453_825)])
def test_the_notes_training_step_is_solved(steady: bool, energy: int) -> None:
    assert exact(Problem.of(workloads.note_mlp(), machine("notes-explicit"), steady=steady)) == energy


def test_a_chain_is_recomputed_rather_than_stored() -> None:
    # Facts of the notes' game: 201 without a limit scales to 2 * 10 + 1 here; with 4 red pebbles recomputation costs more.
    roomy = Problem.of(workloads.chain(10), machine("red-blue"), start={"N0": "fast"})
    assert exact(roomy) == 21
    levels = (Level("fast", 0, 0, capacity=4), Level("slow", 100, 100))
    tight = Problem.of(workloads.chain(10), Machine("tight", "pebble", levels), start={"N0": "fast"})
    found = exact(tight)
    assert found is not None
    assert 21 < found < 100


def test_running_out_of_states_leaves_a_valid_bound() -> None:
    problem = Problem.of(workloads.chain(10), Machine("tight", "pebble", (Level("f", 0, 0, 4), Level("s", 9, 9))))
    optimum = exact(problem)
    assert optimum is not None
    cut = Search(problem)
    solve_exact(cut, max_states=64)
    assert cut.cut_off
    assert cut.best is None
    assert 0 < cut.bound <= optimum


def test_no_time_leaves_a_valid_bound() -> None:
    cut = Search(Problem.of(workloads.note_mlp(), machine("notes-explicit"), steady=False), time_limit=0)
    solve_exact(cut)
    assert cut.bound <= 26_574_470


def test_an_optimal_incumbent_is_proven_without_finding_it_again() -> None:
    problem = Problem.of(workloads.chain(6), machine("red-blue"), start={"N0": "fast"})
    first = Search(problem)
    solve_exact(first)
    assert first.best is not None
    second = Search(problem)
    second.offer(first.best.moves, first.best.start)
    solve_exact(second)
    assert second.done
    assert second.proof.startswith(PROOF)


def test_a_game_too_large_to_represent_is_left_alone() -> None:
    search = Search(Problem.of(workloads.chain(100), machine("red-blue"), start={"N0": "fast"}))
    assert not fits_exact(search.problem)
    solve_exact(search)
    assert search.best is None
    assert search.bound == 0


# What cannot be done, and why ------------------------------------------------------------------------------------------


def one_level(capacity: int) -> Machine:
    return Machine("one", "pebble", (Level("fast", 0, 0, capacity=capacity),))


def test_an_overwritten_value_need_not_be_there() -> None:
    graph = Graph("stale", "pebble")
    graph.tensor("x", 1, "input")
    graph.tensor("old", 3)
    graph.tensor("new", 0, "output", overwrites="old")
    graph.op("f", ["x"], ["old"])
    graph.tensor("wide", 3)
    graph.op("g", ["x"], ["wide"])
    graph.op("h", ["wide"], ["new"])
    assert exact(Problem.of(graph, one_level(4))) == 0
