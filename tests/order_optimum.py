"""The least energy of program order, by brute force over every move."""

from __future__ import annotations

from naive_game import NaiveGame, RandomGame
from pebbler.solver.problem import Problem


def problem_of(game: RandomGame) -> Problem:
    return Problem.of(game.graph, game.machine, steady=game.steady, start=game.start)


def least_energy_in_order(game: RandomGame, limit: int = 20_000) -> float | None:
    """Brute force over every move, with every op run exactly once and in program order."""
    naive = NaiveGame(game.graph, game.machine, game.steady, game.start)

    naive.may_repeat = [False] * len(naive.cost)

    def moves(ran, present):
        return (after for after in naive._plain_moves(ran, present) if after[0] in (ran, 2 * ran + 1))

    return naive._dijkstra(moves, limit, exactly=True)
