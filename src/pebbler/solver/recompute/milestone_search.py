"""The choice of milestones for a bound, one relaxation after the other.

One milestone is a small model that is solved at once, and at the right op it is often all it takes. Where it is not, its
summary, spread out as a sequence, shows where it cheats: at a run that does not fit. A milestone there comes next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pebbler.solver.recompute.milestone_relaxation import Relaxation, RelaxationResult
from pebbler.solver.recompute.recompute_problem import RecomputeProblem

__all__ = ["MilestoneSearch", "RelaxationJob"]

_SINGLES_FIRST = 6


@dataclass(frozen=True)
class RelaxationJob:
    """One relaxation to solve: its milestones, and how much work it is worth."""

    milestones: tuple[int, ...]
    effort: float


class MilestoneSearch:
    """Proposes relaxations, learning from their results; the caller solves them, in order.

    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.solver.problem import Problem
    >>> from pebbler.workloads import chain
    >>> one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=4),))
    >>> MilestoneSearch(RecomputeProblem.of(Problem.of(chain(6), one))).next_job()
    RelaxationJob(milestones=(5,), effort=1.0)
    """

    def __init__(self, problem: RecomputeProblem) -> None:
        self.problem = problem
        self.relaxation = Relaxation(problem)
        self.bound = problem.base_cost
        self._best: tuple[int, ...] = ()
        self._spread: list[int] | None = None
        self._tried: set[tuple[int, ...]] = set()
        self._single = self._effort = max(1.0, problem.ops / 1000)  # what one milestone takes grows with the graph
        self._jobs = self._propose()

    def next_job(self) -> RelaxationJob | None:
        """Return what to solve next; None when nothing is left that could raise the bound."""
        return next(self._jobs, None)

    def take(self, job: RelaxationJob, result: RelaxationResult) -> None:
        """Learn from the result of a job."""
        grown = len(job.milestones) > len(self._best)
        if result.bound > self.bound or (result.solved and grown and result.bound >= self.bound):
            self.bound = max(self.bound, result.bound)
            if result.sequence is not None:
                self._best, self._spread = job.milestones, result.sequence
        elif not result.solved:
            self._effort = min(2 * self._effort, 64.0)

    def _propose(self) -> Iterator[RelaxationJob]:
        singles = iter(self.relaxation.tight())
        count, open_ = 0, True
        while open_ or self._best:
            single = next(singles, None)
            if single is None:
                open_ = False
            else:
                count += 1
                yield RelaxationJob((single,), self._single)
            if count >= _SINGLES_FIRST or not open_:
                more = self._grown()
                if more is not None:
                    self._tried.add(more)
                    yield RelaxationJob(more, self._effort)
                elif not open_:
                    return

    def _grown(self) -> tuple[int, ...] | None:
        """Return the best milestones so far with one more, where their summary needs most above capacity."""
        if self._spread is None:
            return None
        memory = self.problem.measure(self._spread).memory
        for at in sorted(range(len(memory)), key=lambda at: (-memory[at], at)):
            if memory[at] <= self.problem.capacity:
                break
            chained = self.relaxation.chained(self._best, self._spread[at])
            if chained is not None and tuple(chained) not in self._tried:
                return tuple(chained)
        for op in self.relaxation.tight():
            chained = self.relaxation.chained(self._best, op)
            if chained is not None and tuple(chained) not in self._tried:
                return tuple(chained)
        return None
