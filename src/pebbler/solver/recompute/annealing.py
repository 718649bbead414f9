"""Improving a sequence of ops by annealing, whole or a stretch at a time: a large-neighbourhood search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pebbler.solver.recompute import kernels as kernel
from pebbler.solver.recompute.recompute_problem import ENDLESS, RecomputeProblem
from pebbler.solver.recompute.start_sequences import fit

__all__ = ["AnnealingSettings", "improve"]

Ints = npt.NDArray[np.int64]
_WORK = 6_000_000  # runs measured per round, a fraction of a second
_SHORT = 150  # up to this length sequences are annealed whole
_WHOLE = 800  # from this length on they are annealed a stretch at a time


@dataclass(frozen=True)
class AnnealingSettings:
    """How one round of annealing goes: a pure function of its number, so that rounds can run in any thread."""

    heat: float  # start temperature, in typical op costs
    weight: float  # price of being over capacity by 2 %, in typical op costs
    reach: float  # how long a stretch is, 0 to 1
    place: float  # where it lies, 0 to 1
    work: float  # how long it takes: the first rounds are short, for most proofs need no more
    seed: int

    @classmethod
    def of(cls, number: int, seed: int) -> AnnealingSettings:
        """Return the recipe of a round.

        >>> AnnealingSettings.of(3, 0) == AnnealingSettings.of(3, 0), AnnealingSettings.of(3, 0) == AnnealingSettings.of(4, 0)
        (True, False)
        """
        rng = np.random.default_rng([seed, number])
        heat, weight = 10.0 ** rng.uniform(-3, -0.5), 10.0 ** rng.uniform(-1, 1)
        reach, place = rng.random(2)
        work = min(1.0, 0.1 * 1.05**number)
        return cls(float(heat), float(weight), float(reach), float(place), work, int(rng.integers(2**31)))


def improve(game: RecomputeProblem, sequence: Ints, recipe: AnnealingSettings) -> Ints:
    """Return a sequence that is no worse: nearer to fitting, or cheaper.

    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.solver.problem import Problem
    >>> from pebbler.workloads import chain
    >>> one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=4),))
    >>> game = RecomputeProblem.of(Problem.of(chain(4), one))
    >>> game.measure(improve(game, fit(game, game.program), AnnealingSettings.of(0, 0))).cost
    10.0
    """
    low, high = _stretch(len(sequence), recipe)
    better = _anneal(game, sequence, low, high, recipe)
    measured = game.measure(better)
    if measured.over and len(sequence) <= _WHOLE:
        better = fit(game, better)
        measured = game.measure(better)
    before = game.measure(sequence)
    return better if (measured.over, measured.cost) <= (before.over, before.cost) else sequence


def _stretch(length: int, recipe: AnnealingSettings) -> tuple[int, int]:
    """Return where to anneal: short sequences whole, for what happens outside a stretch is not seen; long ones in part."""
    if length <= _WHOLE and (length <= _SHORT or recipe.reach < 0.5):
        return 0, length
    span = min(length, int(_SHORT + recipe.reach * (min(length, _WHOLE) - _SHORT)))
    low = int(recipe.place * (length - span + 1))
    return low, low + span


def _anneal(game: RecomputeProblem, sequence: Ints, low: int, high: int, recipe: AnnealingSettings) -> Ints:
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
    steps = max(2000, int(recipe.work * _WORK) // (high - low + ops // 8 + 1))
    stretch, _, _ = kernel.anneal(
        arrays, sequence[low:high].copy(), runs, after, before, later, steps, hot, cold, weight, recipe.seed
    )
    return np.concatenate([sequence[:low], stretch, sequence[high:]])


def _needed_from(game: RecomputeProblem, sequence: Ints, at: int) -> npt.NDArray[np.bool_]:
    """Return the values that the sequence needs to find at a position."""
    values, ops = game.flow.values, game.ops
    alive = np.zeros(values, np.bool_)
    kernel.measure(
        game.arrays, sequence, at, len(sequence), game.arrays.survive, np.ones(values, np.bool_), np.zeros(ops, np.bool_),
        ENDLESS, np.zeros(len(sequence), np.int64), alive, np.zeros(ops, np.bool_),
    )  # fmt: skip
    return alive
