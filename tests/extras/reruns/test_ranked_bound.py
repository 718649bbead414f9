"""The bound by recency rank that holds for any recomputation, against all orders of small graphs with runs beyond the first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import naive_orders as naive
import pebbler as pb
from pebbler.extras.reruns import rerun_search as ranked_bound
from pebbler.extras.reruns.kernels.rerun_prices import RerunGame
from pebbler.extras.reruns.rerun_search import rerun_bound, rerun_game
from pebbler.referee.judgement import check
from pebbler.referee.kernels.cache_price import price
from pebbler.referee.pricing import cache_game
from pebbler.referee.programs.order_floors import order_bound
from pebbler.solver.problem import Problem

FAR = 1e9


def optimum(problem: Problem, extra: int) -> tuple[float, float]:
    """Return the least energy with every op run once, and with `extra` more runs."""
    game = cache_game(problem.graph, problem.machine, steady=False)
    once = again = np.inf
    for sequence in naive.orders_with_reruns(problem.graph, extra):
        energy = price(game, np.array(sequence))
        again = min(again, energy)
        once = min(once, energy) if len(sequence) == len(problem.graph.ops) else once
    return once, again


def attack(seeds: range, extra: int) -> tuple[int, int]:
    """Return how often the bound is the optimum, and how often running an op again pays."""
    tight = pays = 0
    for seed in seeds:
        problem = naive.rerun_problem(seed)
        once, again = optimum(problem, extra)
        bound = rerun_bound(problem, FAR)
        assert max(bound, order_bound(problem.task)) <= again + 1e-9, f"seed {seed}: {bound} is above {again}"
        tight += bool(bound >= again - 1e-9)
        pays += bool(again < once)
    return tight, pays


def test_no_plan_is_below_it() -> None:
    tight, pays = attack(range(260, 520), 2)
    assert tight >= 200
    assert pays >= 5


def test_the_orders_it_is_held_against_are_legal() -> None:
    for seed in range(300, 330):
        problem = naive.rerun_problem(seed)
        names = [op.name for op in problem.graph.ops]
        sequences = list(naive.orders_with_reruns(problem.graph, 1))
        for sequence in sequences[:: max(1, len(sequences) // 4)]:
            assert check(pb.Plan.in_order(problem.graph, problem.machine, [names[op] for op in sequence])).legal


def never_again(game: RerunGame) -> RerunGame:
    return game._replace(can_rerun=np.zeros_like(game.can_rerun))


def each_pays_for_all(game: RerunGame) -> RerunGame:
    return game._replace(wanted_size=np.ones_like(game.wanted_size))


def nobody_else_wants_it(game: RerunGame) -> RerunGame:
    return each_pays_for_all(game)._replace(wanted=np.zeros_like(game.wanted))


def nothing_is_dropped(game: RerunGame) -> RerunGame:
    return game._replace(readers=game.readers + 1)


@pytest.mark.parametrize("wrong", [never_again, each_pays_for_all, nobody_else_wants_it, nothing_is_dropped])
def test_a_wrong_bound_is_caught(wrong: Callable[[RerunGame], RerunGame], monkeypatch: pytest.MonkeyPatch) -> None:
    problems = [naive.rerun_problem(seed) for seed in (316, 318, 320, 332)]
    monkeypatch.setattr(ranked_bound, "rerun_game", lambda problem: wrong(rerun_game(problem)))
    assert any(rerun_bound(problem, FAR) > optimum(problem, 2)[1] for problem in problems)


def test_attention_is_bounded_with_recomputation() -> None:
    problem = Problem.of(pb.workloads.attention(), pb.machine("notes-recency"))
    assert order_bound(problem.task) == 13_107_205  # 11,468,805 if only start values are known to stay in the ranking
    assert rerun_bound(problem, 18_350_085) == 17_080_325


def test_without_time_or_ops_nothing_is_said() -> None:
    problem = Problem.of(pb.workloads.attention(), pb.machine("notes-recency"))
    assert rerun_bound(problem, FAR, seconds_left=lambda: 0.0) == 0.0
    assert rerun_bound(problem, FAR, most=10_000) == 0.0
    assert rerun_bound(Problem.of(pb.Graph("none"), pb.machine("notes-recency")), FAR) == 0.0


def test_a_walk_in_small_steps_comes_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = [naive.rerun_problem(seed) for seed in range(310, 330)]
    at_once = [rerun_bound(problem, FAR) for problem in problems]
    monkeypatch.setattr(ranked_bound, "_SHARE", 3)
    assert [rerun_bound(problem, FAR) for problem in problems] == at_once


def test_no_bound_is_above_what_is_asked_for() -> None:
    problem = Problem.of(pb.workloads.note_mlp(), pb.machine("notes-recency"))
    assert rerun_bound(problem, 1_000_000.5) == 1_000_000.5


@pytest.mark.slow
def test_no_plan_of_many_is_below_it() -> None:
    assert attack(range(10_000, 16_000), 2)[1] >= 100
    assert attack(range(20_000, 20_500), 3)[1] >= 10
