"""Improving a sequence of ops by annealing, whole or a stretch at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pebbler.kernels import recompute as kernel
from pebbler.solve.recompute_game import Game
from pebbler.solve.recompute_greedy import fit

__all__ = ["Recipe", "improve"]

Ints = npt.NDArray[np.int64]
_WORK = 6_000_000  # runs measured per round, a fraction of a second
_WHOLE = 800  # longer sequences are annealed a stretch at a time
_STRETCH = 400


@dataclass(frozen=True)
class Recipe:
    """How one round of annealing goes: a pure function of its number, so that rounds can run in any thread."""

    heat: float  # start temperature, in typical op costs
    weight: float  # price of being over capacity by 2 %, in typical op costs
    place: float  # where a stretch lies, 0 to 1
    seed: int

    @classmethod
    def of(cls, number: int, seed: int) -> Recipe:
        """Return the recipe of a round.

        >>> Recipe.of(3, 0) == Recipe.of(3, 0), Recipe.of(3, 0) == Recipe.of(4, 0)
        (True, False)
        """
        rng = np.random.default_rng([seed, number])
        heat, weight = 10.0 ** rng.uniform(-3, -0.5), 10.0 ** rng.uniform(-1, 1)
        return cls(float(heat), float(weight), float(rng.random()), int(rng.integers(2**31)))


def improve(game: Game, sequence: Ints, recipe: Recipe) -> Ints:
    """Return a sequence that is no worse: nearer to fitting, or cheaper.

    >>> from pebbler.machine import Level, Machine
    >>> from pebbler.solve.problem import Problem
    >>> from pebbler.workloads import chain
    >>> one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=4),))
    >>> game = Game.of(Problem.of(chain(4), one))
    >>> game.measure(improve(game, fit(game, game.program), Recipe.of(0, 0))).cost
    11.0
    """
    length = len(sequence)
    if length > _WHOLE:
        low = min(int(recipe.place * length), length - _STRETCH)
        high = low + _STRETCH
    else:
        low, high = 0, length
    better = _anneal(game, sequence, low, high, recipe)
    measured = game.measure(better)
    if measured.over and length <= _WHOLE:
        better = fit(game, better)
        measured = game.measure(better)
    before = game.measure(sequence)
    return better if (measured.over, measured.cost) <= (before.over, before.cost) else sequence


def _anneal(game: Game, sequence: Ints, low: int, high: int, recipe: Recipe) -> Ints:
    """Return the sequence with the stretch from `low` to `high` annealed."""
    arrays, ops = game.arrays, game.ops
    after = _needed_from(game, sequence, high)
    before = game.at_start if low == 0 else _needed_from(game, sequence, low)
    later = np.zeros(ops, np.bool_)
    later[sequence[high:]] = True
    positive = arrays.cost[arrays.cost > 0]
    typical = float(positive.mean()) if len(positive) else 1.0
    hot = typical * recipe.heat
    cold = min(hot / 10, max(hot / 1e4, float(positive.min()) / 20 if len(positive) else hot / 1e4))
    weight = typical * recipe.weight / (0.02 * game.capacity)
    runs = np.bincount(sequence, minlength=ops)
    steps = max(2000, _WORK // (high - low + ops // 8 + 1))
    stretch, _, _ = kernel.anneal(
        arrays, sequence[low:high].copy(), runs, after, before, later, steps, hot, cold, weight, recipe.seed
    )
    return np.concatenate([sequence[:low], stretch, sequence[high:]])


def _needed_from(game: Game, sequence: Ints, at: int) -> npt.NDArray[np.bool_]:
    """Return the values that the sequence needs to find at a position."""
    rest = sequence[at:].copy()
    values, ops = game.flow.values, game.ops
    alive = np.zeros(values, np.bool_)
    kernel.measure(
        game.arrays, rest, len(rest), game.arrays.survive, np.ones(values, np.bool_), np.zeros(ops, np.bool_),
        np.zeros(len(rest), np.int64), alive, np.zeros(ops, np.bool_),
    )  # fmt: skip
    return alive
