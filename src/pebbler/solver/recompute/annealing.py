"""Improving a sequence of ops by annealing, whole or a stretch at a time: a large-neighbourhood search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pebbler.solver.recompute.kernels.recompute_annealing import anneal
from pebbler.solver.recompute.recompute_problem import RecomputeProblem
from pebbler.solver.recompute.start_sequences import fit

__all__ = ["AnnealingSettings", "improve"]

Ints = npt.NDArray[np.int64]
_WORK = 6_000_000  # runs measured per round, a fraction of a second
_SHORT = 150  # up to this length sequences are annealed whole
_WHOLE = 800  # from this length on they are annealed a stretch at a time


@dataclass(frozen=True)
class AnnealingSettings:
    """The parameters of a round of annealing: a pure function of its number, so that rounds can run in any thread."""

    heat: float  # start temperature, in typical op costs
    weight: float  # price of being over capacity by 2 %, in typical op costs
    reach: float  # how long a stretch is, 0 to 1
    position: float  # where it lies, 0 to 1
    work: float  # how long it takes: the first rounds are short, for most proofs need no more
    seed: int

    @classmethod
    def of(cls, number: int, seed: int) -> AnnealingSettings:
        """Return the settings of a round.

        >>> AnnealingSettings.of(3, 0) == AnnealingSettings.of(3, 0), AnnealingSettings.of(3, 0) == AnnealingSettings.of(4, 0)
        (True, False)
        """
        rng = np.random.default_rng([seed, number])
        heat, weight = 10.0 ** rng.uniform(-3, -0.5), 10.0 ** rng.uniform(-1, 1)
        reach, position = rng.random(2)
        work = min(1.0, 0.1 * 1.05**number)
        return cls(float(heat), float(weight), float(reach), float(position), work, int(rng.integers(2**31)))


def improve(problem: RecomputeProblem, sequence: Ints, settings: AnnealingSettings) -> Ints:
    """Return a sequence that is no worse: nearer to fitting, or cheaper.

    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.solver.problem import Problem
    >>> from pebbler.workloads import chain
    >>> one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=4),))
    >>> problem = RecomputeProblem.of(Problem.of(chain(4), one))
    >>> problem.measure(improve(problem, fit(problem, problem.program), AnnealingSettings.of(0, 0))).cost
    10.0
    """
    low, high = _stretch(len(sequence), settings)
    better = _anneal(problem, sequence, low, high, settings)
    measured = problem.measure(better)
    if measured.over and len(sequence) <= _WHOLE:
        better = fit(problem, better)
        measured = problem.measure(better)
    before = problem.measure(sequence)
    return better if (measured.over, measured.cost) <= (before.over, before.cost) else sequence


def _stretch(length: int, settings: AnnealingSettings) -> tuple[int, int]:
    """Return the stretch to anneal: all of a short sequence, since runs outside a stretch are not seen; a part of a long one."""
    if length <= _WHOLE and (length <= _SHORT or settings.reach < 0.5):
        return 0, length
    span = min(length, int(_SHORT + settings.reach * (min(length, _WHOLE) - _SHORT)))
    low = int(settings.position * (length - span + 1))
    return low, low + span


def _anneal(problem: RecomputeProblem, sequence: Ints, low: int, high: int, settings: AnnealingSettings) -> Ints:
    """Return the sequence with the stretch from `low` to `high` annealed."""
    arrays, ops = problem.arrays, problem.ops
    after = problem.measure_rest(sequence, high)
    before = problem.at_start if low == 0 else problem.measure_rest(sequence, low).needed
    positive = arrays.cost[arrays.cost > 0]
    typical = float(positive.mean()) if len(positive) else 1.0
    hot = typical * settings.heat
    cold = min(hot / 10, max(hot / 1e4, float(positive.min()) / 20 if len(positive) else hot / 1e4))
    weight = typical * settings.weight / (0.02 * problem.capacity)
    runs = np.bincount(sequence, minlength=ops)
    steps = max(2000, int(settings.work * _WORK) // (high - low + ops // 8 + 1))
    stretch, _, _ = anneal(
        arrays,
        sequence[low:high].copy(),
        runs,
        after.needed,
        before,
        after.later,
        steps,
        hot,
        cold,
        weight,
        settings.seed,
    )
    return np.concatenate([sequence[:low], stretch, sequence[high:]])
