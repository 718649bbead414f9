"""Games on thousands of ops: a plan, a bound, little memory, and no worse than Belady's rule in program order."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from dense_training import training
from pebbler import solve
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.referee.judgement import check
from pebbler.solver import large_games
from pebbler.solver.large_games import solve_large
from pebbler.solver.paging.demand_paging import demand_plan
from pebbler.solver.problem import Impossible, Problem, Search
from quick_cases import quick_only

ROOT = Path(__file__).parents[2]


def one(capacity: int) -> Machine:
    return Machine("one", "pebble", (Level("fast", 0, 0, capacity=capacity),))


def two(capacity: int) -> Machine:
    return Machine("two", "pebble", (Level("fast", 0, 0, capacity=capacity), Level("slow", 100, 100)))


@pytest.mark.parametrize("steady", [pytest.param(False, marks=pytest.mark.slow), True])
def test_large_two_level_games_are_better_than_belady_and_bounded(steady: bool) -> None:
    graph = training(60)
    problem = Problem.of(graph, two(500), steady=steady)
    search = Search(problem)
    solve_large(search)
    belady = demand_plan(problem, range(len(graph.ops)), "farthest")
    assert belady is not None
    assert search.energy < 0.8 * check(belady).energy
    assert search.bound <= search.energy < 1.5 * search.bound


def costly(ops: int, seed: int) -> Graph:
    """Return a random graph in which making a value again costs about as much as storing it, and takes others with it."""
    rng = random.Random(seed)
    graph = Graph("costly", "pebble").tensor("x", 50, "input")
    for i in range(ops):
        recent = {f"t{rng.randrange(max(0, i - 100), i)}" for _ in range(rng.randint(1, 4))} if i else set()
        graph.tensor(f"t{i}", rng.randint(1, 1000), "output" if i == ops - 1 else "temp")
        graph.op(f"o{i}", ["x", *sorted(recent)], [f"t{i}"], rng.randint(0, 1000))
    return graph


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_reruns_that_do_not_pay_are_left_alone(seed: int) -> None:
    levels = (Level("fast", 0, 0, capacity=12_000), Level("slow", 1, 1))
    problem = Problem.of(costly(400, seed), Machine("two", "pebble", levels), steady=False)
    search = Search(problem)
    solve_large(search)
    belady = demand_plan(problem, range(400), "farthest")
    assert belady is not None
    assert search.energy < 0.82 * check(belady).energy


@pytest.mark.parametrize("layers", quick_only([50], [50, 100]))
def test_large_one_level_games_find_a_plan(layers: int) -> None:
    search = Search(Problem.of(training(layers), one(12 * layers), steady=False))
    solve_large(search)
    assert search.bound <= search.energy < 1.3 * search.bound


def test_large_games_that_cannot_be_say_so() -> None:
    with pytest.raises(Impossible, match="at least 128 are needed"):
        solve_large(Search(Problem.of(training(40), one(100), steady=False)))


def test_solve_takes_the_large_way_above_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_games, "LARGE", {1: 100, 2: 100})
    plan = solve(training(20), two(250), time_limit=None)
    assert check(plan).legal
    assert plan.status == "bounded"


def test_variations_of_the_same_problem_are_the_same() -> None:
    found = []
    for _ in range(2):
        search = Search(Problem.of(training(30), two(300)))
        solve_large(search)
        assert search.best is not None
        found.append(search.best.moves.words())
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("levels", [1, 2])
def test_twenty_thousand_ops_stay_small_and_beat_belady(levels: int) -> None:
    code = f"""
import sys
sys.path[:0] = [{str(ROOT / "tests" / "solver")!r}, {str(ROOT / "tests")!r}]
from test_large_games import one, training, two
from pebbler import solve
from pebbler.referee.judgement import check
from pebbler.solver.paging.demand_paging import demand_plan
from pebbler.solver.problem import Problem
from pebbler.sweeps.solve_task import peak_memory
graph = training(2900)
machine = one(42_000) if {levels} == 1 else two(20_000)
plan = solve(graph, machine, steady=False, time_limit=20)
assert check(plan).legal and plan.bound > 0 and len(graph.ops) > 20_000
if {levels} == 2:
    belady = demand_plan(Problem.of(graph, machine, steady=False), range(len(graph.ops)), "farthest")
    assert plan.energy <= check(belady).energy
print(peak_memory() // 2**20)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (
        int(done.stdout) < 1500
    )  # MiB; a bit per pair of ops alone would be 50 for each set, an object per pair thousands
