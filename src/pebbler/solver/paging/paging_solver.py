"""The paging solver: which sequences are paged, improved and annealed, in which order, until nothing improves or time is up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pebbler.game.plan import Plan
from pebbler.solver.capacity import require_capacity
from pebbler.solver.paging.demand_paging import demand_plan, program_order_plan
from pebbler.solver.paging.paging_arrays import copies_are_direct
from pebbler.solver.paging.sequence_search import PagedSequence, PagingSearch
from pebbler.solver.paging.start_orders import order_is_forced, start_orders
from pebbler.solver.problem import Problem, Search

__all__ = ["PagingSolver", "recomputation_never_pays", "solve_paging"]

EFFORT = 20.0  # of CP-SAT on one sequence where that proves something, in its deterministic seconds; else a twentieth
FEW_ARCS = 6_000  # up to this the exact model pays for itself even where it proves nothing
PATIENCE = 4  # rounds of search without a better plan before it ends by itself


def solve_paging(search: Search) -> None:
    """Offer better and better plans until nothing improves or time is up; raise the bound where the order leaves no choice.

    Starts from program order, from list schedules, and from the best plan that the search holds already.

    >>> from pebbler import machine, workloads
    >>> search = Search(Problem.of(workloads.mlp(n=20, hidden=100), machine("notes-explicit")))
    >>> solve_paging(search)
    >>> search.energy
    257825
    """
    PagingSolver(search).run()


def recomputation_never_pays(problem: Problem) -> bool:
    """Whether running any op again costs at least what storing its results in the slowest level and fetching them back does.

    Then every second run can be replaced by those copies: the slowest level has room without end, and where the results came to lie
    the copies do.

    >>> from pebbler import machine, workloads
    >>> recomputation_never_pays(Problem.of(workloads.chain(3), machine("red-blue")))
    False
    """
    flow, levels = problem.graph.dataflow, problem.machine.level
    if levels[-1].capacity is not None:
        return False
    anywhere = problem.machine.operands == "any"
    store = max(level.read for level in levels) + levels[-1].write
    for op in np.flatnonzero(flow.op_can_rerun).tolist():
        again = float(flow.op_cost[op])
        if anywhere:
            again += min(level.read for level in levels) * float(flow.value_size[flow.op_reads.row(op)].sum())
        units = float(flow.value_size[flow.op_writes.row(op)].sum())
        if again < units * (store + levels[-1].read + (0 if anywhere else levels[0].write)):
            return False
    return True


class PagingSolver:
    """One run of the solver: pages sequences, offers what it finds to the search, and keeps its time limit."""

    def __init__(self, search: Search) -> None:
        self.search, self.problem = search, search.problem
        require_capacity(self.problem)
        self.best: PagedSequence | None = None

    def run(self) -> None:
        """Offer the simple plans, then everything else."""
        search = self.search
        for found in self._simple_plans():
            search.offer_plan(found)
            if search.remaining <= 0:
                search.cut_off = True
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
        self.paging = PagingSearch(self.problem, lambda: self.search.remaining)

    def keep(self, paged: PagedSequence | None) -> None:
        """Remember a paged sequence if it is the best, and offer its plan."""
        if paged is None or (self.best is not None and paged.energy >= self.best.energy * (1 - 1e-12)):
            return
        self.best = paged
        if paged.energy < self.search.energy:
            self.search.offer_plan(self.paging.plan(paged))

    def page_start_orders(self, only_program_order: bool = False) -> None:
        """Page every order that there is to start from, the plan at hand first."""
        starts = start_orders(self.problem.graph)[: 1 if only_program_order else None]
        if self.search.best is not None and not only_program_order:
            starts.insert(0, self.search.best.moves.order)
        for order in starts:
            paged = self.paging.page(order)
            self.keep(paged)
            if paged is not None and self.search.remaining > 0:
                self.keep(self.paging.improve(paged, 2))
            if self.search.remaining <= 0:
                break

    def try_reruns(self) -> None:
        """Make operands again just before their use wherever that is cheaper."""
        assert self.best is not None
        found = self.paging.try_reruns(self.best)
        self.keep(found)
        self.keep(self.paging.improve(found, 5))

    def refine(self) -> None:
        """Improve the residency of the best sequence, with priced room and, where it is small, exactly; bound it where allowed."""
        from pebbler.solver.paging.residency_model import count_arcs, page_exactly

        assert self.best is not None
        start = self.best
        bound, prices = self.paging.price_capacity(start, 200)
        self.keep(self.paging.improve(start, 10, prices))
        again = self.paging.page(start.sequence, prices)
        if again is not None:
            self.keep(self.paging.improve(again, 10, prices))
        proves = self._order_is_everything(start)
        exact, proven = None, 0.0
        if proves or count_arcs(self.paging.arrays, self.best.accesses) < FEW_ARCS:
            share, effort = (1.0, EFFORT) if proves else (0.2, 0.05 * EFFORT)
            exact, proven = page_exactly(self.paging, self.best, share * self.search.remaining, effort)
        self.keep(exact)
        if proves:
            words = "the only order there is, placed with priced room; recomputing never pays"
            self.search.raise_bound(self.problem.scale.lowered(bound), words)
            self.search.raise_bound(self.problem.scale.lowered(proven), f"{words} (searched by CP-SAT)")

    def _order_is_everything(self, paged: PagedSequence) -> bool:
        """Whether a bound for this sequence holds for every plan."""
        return (
            len(self.problem.machine.level) == 2
            and self.problem.plain
            and copies_are_direct(self.paging.arrays)
            and order_is_forced(self.problem.graph)
            and recomputation_never_pays(self.problem)
            and len(paged.sequence) == len(self.problem.graph.ops)
        )

    def anneal(self, reruns: bool) -> None:
        """Anneal sequences, each time from the best so far, until several rounds bring nothing."""
        assert self.best is not None
        ops = len(self.problem.graph.ops)
        stale, heat, swept = 0, 0.3, -1.0
        while stale < PATIENCE and self.search.remaining > 0 and not self.search.done:
            before = self.best.energy
            if reruns and swept != before:
                self.try_reruns()
                swept = self.best.energy
            rounds = min(20_000, 4_000_000 // (50 + ops))
            found = self.paging.anneal(self.best, rounds, heat / (1 + ops), reruns=reruns)
            self.keep(found)
            self.keep(self.paging.improve(found, 5))
            better = self.best.energy < before
            if better and self.search.remaining > 0:
                self.refine()
            stale = 0 if better else stale + 1
            heat = 0.3 if better else (0.0 if heat == 0.3 else 1.0)
        self.search.cut_off |= self.search.remaining <= 0
