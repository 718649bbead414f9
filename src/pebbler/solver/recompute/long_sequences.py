"""Long sequences on one level: runs are left out where there is room to keep their results instead."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pebbler.solver.recompute.kernels.rerun_trimming import trim_reruns
from pebbler.solver.recompute.recompute_problem import RecomputeProblem

__all__ = ["trim"]

Ints = npt.NDArray[np.int64]


def trim(problem: RecomputeProblem, sequence: Ints) -> Ints:
    """Return a sequence that fits, without the runs whose results there is room to keep, the most expensive first.

    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.solver.problem import Problem
    >>> from pebbler.workloads import chain
    >>> one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=40),))
    >>> problem = RecomputeProblem.of(Problem.of(chain(3), one))
    >>> trim(problem, np.array([0, 1, 2, 3, 1, 4, 5, 6])).tolist()
    [0, 1, 2, 3, 4, 5, 6]
    """
    while True:
        measured = problem.measure(sequence)
        order = np.argsort(-problem.arrays.cost[sequence], kind="stable")
        keep = trim_reruns(problem.arrays, sequence, measured.memory.copy(), order)
        shorter = sequence[keep]
        if keep.all() or not problem.measure(shorter).fits:
            return sequence
        sequence = shorter
