"""The referee against an independent reading of the rules, on random games and random moves, legal and illegal."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from naive_game import NaiveGame, RandomGame, random_game
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check


def random_moves(rng: random.Random, game: RandomGame, judge: NaiveGame, length: int) -> list[tuple[str, ...]]:
    """Moves that mostly make sense: legal ones by preference, then now and then one taken blindly."""
    ops = [op.name for op in game.graph.ops]
    tensors = [tensor.name for tensor in game.graph.tensors]
    levels = game.machine.names
    careless = rng.choice([0.0, 0.0, 0.05])
    moves: list[tuple[str, ...]] = []
    done: set[str] = set()
    for _ in range(length):
        tries = 1 if rng.random() < careless else 40
        for attempt in range(tries):
            pending = [op for op in ops if op not in done]
            kind = rng.choices(["compute", "copy", "drop"], [4 if pending else 1, 4, 1 + 2 * (attempt > 15)])[0]
            if kind == "compute":
                op = rng.choice(pending if pending and rng.random() < 0.8 else ops)
                slow = game.machine.operands == "any" and rng.random() < 0.4
                move = ("compute", op, rng.choice(levels)) if slow else ("compute", op)
            elif kind == "copy":
                source, target = rng.choices(levels, k=2)
                move = ("copy", rng.choice(tensors), source, target)
            else:
                move = ("drop", rng.choice(tensors), rng.choice(levels))
            verdict = judge.play([*moves, move])
            if verdict.at is None and not verdict.why:
                break
        moves.append(move)
        if move[0] == "compute":
            done.add(move[1])
        if len(done) == len(ops) and rng.random() < 0.3:
            break
    return moves


def agree(seed: int, counts: Counter[str]) -> None:
    rng = random.Random(seed)
    game = random_game(rng, 6, monotone=rng.random() < 0.7)
    judge = NaiveGame(game.graph, game.machine, game.steady, game.start)
    moves = random_moves(rng, game, judge, rng.randint(0, 30))
    expected = judge.play(moves)
    verdict = check(Plan(game.graph, game.machine, moves, game.start, game.steady))
    context = f"seed {seed}: {moves}\nnaive: {expected}\nreferee: {verdict.error}"
    assert verdict.legal == expected.legal, context
    assert (None if verdict.move is None else verdict.move - 1) == expected.at, context
    if verdict.legal:
        assert verdict.energy == pytest.approx(expected.energy, rel=1e-12, abs=1e-12), context
    counts["legal" if verdict.legal else expected.why or "end"] += 1


def test_the_referee_agrees_with_the_naive_game() -> None:
    counts: Counter[str] = Counter()
    for seed in range(300):
        agree(seed, counts)
    # The comparison is worth something only if many games are played to a legal end and many ways to fail occur.
    assert counts["legal"] >= 30
    assert len(counts) >= 8


@pytest.mark.slow
def test_the_referee_agrees_with_the_naive_game_at_length() -> None:
    counts: Counter[str] = Counter()
    for seed in range(1_000, 6_000):
        agree(seed, counts)
    assert counts["legal"] >= 500
