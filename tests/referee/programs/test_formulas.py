"""Certificates of graphs as they are: they prove what was stated, and no mutant proves more than brute force finds."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from mutated_formulas import mutant_of, optimum_of, other_game, random_certified_game
from naive_game import RandomGame
from pebbler.referee.rows.task import Task
from pebbler.referee.verify import NotProven, verify


def task_of(game: RandomGame) -> Task:
    return Task(game.graph, game.machine.in_unit(game.graph.unit), game.steady, game.start)


def attack(seed: int, mutants: int) -> Counter[str]:
    """Verify the certificates of a random game and mutants of them; return how many were accepted and refused."""
    found: Counter[str] = Counter()
    known = random_certified_game(seed)
    if known is None:
        return found
    rng = random.Random(seed)
    game, best, certificates = known
    others = [(other, optimum_of(other)) for _ in range(3) if (other := other_game(rng, game)) is not None]
    for certificate in certificates:
        name = certificate["formula"]
        assert verify(task_of(game), certificate) == certificate["bound"] <= best * (1 + 1e-12), f"seed {seed}: {name}"
        found[name] += 1
        for number in range(mutants):
            mutant, played, least = mutant_of(rng, certificate), game, best
            if number % 4 == 0 and others:
                played, other = rng.choice(others)
                if other is None:
                    continue
                mutant, least = certificate, other
            try:
                bound = verify(task_of(played), mutant, 20)
            except NotProven:
                found["refused"] += 1
                continue
            found["accepted"] += 1
            assert bound <= least * (1 + 1e-12), f"seed {seed}: {mutant} proves {bound}, {least} is the optimum"
    return found


def test_no_mutant_proves_what_is_not_so() -> None:
    found: Counter[str] = Counter()
    for seed in range(60):
        found += attack(seed, 8)
    assert min(found[name] for name in ("moments", "cut", "stays", "milestones")) >= 5, found
    assert min(found["accepted"], found["refused"]) > 300, found


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(40))
def test_no_mutant_proves_what_is_not_so_in_a_hundred_thousand(chunk: int) -> None:
    for seed in range(1_000 + 100 * chunk, 1_100 + 100 * chunk):
        attack(seed, 10)
