"""The exact solver against brute force, and what it says when time, states or memory run out."""

from __future__ import annotations

import random

import pytest

from naive_game import NaiveGame, RandomGame, TooBig, random_game
from pebbler import workloads
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine, machine
from pebbler.solver.exact import PROOF, fits_exact, solve_exact
from pebbler.solver.needs import explain_impossible, needs
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
    assert search.proof == PROOF or search.energy == 0
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
    assert second.proof == PROOF


def test_a_game_too_large_to_represent_is_left_alone() -> None:
    search = Search(Problem.of(workloads.chain(100), machine("red-blue"), start={"N0": "fast"}))
    assert not fits_exact(search.problem)
    solve_exact(search)
    assert search.best is None
    assert search.bound == 0


# What cannot be done, and why ------------------------------------------------------------------------------------------


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
    need = needs(Problem.of(graph, Machine("m", "pebble", (Level("fast", 0, 0, capacity=9), Level("slow", 1, 1)))))
    assert need is not None
    assert (need.op, need.units, need.enough) == ("upd", 7, True)


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


def test_a_glance_never_calls_a_possible_game_impossible() -> None:
    seen = 0
    for seed in range(1_500):
        game = random_game(random.Random(seed), 6, max_levels=1 if seed % 4 else 2)
        if explain_impossible(problem_of(game)) is not None:
            try:
                assert NaiveGame(game.graph, game.machine, game.steady, game.start).solve(5_000) is None, f"seed {seed}"
            except TooBig:
                continue
            seen += 1
    assert seen >= 200


def test_the_least_that_works_works() -> None:
    for seed in range(150):
        game = random_game(random.Random(seed), 5, operands="fastest", steady=False)
        need = needs(Problem.of(game.graph, game.machine, steady=False))
        if need is None or not need.enough:
            continue
        levels = (Level("fast", 0, 0, capacity=max(1, need.units)), Level("slow", 1, 1))
        enough = Machine("enough", "pebble", levels)
        assert exact(Problem.of(game.graph, enough, steady=False)) is not None
        if need.units > 1:
            less = Machine("less", "pebble", (Level("fast", 0, 0, capacity=need.units - 1), Level("slow", 1, 1)))
            assert NaiveGame(game.graph, less, False).solve(20_000) is None
