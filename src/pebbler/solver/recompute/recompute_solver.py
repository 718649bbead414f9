"""The recompute solver: it alternates between annealing and relaxations until the best plan is proven or time is up.

They do so in rounds of fixed work, so the answer depends on the seed alone, not on the number of threads, unless time cuts it
off.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from pebbler.referee.programs.milestone_program import MilestoneProgram
from pebbler.solver.bounds.bound import certified
from pebbler.solver.bounds.program_search import ProgramSearch
from pebbler.solver.cp_sat import SearchedBound
from pebbler.solver.greedy_plans import greedy_pays
from pebbler.solver.problem import Impossible, Search
from pebbler.solver.recompute.annealing import AnnealingSettings, improve
from pebbler.solver.recompute.checkpointing import checkpointings
from pebbler.solver.recompute.least_capacity import require_room
from pebbler.solver.recompute.milestone_relaxation import Relaxation, RelaxationResult, spread_runs
from pebbler.solver.recompute.recompute_problem import RecomputeProblem
from pebbler.solver.recompute.start_sequences import early_ends_order, fit, low_memory_order

__all__ = ["solve_recompute"]

Ints = npt.NDArray[np.int64]
_ANNEALINGS = 3  # per round
_PROOF_SECONDS, _PROOF_SHARE, _LEAVES = 4.0, 0.25, 40  # of one certificate
_FIRST_SECONDS, _SINGLES, _SOME = 6.0, 12, 0.01  # of linear relaxations of single milestones before anything else
_AMPLE, _FIT_SHARE = 3.0, 0.2  # seconds below which a plan comes first; of the time, for making one sequence fit
_FRUITLESS = 3  # relaxations in a row that bring nothing before the time goes to annealing
_PATIENCE = 40  # rounds without progress before a search without a time limit gives up


def solve_recompute(search: Search) -> None:
    """Search the plans of a one-level machine until one is proven optimal or time is up.

    Raises `Impossible` when no plan is legal.

    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.solver.problem import Problem
    >>> from pebbler.workloads import chain
    >>> one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=4),))
    >>> search = Search(Problem.of(chain(6), one), time_limit=20)
    >>> solve_recompute(search)
    >>> search.energy, search.done
    (16, True)
    """
    from pebbler.solver.large_games import is_large, offer_greedy, solve_large

    if is_large(search.problem):
        solve_large(search)
        return
    problem = RecomputeProblem.of(search.problem)
    try:
        require_room(problem, search.remaining)
    except Impossible as reason:
        search.give_up(reason)
    search.raise_bound(problem.base_cost, "every op runs at least once")
    solver = _RecomputeSolver(search, problem)
    solver.offer(problem.program)
    if greedy_pays(search.problem) and not search.done and search.remaining > 0:
        end = search.elapsed + 0.2 * search.remaining
        offer_greedy(search, lambda: min(search.remaining, end - search.elapsed))
    if search.best is not None and search.best.source is None:
        solver.offer(np.asarray(search.best.moves.order, np.int64))
    if search.done or (search.time_limit is not None and search.remaining <= 0):
        search.cut_off = search.cut_off or not search.done
        return
    if search.remaining > _AMPLE:
        solver.bound_by_programs()
    for sequence in solver.hints:
        solver.offer(sequence)
        solver.offer(solver.fitted(sequence))
    for order in solver.orders():
        if not search.done:
            solver.offer(order)
            for sequence in checkpointings(problem, order):
                solver.offer(sequence)  # soon there, seldom the best
            solver.offer(solver.fitted(order))
    if not search.done:
        with ThreadPoolExecutor(max(1, search.problem.threads)) as pool:
            solver.run(pool)


class _RecomputeSolver:
    """One run of the solver: the best sequence so far, and what to try next."""

    def __init__(self, search: Search, problem: RecomputeProblem) -> None:
        self.search, self.problem = search, problem
        self.best: Ints = problem.program
        self.merit = (float("inf"), float("inf"))  # units above capacity, cost
        self.rounds = 0  # of annealing so far
        self.milestones = MilestoneSearch(problem)
        self.fruitless = 0  # relaxations in a row of which CP-SAT had nothing to say
        self.hints: list[Ints] = []  # sequences that relaxations have come to
        self.branches: list[Ints] = []  # sequences that are annealed on beside the best one

    def is_over(self) -> bool:
        """Whether time is up, or the search was interrupted."""
        return self.search.remaining <= 0

    def orders(self) -> Iterator[Ints]:
        """Yield orders without recomputation, from which some rounds of annealing start."""
        self.branches = [self.problem.program]
        yield self.branches[0]
        self.branches.append(low_memory_order(self.problem))
        yield self.branches[1]
        early = early_ends_order(self.problem)
        if self.problem.measure(early).over < self.problem.measure(self.problem.program).over:
            self.branches.append(early)
            yield early

    def offer(self, sequence: Ints) -> bool:
        """Take a sequence if it is the best so far: nearest to fitting, then cheapest."""
        measured = self.problem.measure(sequence)
        merit = (float(measured.over), measured.cost)
        if not measured.legal or merit >= self.merit:
            return False
        self.best, self.merit = sequence, merit
        if measured.fits:
            self.search.offer(self.problem.moves(sequence))
        return True

    def run(self, pool: ThreadPoolExecutor) -> None:
        """Alternate between annealing and bounding until the plan is proven, time is up, or nothing improves."""
        search, milestones, idle = self.search, self.milestones, 0
        hints = self.hints
        endless = search.time_limit is None
        while not search.done and not (endless and idle >= _PATIENCE):
            if search.remaining <= 0:
                search.cut_off = True
                return
            job = milestones.next_job() if self.fruitless < _FRUITLESS else None
            relaxed = None if job is None else pool.submit(self._solve, milestones, job, search.energy)
            # The longer the relaxation may take, the more there is to do beside it.
            count = _ANNEALINGS if job is None else max(1, round(_ANNEALINGS * job.effort))
            starts = [*self.branches, *hints, *[self.best] * count]
            annealed = [pool.submit(self._improve, start, self._settings()) for start in starts]
            hints, before = [], (self.merit, search.bound)
            found = [future.result() for future in annealed]
            self.branches = found[: len(self.branches)]
            for sequence in found:
                self.offer(sequence)
            if self.merit != before[0] and self.merit[0] == 0:
                self.branches = [branch for branch in self.branches if self._promising(branch)]
            if job is not None and relaxed is not None:
                result = relaxed.result()
                hints = self._take(milestones, job, result)
            idle = idle + 1 if (self.merit, search.bound) == before and job is None else 0

    def _promising(self, branch: Ints) -> bool:
        """Whether to continue a branch: its sequence does not fit yet, but costs less than the best."""
        measured = self.problem.measure(branch)
        return measured.over > 0 and measured.cost < self.merit[1]

    def _settings(self) -> AnnealingSettings:
        self.rounds += 1
        return AnnealingSettings.of(self.rounds, self.search.problem.seed)

    def _improve(self, start: Ints, settings: AnnealingSettings) -> Ints:
        return start if self.search.remaining <= 0 else improve(self.problem, start, settings)

    def _solve(self, milestones: MilestoneSearch, job: RelaxationJob, cheaper_than: float) -> RelaxationResult:
        seconds = self.search.remaining
        return milestones.relaxation.solve(
            job.milestones, cheaper_than=cheaper_than, seconds=seconds, effort=job.effort, seed=self.search.problem.seed
        )

    def fitted(self, sequence: Ints) -> Ints:
        """Return a sequence with runs added until it fits, or until a share of the time is over: annealing may come further."""
        ends = self.search.elapsed + max(_AMPLE, _FIT_SHARE * self.search.remaining)
        return fit(self.problem, sequence, is_over=lambda: self.is_over() or self.search.elapsed > ends)

    def bound_by_programs(self) -> None:
        """Raise the bound by linear relaxations of single milestones, the tightest first; keep their summaries as hints.

        In wide graphs CP-SAT gets nowhere in minutes with what they say in a second.
        """
        search, problem = self.search, self.search.problem
        if not MilestoneProgram.known_of(problem):
            return
        ends = time.monotonic() + min(_FIRST_SECONDS, _PROOF_SHARE * search.remaining)
        best: tuple[Fraction, int, ProgramSearch] | None = None
        for op in self.milestones.relaxation.tight()[:_SINGLES]:
            if time.monotonic() >= ends:
                break
            tree = ProgramSearch(MilestoneProgram(problem, [op]).program, Fraction(problem.scale.quantum), ends)
            if tree.root.values and (best is None or tree.bound > best[0]):
                best = tree.bound, op, tree
        if best is None:
            return
        _, op, tree = best
        words = f"what must be made again around the first run of {self.problem.flow.op_names[op]}, in any order"
        found = certified(problem, words, "milestones", milestones=[op], **tree.certificate())
        search.raise_bound(found.value, found.proof, found.certificate)
        stages: list[set[int]] = [{op}, set()]
        for name, value in zip(tree.program.names, tree.root.values, strict=True):
            if name[0] == "runs" and value > _SOME:
                stages[name[1]].add(name[2])
        spread = np.array(spread_runs(self.problem, [op], stages), np.int64)
        if self.problem.measure(spread).legal:
            self.hints = [spread]

    def _prove(self, milestones: Sequence[int], searched: SearchedBound, words: str) -> None:
        """Raise the bound to what CP-SAT says, and prove it as far as a little time allows."""
        search = self.search
        if MilestoneProgram.known_of(search.problem):
            ends = time.monotonic() + min(_PROOF_SECONDS, _PROOF_SHARE * search.remaining)
            program = MilestoneProgram(search.problem, milestones).program
            tree = ProgramSearch(program, Fraction(search.problem.scale.quantum), ends)
            tree.run(ends, searched.value, _LEAVES)
            found = certified(search.problem, words, "milestones", milestones=list(milestones), **tree.certificate())
            search.raise_bound(found.value, found.proof, found.certificate)
        search.raise_bound(searched.value, searched.proof(words))

    def _take(self, milestones: MilestoneSearch, job: RelaxationJob, result: RelaxationResult) -> list[Ints]:
        """Take the bound and summary of a relaxation; return sequences for annealing."""
        names = [self.problem.flow.op_names[op] for op in job.milestones]
        where = "the first run of " + names[0] if len(names) == 1 else f"the first runs of {', '.join(names)}"
        if result.impossible:
            reason = f"no plan is legal: at {where} what must be kept does not fit"
            self.search.give_up(Impossible(f"{reason}; {self.problem.level} holds {self.problem.capacity:,} units"))
            return []
        if result.bound > self.search.bound:
            searched = SearchedBound(result.bound, result.branches)
            self._prove(job.milestones, searched, f"what must be made again around {where}, in any order")
        milestones.take(job, result)
        nothing = not result.solved and result.sequence is None
        self.fruitless = self.fruitless + 1 if nothing else 0
        if result.sequence is None:
            return []
        spread = np.array(result.sequence, np.int64)
        if not self.problem.measure(spread).legal:
            return []
        fitted = fit(self.problem, spread, is_over=self.is_over)
        self.offer(fitted)
        return [spread, fitted]


# The choice of milestones for a bound, one relaxation after the other -------------------------------------------------
# One milestone is a small model that is solved at once, and at the right op it is often all it takes. Where it is not, its
# summary, spread out as a sequence, shows where it cheats: at a run that does not fit. A milestone there comes next.


_SINGLES_FIRST = 6


@dataclass(frozen=True)
class RelaxationJob:
    """One relaxation to solve: its milestones and its limit of work."""

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
        """Return the next job; None when no job is left that could raise the bound."""
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
