"""The least capacity of a single level, found by search: values may be made again to save room."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from pebbler.game.bit_sets import bit_set, members, subsets
from pebbler.game.dataflow import NONE
from pebbler.game.moves import COMPUTE
from pebbler.game.plan import Plan
from pebbler.solver.capacity import narrow, shortage, single_level_requirement
from pebbler.solver.greedy_plans import GreedyPlanner, greedy_pays
from pebbler.solver.paging.start_orders import start_orders
from pebbler.solver.problem import Impossible, Problem
from pebbler.solver.recompute.annealing import AnnealingSettings, improve
from pebbler.solver.recompute.recompute_problem import ENDLESS, RecomputeProblem
from pebbler.solver.recompute.start_sequences import fit, low_memory_order

__all__ = ["LeastCapacity", "least_capacity", "require_room"]

Ints = npt.NDArray[np.int64]
_SMALL = 12  # ops up to which every state of the game is looked at
_KEEN = (0.5, 1.0, 0.0)
_STATES = 200_000
_FEW = 10  # operands and results of an op up to which every choice of those that it leaves is looked at
_ROUNDS = 4  # of annealing per capacity tried
_HASTE = 2.0  # seconds spent on what would do when something is impossible


@dataclass(frozen=True)
class LeastCapacity:
    """The least capacity that works lies from `lower` to `upper`; `plan` works with `upper`."""

    lower: int
    upper: int
    plan: Plan
    reason: str  # why less than `lower` cannot work


def least_capacity(problem: Problem, time_limit: float = 10.0) -> LeastCapacity:
    """Return the least capacity of the one level with which some plan is legal; exact for small graphs, else bounds.

    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.workloads import chain
    >>> one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=40),))
    >>> least = least_capacity(Problem.of(chain(6), one))
    >>> least.lower, least.upper
    (3, 3)
    """
    ends = time.monotonic() + time_limit
    endless = RecomputeProblem.of(problem, ENDLESS)
    least = single_level_requirement(problem)
    lower, reason = least.units, least.reason
    best = min((endless.program, low_memory_order(endless)), key=lambda order: _peak(endless, order))
    if endless.ops <= _SMALL and lower < _peak(endless, best):
        exact = _least_of_all_states(endless)
        if exact is not None:
            best, lower, reason = exact, _peak(endless, exact), "every way to play with less was looked at"

    def is_over() -> bool:
        return time.monotonic() >= ends

    def anneal(units: int, start: Ints) -> tuple[Ints, int] | None:
        found = _fits_in(RecomputeProblem.of(problem, units), start, problem.seed, is_over)
        return None if found is None else (found, _peak(endless, found))

    if greedy_pays(problem):
        runs = _greedy_runs(problem, endless, lambda: ends - time.monotonic())
        best, _ = narrow(lower, best, _peak(endless, best), runs, is_over)
    best, upper = narrow(lower, best, _peak(endless, best), anneal, is_over)
    sized = replace(problem, machine=problem.machine.resized(0, max(upper, 1)))
    return LeastCapacity(lower, upper, sized.plan(endless.moves(best)), reason)


def require_room(problem: RecomputeProblem, seconds: float = _HASTE) -> None:
    """Raise `Impossible`, with the reason and a sufficient capacity, if the capacity is plainly too small.

    The sufficient capacity is searched for so many seconds, but not for more than two.

    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.workloads import chain
    >>> tiny = Problem.of(chain(1), Machine("one", "pebble", (Level("fast", 0, 0, capacity=1),)))
    >>> require_room(RecomputeProblem.of(tiny))
    Traceback (most recent call last):
    pebbler.solver.problem.Impossible: c1 needs 2 units at once; fast holds 1; the least that works is 2
    """
    need = single_level_requirement(problem.original)
    if need.units > problem.capacity:
        least = least_capacity(problem.original, min(seconds, _HASTE))
        exact = least.lower == least.upper
        works = f"{least.upper:,}" if exact else f"between {least.lower:,} and {least.upper:,}"
        raise Impossible(shortage(need.reason, problem.level, problem.capacity, f"the least that works is {works}"))


def _peak(problem: RecomputeProblem, sequence: Ints) -> int:
    size = problem.arrays.size
    if problem.original.machine.results == "over":
        held = _peak_between(problem, sequence)
    else:
        held = int(problem.measure(sequence).memory.max(initial=0))
    return max(held, int(size[problem.at_start].sum()), 1)


def _peak_between(problem: RecomputeProblem, sequence: Ints) -> int:
    """Return the most units that are needed between two runs of a legal sequence, or at its end."""
    size, needed = problem.arrays.size.tolist(), set(np.flatnonzero(problem.arrays.survive).tolist())
    held = most = int(sum(size[value] for value in needed))
    writes = problem.flow.op_writes
    for op in reversed(sequence.tolist()):
        made, read = needed.intersection(writes.row(op).tolist()), set(problem.reads.row(op).tolist()) - needed
        needed = needed - made | read
        held += sum(size[value] for value in read) - sum(size[value] for value in made)
        most = max(most, held)
    return most


def _greedy_runs(
    problem: Problem, endless: RecomputeProblem, seconds_left: Callable[[], float]
) -> Callable[[int, Ints], tuple[Ints, int] | None]:
    """Return a function that tries greedy runs in a given room, and returns a sequence that fits with its need."""
    planner = GreedyPlanner.of(problem)

    def run(units: int, best: Ints) -> tuple[Ints, int] | None:
        small = replace(planner, game=planner.game._replace(capacity=np.array([units], np.int64)))
        for keen, order in product(_KEEN, start_orders(problem.graph)):
            if seconds_left() <= 0:
                break
            rows = small.run(order, keen=keen, remake=True, seed=0, seconds=seconds_left())
            if rows is not None:
                sequence = np.ascontiguousarray(rows[rows[:, 0] == COMPUTE, 1])
                return sequence, min(units, _peak(endless, sequence))
        return None

    return run


def _fits_in(problem: RecomputeProblem, best: Ints, seed: int, is_over: Callable[[], bool]) -> Ints | None:
    """Return a sequence that fits, if the greedy pass and some annealing find one."""
    for start in (best, problem.program):
        here = fit(problem, start, is_over=is_over)
        for number in range(_ROUNDS):
            if not problem.measure(here).over or is_over():
                break
            here = improve(problem, here, AnnealingSettings.of(number, seed))
        if problem.measure(here).fits:
            return here
    return None


def _least_of_all_states(problem: RecomputeProblem) -> Ints | None:
    """Return a sequence whose peak is the least of all, by best-first search over (ran, there); None when too large."""
    flow, size = problem.flow, [int(units) for units in problem.arrays.size]
    reads, writes, destroys, before = (
        [bit_set(row) for row in rows] for rows in (problem.reads, flow.op_writes, flow.op_destroys, flow.before)
    )
    destroyers = [bit_set(d for d in flow.value_destroyer[row].tolist() if d != NONE) for row in flow.op_writes]
    goal, survive = (1 << problem.ops) - 1, bit_set(np.flatnonzero(problem.arrays.survive))
    over = problem.original.machine.results == "over"
    if over and any((one | other).bit_count() > _FEW for one, other in zip(reads, writes, strict=True)):
        return None

    def units(there: int) -> int:
        return sum(size[v] for v in members(there))

    first = (0, bit_set(np.flatnonzero(problem.at_start)))
    came: dict[tuple[int, int], tuple[tuple[int, int], int] | None] = {first: None}
    done: set[tuple[int, int]] = set()
    heap = [(units(first[1]), 0, first, None)]
    pushed = 0
    best_peak = {first: heap[0][0]}
    while heap:
        peak, _, state, _ = heapq.heappop(heap)
        if state in done:
            continue
        done.add(state)
        ran, there = state
        if ran == goal and there & survive == survive:
            return _walk_back(came, state)
        if len(done) > _STATES:
            return None
        steps: list[tuple[tuple[int, int], int]] = [((ran, there & ~(1 << v)), -1) for v in members(there)]
        for op in range(problem.ops):
            again = bool(ran >> op & 1)
            if there & reads[op] != reads[op] or (again and not problem.arrays.again[op]) or destroyers[op] & ran:
                continue
            if not again and before[op] & ~ran:
                continue
            after = there & ~destroys[op] | writes[op]
            for dropped in subsets(after & (reads[op] | writes[op])) if over else (0,):
                steps.append(((ran | 1 << op, after & ~dropped), op))
        for step, op in steps:
            height = max(peak, units(step[1]))
            if step not in done and height < best_peak.get(step, ENDLESS):
                best_peak[step] = height
                came[step] = (state, op)
                pushed += 1
                heapq.heappush(heap, (height, -pushed, step, None))
    return None


def _walk_back(came: dict[tuple[int, int], tuple[tuple[int, int], int] | None], state: tuple[int, int]) -> Ints:
    sequence = []
    link = came[state]
    while link is not None:
        state, op = link
        if op >= 0:
            sequence.append(op)
        link = came[state]
    return np.array(sequence[::-1], np.int64)
