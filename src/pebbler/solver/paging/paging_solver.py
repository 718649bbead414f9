"""The paging solver: which sequences are paged, improved and annealed, in which order, until nothing improves or time is up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from ortools.sat.python import cp_model

from pebbler.game.plan import Plan
from pebbler.referee.programs.pages import pages_excluded
from pebbler.solver.bounds.bound import Bound, certified, written_price
from pebbler.solver.capacity import require_capacity
from pebbler.solver.cp_sat import SearchedBound, new_solver
from pebbler.solver.paging.demand_paging import demand_plan, program_order_plan
from pebbler.solver.paging.kernels.residency import (
    AFTER,
    AT_START,
    BOUNDED,
    DURING,
    INFINITE,
    RESULT,
    UNTIL_FIRST,
    Accesses,
    PagingArrays,
    empty_residency,
    total_cost,
)
from pebbler.solver.paging.kernels.residency_search import account_all
from pebbler.solver.paging.paging_arrays import copies_are_direct
from pebbler.solver.paging.sequence_search import PagedSequence, PagingSearch
from pebbler.solver.paging.start_orders import start_orders
from pebbler.solver.problem import Problem, Search

__all__ = ["PagingSolver", "PagingTurns", "solve_paging"]

EFFORT = 20.0  # of CP-SAT on one sequence where that proves something, in its deterministic seconds; else a twentieth
FEW_ARCS = 6_000  # up to this the exact model pays for itself even where it proves nothing
PATIENCE = 4  # rounds of search without a better plan before it ends by itself


def solve_paging(search: Search, seconds_left: Callable[[], float] | None = None) -> None:
    """Offer better and better plans until nothing improves or time is up; raise the bound where the order leaves no choice.

    Starts from program order, from list schedules, and from the best plan that the search holds already.

    >>> from pebbler import machine, workloads
    >>> search = Search(Problem.of(workloads.mlp(n=20, hidden=100), machine("notes-explicit")))
    >>> solve_paging(search)
    >>> search.energy
    257825
    """
    PagingSolver(search, seconds_left).run()


def _certified_pages(problem: Problem, words: str, prices: npt.NDArray[np.float64]) -> Bound:
    """Return the exact bound from prices of room in the fast level; a moment has the price of the slot after its op."""
    ops = len(problem.graph.ops)
    after = prices[2 : 2 * ops + 2 : 2]
    ways = [np.zeros(ops), after, after + prices[1 : 2 * ops + 1 : 2]]
    listed = [[[op, str(written_price(float(way[op])))] for op in np.flatnonzero(way > 0).tolist()] for way in ways]
    return max((certified(problem, words, "pages", prices=one) for one in listed), key=lambda one: one.value)


class PagingSolver:
    """One run of the solver: it pages sequences, offers plans to the search, and keeps its time, or what `seconds_left` says."""

    def __init__(self, search: Search, seconds_left: Callable[[], float] | None = None) -> None:
        self.search, self.problem = search, search.problem
        self.seconds_left: Callable[[], float] = seconds_left or (lambda: search.remaining)
        require_capacity(self.problem)
        self.best: PagedSequence | None = None

    def run(self) -> None:
        """Offer the simple plans, then everything else."""
        search = self.search
        for found in self._simple_plans():
            search.offer_plan(found)
            if self.seconds_left() <= 0:
                search.cut_off |= search.remaining <= 0
                return
        self.prepare()
        self.page_start_orders()
        if self.best is None or search.done:
            return
        self.try_reruns()
        self.refine()
        self.anneal(reruns=True)

    def _simple_plans(self) -> Iterator[Plan | None]:
        yield program_order_plan(self.problem)
        yield demand_plan(self.problem, range(len(self.problem.graph.ops)), "farthest")

    def prepare(self) -> None:
        """Turn the problem into arrays."""
        self.paging = PagingSearch(self.problem, lambda: self.seconds_left())

    def keep(self, paged: PagedSequence | None) -> None:
        """Remember a paged sequence if it is the best, and offer its plan."""
        if paged is None or (self.best is not None and paged.energy >= self.best.energy * (1 - 1e-12)):
            return
        self.best = paged
        if paged.energy < self.search.energy:
            self.search.offer_plan(self.paging.plan(paged))

    def page_start_orders(self, only_program_order: bool = False) -> None:
        """Page every start order, that of the best known plan first."""
        starts = start_orders(self.problem.graph)[: 1 if only_program_order else None]
        if self.search.best is not None and not only_program_order:
            starts.insert(0, self.search.best.moves.order)
        for order in starts:
            paged = self.paging.page(order)
            self.keep(paged)
            if paged is not None and self.seconds_left() > 0:
                self.keep(self.paging.improve(paged, 2))
            if self.seconds_left() <= 0:
                break

    def try_reruns(self) -> None:
        """Make operands again just before their use wherever that is cheaper."""
        assert self.best is not None
        found = self.paging.try_reruns(self.best)
        self.keep(found)
        self.keep(self.paging.improve(found, 5))

    def refine(self) -> None:
        """Improve the residency of the best sequence, with priced room and, where it is small, exactly; bound it where allowed."""

        assert self.best is not None
        start = self.best
        _, prices = self.paging.price_capacity(start, 200)
        self.keep(self.paging.improve(start, 10, prices))
        again = self.paging.page(start.sequence, prices)
        if again is not None:
            self.keep(self.paging.improve(again, 10, prices))
        proves = self._order_is_everything(start)
        exact, searched = None, SearchedBound(0.0)
        if proves or count_arcs(self.paging.arrays, self.best.accesses) < FEW_ARCS:
            share, effort = (1.0, EFFORT) if proves else (0.2, 0.05 * EFFORT)
            exact, searched = page_exactly(self.paging, self.best, share * self.seconds_left(), effort)
        self.keep(exact)
        if proves:
            words = "the only order there is, placed with priced room; recomputing never pays"
            found = _certified_pages(self.problem, words, prices[0])
            self.search.raise_bound(found.value, found.proof, found.certificate)
            self.search.raise_bound(self.problem.scale.lowered(searched.value), searched.proof(words))

    def _order_is_everything(self, paged: PagedSequence) -> bool:
        """Whether a bound for this sequence holds for every plan."""
        return (
            not pages_excluded(self.problem.task)
            and self.problem.plain
            and copies_are_direct(self.paging.arrays)
            and len(paged.sequence) == len(self.problem.graph.ops)
        )

    def anneal(self, reruns: bool, patience: float = PATIENCE) -> None:
        """Anneal sequences, each time from the best so far, until so many rounds bring nothing."""
        assert self.best is not None
        ops = len(self.problem.graph.ops)
        stale, heat, swept = 0, 0.3, -1.0
        while stale < patience and self.seconds_left() > 0 and not self.search.done:
            before = self.best.energy
            if reruns and swept != before:
                self.try_reruns()
                swept = self.best.energy
            rounds = min(20_000, 4_000_000 // (50 + ops))
            found = self.paging.anneal(self.best, rounds, heat / (1 + ops), reruns=reruns)
            self.keep(found)
            self.keep(self.paging.improve(found, 5))
            better = self.best.energy < before
            if better and self.seconds_left() > 0:
                self.refine()
            stale = 0 if better else stale + 1
            heat = 0.3 if better else (0.0 if heat == 0.3 else 1.0)
        self.search.cut_off |= self.search.remaining <= 0


class PagingTurns:
    """Annealing of paged sequences in turns: each begins with the best plan that the search has, if it is a better one.

    >>> from pebbler import machine, workloads
    >>> search = Search(Problem.of(workloads.mlp(n=20, hidden=100), machine("notes-explicit")), 5)
    >>> PagingTurns(search).take(lambda: min(search.remaining, 0.1))
    True
    >>> search.energy < 400_000
    True
    """

    def __init__(self, search: Search) -> None:
        self.solver = PagingSolver(search)
        self.prepared = False

    def take(self, seconds_left: Callable[[], float]) -> bool:
        """Anneal on for some time; return whether there is more to do."""
        solver, best = self.solver, self.solver.search.best
        solver.seconds_left = seconds_left
        if not self.prepared:
            solver.prepare()
            self.prepared = True
        if solver.best is None or solver.search.energy < solver.best.energy * (1 - 1e-12):
            order = np.arange(len(solver.problem.graph.ops)) if best is None else best.moves.order
            solver.keep(solver.paging.page(order))
        if solver.best is not None:
            solver.anneal(reruns=True, patience=math.inf)
        return solver.best is not None


# The best residency for a given sequence, exactly: one path over states per storage, tied together by capacities, in CP-SAT
# For two levels the optimum of the model is the optimum of the sequence: slow memory has no limit, so copies may as well be made
# right after a value's last use or right before its next. With more levels a value moves between levels only next to its own
# uses, so the model's optimum is the best of that kind.


MOST_ARCS = 60_000  # above this, building the model alone takes longer than local search needs
Nodes = dict[int, cp_model.IntVar]


def count_arcs(arrays: PagingArrays, accesses: Accesses) -> int:
    """Return the size of the model of a sequence: how many changes of state its variables choose from.

    >>> from pebbler import machine, workloads
    >>> from pebbler.solver.paging.kernels.residency import list_accesses
    >>> from pebbler.solver.paging.paging_arrays import arrays_of
    >>> from pebbler.solver.problem import Problem
    >>> arrays = arrays_of(Problem.of(workloads.chain(1), machine("red-blue")))
    >>> count_arcs(arrays, list_accesses(arrays, np.arange(3)))
    208
    """
    return int(2 * (arrays.copy_price < INFINITE).sum() * len(accesses.when))


def page_exactly(
    search: PagingSearch, paged: PagedSequence, seconds: float, effort: float = 60.0
) -> tuple[PagedSequence | None, SearchedBound]:
    """Return the sequence with the best residency that CP-SAT finds, and a lower bound on all of that kind.

    `effort` is in CP-SAT's deterministic time, about seconds, so that the answer does not depend on the clock unless `seconds` do.

    >>> from pebbler import machine, workloads
    >>> from pebbler.solver.problem import Problem
    >>> search = PagingSearch(Problem.of(workloads.chain(12), machine("red-blue")), lambda: 1.0)
    >>> best, bound = page_exactly(search, search.page(np.arange(25)), 10)
    >>> best.energy, round(bound.value)  # 25 computes, N0 twice, one store and its load
    (425.0, 425)
    """
    if seconds <= 0.05 or count_arcs(search.arrays, paged.accesses) > MOST_ARCS:
        return None, SearchedBound(0.0)
    return _ResidencyModel(search.arrays, paged).solve(seconds, search.problem.seed, effort)


@dataclass
class _ResidencyModel:
    arrays: PagingArrays
    paged: PagedSequence
    model: cp_model.CpModel = field(default_factory=cp_model.CpModel)

    def __post_init__(self) -> None:
        arrays, accesses = self.arrays, self.paged.accesses
        self.states = len(arrays.masks)
        self.bits = [[at for at in range(len(arrays.capacity)) if mask >> at & 1] for mask in arrays.masks.tolist()]
        self.steps = len(accesses.sequence)
        self.prices: list[tuple[cp_model.IntVar, float]] = []
        self.load: dict[tuple[int, int], list[tuple[cp_model.IntVar, int]]] = {}
        self.shared: dict[int, Nodes] = {}  # per position of an op with several results: the level they go to
        self.before: dict[int, Nodes] = {}
        self.after: dict[int, Nodes] = {}
        self.made: dict[int, dict[tuple[int, int], cp_model.IntVar]] = {}  # per access: (state before, level)
        self.first: list[Nodes] = []
        self.start: list[Nodes] = []
        for storage in range(len(arrays.storage)):
            self._add_storage(storage)
        reserved = empty_residency(arrays, accesses).used
        for (level, slot), terms in self.load.items():
            room = int(arrays.capacity[level] - reserved[level, slot])
            if sum(size for _, size in terms) > room:
                self.model.add(sum(var * size for var, size in terms) <= room)

    # One storage --------------------------------------------------------------------------------------------------------

    def _nodes(self, allowed: list[int]) -> Nodes:
        nodes = {state: self.model.new_bool_var("") for state in allowed}
        self.model.add_exactly_one(list(nodes.values()))
        return nodes

    def _arcs(self, tails: Nodes, heads: Nodes, size: int) -> None:
        """Let one unit flow from the tail that holds to the head that holds, at the price of the copies."""
        out: dict[int, list[cp_model.IntVar]] = {tail: [] for tail in tails}
        into: dict[int, list[cp_model.IntVar]] = {head: [] for head in heads}
        for tail in tails:
            for head in heads:
                price = self.arrays.copy_price[tail, head]
                if price < INFINITE:
                    arc = self.model.new_bool_var("")
                    out[tail].append(arc)
                    into[head].append(arc)
                    if price * size > 0:
                        self.prices.append((arc, float(price * size)))
        for node, arcs in [*((tails[s], out[s]) for s in tails), *((heads[s], into[s]) for s in heads)]:
            self.model.add(sum(arcs) == node)

    def _stay(self, nodes: Nodes, size: int, a: int, b: int, *, skip_fastest: bool = False) -> None:
        for state, var in nodes.items():
            for level in self.bits[state]:
                if size > 0 and self.arrays.capacity[level] < BOUNDED and not (skip_fastest and level == 0):
                    for slot in range(a, b + 1):
                        self.load.setdefault((level, slot), []).append((var, size))

    def _add_storage(self, storage: int) -> None:
        arrays, accesses = self.arrays, self.paged.accesses
        begin, wraps, value, survives = arrays.storage[storage].tolist()
        lo, hi = int(accesses.start[storage]), int(accesses.start[storage + 1])
        size = int(arrays.size[value]) if value >= 0 else 0
        some = list(range(1, self.states))
        start = self._nodes(some if wraps else [begin])
        now = self._nodes([0, *some] if value >= 0 else [0])
        self.start.append(start)
        self.first.append(now)
        self._arcs(start, now, size)
        if wraps:
            self._stay(start, size, 0, 0)
        self._stay(now, size, 1, 2 * int(accesses.when[lo]) if lo < hi else 2 * self.steps + 1)
        for e in range(lo, hi):
            end = 2 * int(accesses.when[e + 1]) if e + 1 < hi else 2 * self.steps + 1
            now = self._add_access(e, now, end)
        if survives and not wraps and 0 in now:
            self.model.add(now[0] == 0)
        if wraps:
            for state in now:
                self.model.add(now[state] == start[state] if state in start else now[state] == 0)

    def _add_access(self, e: int, now: Nodes, end: int) -> Nodes:
        """Add one op's access to a storage; return the states after it."""
        arrays, accesses = self.arrays, self.paged.accesses
        t, k = int(accesses.when[e]), int(accesses.operand[e])
        _, reads, old, made, destroys = arrays.operand[k].tolist()
        size = int(arrays.size[old]) if old >= 0 else 0
        allowed = [0] if old < 0 else list(range(self.states))
        if reads:
            allowed = [state for state in allowed if state and (not arrays.fastest or arrays.masks[state] & 1)]
        before = self.before[e] = self._nodes(allowed)
        self._arcs(now, before, size)
        again = arrays.fastest and made >= 0 and not destroys
        self._stay(before, size, 2 * t + 1, 2 * t + 1, skip_fastest=bool(arrays.fastest and reads))
        if not destroys:
            self._stay(before, size, 2 * t + 2, 2 * t + 2, skip_fastest=bool(arrays.fastest and reads) or again)
        if reads and not arrays.fastest:
            self.prices += [(var, float(reads * size * arrays.state_read[state])) for state, var in before.items()]
        middle = before
        if made >= 0:
            size = int(arrays.size[made])
            middle = self._add_result(e, t, before, size, bool(destroys))
        after = self.after[e] = self._nodes(list(range(self.states)))
        self._arcs(middle, after, size)
        self._stay(after, size, 2 * t + 3, end)
        return after

    def _add_result(self, e: int, t: int, before: Nodes, size: int, destroys: bool) -> Nodes:
        """Add the choice of the level that a result goes to; return the states right after."""
        arrays = self.arrays
        levels = [0] if arrays.fastest else range(len(arrays.capacity))
        made = self.made[e] = {}
        for state in before:
            for level in levels:
                if arrays.join[0 if destroys else state, level] >= 0:
                    made[state, level] = self.model.new_bool_var("")
        for state, var in before.items():
            self.model.add(sum(arc for (tail, _), arc in made.items() if tail == state) == var)
        for (state, level), arc in made.items():
            if not arrays.fastest:
                if size * arrays.write[level] > 0:
                    self.prices.append((arc, float(size * arrays.write[level])))
                held = not destroys and level in self.bits[state]
                if size > 0 and not held and arrays.capacity[level] < BOUNDED:
                    self.load.setdefault((level, 2 * t + 2), []).append((arc, size))
        if not arrays.fastest and arrays.op_makes[self.paged.sequence[t]] > 1:
            shared = self.shared.get(t) or self.shared.setdefault(t, self._nodes(list(levels)))
            for level, var in shared.items():
                self.model.add(sum(arc for (_, to), arc in made.items() if to == level) == var)
        middle = self._nodes(sorted({int(arrays.join[0 if destroys else state, level]) for state, level in made}))
        for state, var in middle.items():
            arcs = [arc for (tail, level), arc in made.items() if arrays.join[0 if destroys else tail, level] == state]
            self.model.add(sum(arcs) == var)
        return middle

    # Solving ----------------------------------------------------------------------------------------------------------

    def solve(self, seconds: float, seed: int, effort: float) -> tuple[PagedSequence | None, SearchedBound]:
        fixed = float(self.arrays.op_cost[self.paged.sequence].sum())
        scale, slack = _scale([price for _, price in self.prices])
        self.model.minimize(sum(var * round(price * scale) for var, price in self.prices))
        self._hint()
        solver = new_solver(seconds, effort, seed)
        solver.parameters.interleave_search = False
        status = solver.solve(self.model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, SearchedBound(0.0)
        bound = fixed + max(0.0, (solver.best_objective_bound - slack) / scale)
        return self._read(solver), SearchedBound(bound, solver.num_branches)

    def _hint(self) -> None:
        residency = self.paged.residency
        for e, nodes in self.before.items():
            self.model.add_hint(nodes[int(residency.access[e, DURING])], True)
        for e, nodes in self.after.items():
            self.model.add_hint(nodes[int(residency.access[e, AFTER])], True)
        for e, made in self.made.items():
            self.model.add_hint(made[int(residency.access[e, DURING]), int(residency.access[e, RESULT])], True)
        for storage in range(len(self.first)):
            self.model.add_hint(self.first[storage][int(residency.storage[storage, UNTIL_FIRST])], True)
            self.model.add_hint(self.start[storage][int(residency.storage[storage, AT_START])], True)

    def _read(self, solver: cp_model.CpSolver) -> PagedSequence:
        arrays, accesses = self.arrays, self.paged.accesses
        residency = empty_residency(arrays, accesses)

        def chosen(nodes: Nodes) -> int:
            return next(state for state, var in nodes.items() if solver.boolean_value(var))

        for e in range(len(accesses.when)):
            residency.access[e, DURING], residency.access[e, AFTER] = chosen(self.before[e]), chosen(self.after[e])
            if e in self.made:
                residency.access[e, RESULT] = next(
                    level for (_, level), var in self.made[e].items() if solver.boolean_value(var)
                )
                t = int(accesses.when[e])
                if residency.result_level[t] >= 0:
                    residency.result_level[t] = residency.access[e, RESULT]
        for storage in range(len(arrays.storage)):
            residency.storage[storage] = chosen(self.first[storage]), chosen(self.start[storage])
        account_all(arrays, accesses, residency)
        return PagedSequence(accesses, residency, total_cost(arrays, accesses, residency))


def _scale(prices: list[float]) -> tuple[float, float]:
    """Return a factor that makes all prices integers, and how far their sum may be off where no small one does."""
    array: npt.NDArray[np.float64] = np.array(prices or [0.0])
    for scale in (1.0, 2.0, 4.0, 8.0, 10.0, 100.0, 1000.0):
        whole = np.abs(array * scale - np.rint(array * scale)) <= 1e-15 * array * scale
        if whole.all() and array.max() * scale < 2**45:
            return scale, 0.0
    scale = 2.0 ** math.floor(math.log2(2**40 / max(array.max(), 1e-300)))
    return scale, 0.5 * len(prices)
