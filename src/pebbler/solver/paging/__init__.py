"""Placement and paging over several levels, with order search and recomputation, from mid-size to large graphs.

A plan is a sequence of ops plus, for every storage, the levels that hold a copy of its value at every moment. Given the
sequence, the cheapest route of one storage in the room that the others leave is a shortest path; all of them together are
improved a few at a time, guided by Lagrangian prices of room, and exactly by CP-SAT where that is small enough. Around that,
the sequence itself is searched: blocks shift, ops run again where that is cheaper than keeping or reloading their results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pebbler.game.plan import COMPUTE
from pebbler.solver.capacity import require_capacity
from pebbler.solver.paging.game import copies_are_direct, game_of, moves_of
from pebbler.solver.paging.greedy import Answer, demand_plan, program_order_plan
from pebbler.solver.paging.model import count_arcs, place_exactly
from pebbler.solver.paging.order import Placed, Sequences, initial_orders, order_is_forced
from pebbler.solver.problem import Problem, Search

__all__ = ["Row", "compare", "program_order_plan", "recomputation_never_pays", "solve_paging"]

EFFORT = 20.0  # of CP-SAT on one placement where that proves something, in its deterministic seconds; else a twentieth
FEW_ARCS = 6_000  # up to this the exact model pays for itself even where it proves nothing
PATIENCE = 4  # rounds of search without a better plan before it ends by itself


@dataclass(frozen=True)
class Row:
    """One line of `pebbler solve --compare`: what was allowed, and the energy of the best plan found under it."""

    name: str
    energy: float | None
    seconds: float


def solve_paging(search: Search) -> None:
    """Offer better and better plans until nothing improves or time is up; raise the bound where the order leaves no choice.

    Starts from program order, from rules of thumb, and from the best plan that the search holds already.

    >>> from pebbler import machine, workloads
    >>> search = Search(Problem.of(workloads.mlp(n=20, hidden=100), machine("notes-explicit")))
    >>> solve_paging(search)
    >>> search.energy
    257825
    """
    _Paging(search).run()


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
    for op in np.flatnonzero(~(flow.op_once | flow.op_in_place)).tolist():
        again = float(flow.op_cost[op])
        if anywhere:
            again += min(level.read for level in levels) * float(flow.value_size[flow.op_reads.row(op)].sum())
        units = float(flow.value_size[flow.op_writes.row(op)].sum())
        if again < units * (store + levels[-1].read + (0 if anywhere else levels[0].write)):
            return False
    return True


class _Paging:
    """One search: places sequences, offers what it finds, and counts on the search's clock."""

    def __init__(self, search: Search) -> None:
        self.search, self.problem = search, search.problem
        require_capacity(self.problem)
        self.best: Placed | None = None

    def run(self) -> None:
        search = self.search
        for answer in self._quick():
            if answer is not None:
                search.offer(*answer)
            if search.remaining <= 0:
                search.cut_off = True
                return
        self.prepare()
        self.place_orders()
        if self.best is None or search.done:
            return
        self.sweep()
        self.refine()
        self.search_orders(reruns=True)

    def _quick(self) -> Iterator[Answer | None]:
        yield program_order_plan(self.problem)
        yield demand_plan(self.problem, range(len(self.problem.graph.ops)), "farthest")

    def prepare(self) -> None:
        self.game = game_of(self.problem)
        self.sequences = Sequences(self.problem.graph, self.game, self.problem.seed, lambda: self.search.remaining)

    def keep(self, placed: Placed | None) -> bool:
        """Remember a placement if it is the best, and offer its plan."""
        if placed is None or (self.best is not None and placed.energy >= self.best.energy * (1 - 1e-12)):
            return False
        self.best = placed
        if placed.energy < self.search.energy:
            self.search.offer(*moves_of(self.problem, self.game, placed.track, placed.routes))
        return True

    def place_orders(self, only_program_order: bool = False) -> None:
        """Place every order that there is to start from, the plan at hand first."""
        starts = list(initial_orders(self.problem.graph).values())[: 1 if only_program_order else None]
        if self.search.best is not None and not only_program_order:
            moves = self.search.best.encode()
            starts.insert(0, moves.subject[moves.kind == COMPUTE])
        for order in starts:
            placed = self.sequences.place(order)
            self.keep(placed)
            if placed is not None and self.search.remaining > 0:
                self.keep(self.sequences.polish(placed, 2))
            if self.search.remaining <= 0:
                break

    def sweep(self) -> None:
        """Make operands again just before their use wherever that is cheaper."""
        assert self.best is not None
        swept = self.sequences.sweep_reruns(self.best)
        self.keep(swept)
        self.keep(self.sequences.polish(swept, 5))

    def refine(self) -> None:
        """Improve the placement of the best sequence, with priced room and, where it is small, exactly; bound it where allowed."""
        assert self.best is not None
        start = self.best
        bound, prices = self.sequences.price_room(start, 200)
        self.keep(self.sequences.polish(start, 10, prices))
        again = self.sequences.place(start.track.seq, prices)
        if again is not None:
            self.keep(self.sequences.polish(again, 10, prices))
        problem, proves = self.problem, self._order_is_everything(start)
        exact, proven = None, 0.0
        if proves or count_arcs(self.game, self.best.track) < FEW_ARCS:
            share, effort = (1.0, EFFORT) if proves else (0.2, 0.05 * EFFORT)
            seconds = share * self.search.remaining
            exact, proven = place_exactly(self.game, self.best, seconds, problem.threads, problem.seed, effort)
        self.keep(exact)
        if proves:
            self.search.raise_bound(
                max(bound, proven), "the only order there is, placed with priced room; recomputing never pays"
            )

    def _order_is_everything(self, placed: Placed) -> bool:
        """Whether a bound for this sequence holds for every plan."""
        return (
            len(self.problem.machine.level) == 2
            and copies_are_direct(self.game)
            and order_is_forced(self.problem.graph)
            and recomputation_never_pays(self.problem)
            and len(placed.track.seq) == len(self.problem.graph.ops)
        )

    def search_orders(self, reruns: bool) -> None:
        """Anneal over sequences, each time from the best so far, until several rounds bring nothing."""
        assert self.best is not None
        ops = len(self.problem.graph.ops)
        stale, heat, swept = 0, 0.3, -1.0
        while stale < PATIENCE and self.search.remaining > 0 and not self.search.done:
            before = self.best.energy
            if reruns and swept != before:
                self.sweep()
                swept = self.best.energy
            rounds = min(20_000, 4_000_000 // (50 + ops))
            found = self.sequences.search(self.best, rounds, heat / (1 + ops), reruns=reruns)
            self.keep(found)
            self.keep(self.sequences.polish(found, 5))
            better = self.best.energy < before
            if better and self.search.remaining > 0:
                self.refine()
            stale = 0 if better else stale + 1
            heat = 0.3 if better else (0.0 if heat == 0.3 else 1.0)
        self.search.cut_off |= self.search.remaining <= 0


def compare(problem: Problem, time_limit: float = 20.0) -> list[Row]:
    """Return what each further freedom is worth: order as given, placement, order, recomputation; and the bound known here.

    >>> from pebbler import machine, workloads
    >>> [row.name for row in compare(Problem.of(workloads.chain(3), machine("red-blue")), 5)]
    ['program order', 'greedy', 'best placement of program order', 'best order', '+ recomputation', 'bound']
    """
    rows: list[Row] = []
    whole = Search(problem, time_limit)
    require_capacity(problem)

    def add(name: str, search: Search) -> None:
        rows.append(Row(name, None if search.best is None else search.energy, whole.elapsed))

    limited = Search(problem, time_limit * 0.3)
    answer = program_order_plan(problem)
    if answer is not None:
        limited.offer(*answer)
    add("program order", limited)
    paging = _Paging(limited)
    paging.prepare()
    greedy = Search(problem)
    if problem.machine.operands == "fastest":
        answer = demand_plan(problem, range(len(problem.graph.ops)), "farthest")
    else:
        first_come = paging.sequences.place(np.arange(len(problem.graph.ops)))
        answer = None if first_come is None else moves_of(problem, paging.game, first_come.track, first_come.routes)
    if answer is not None:
        greedy.offer(*answer)
        limited.offer(*answer)
    add("greedy", greedy)
    paging.place_orders(only_program_order=True)
    if paging.best is not None:
        paging.refine()
    add("best placement of program order", limited)
    limited.time_limit = time_limit * 0.6
    if paging.best is not None:
        paging.place_orders()
        paging.search_orders(reruns=False)
    add("best order", limited)
    limited.time_limit = time_limit
    if paging.best is not None:
        paging.search_orders(reruns=True)
    add("+ recomputation", limited)
    rows.append(Row("bound", limited.bound, whole.elapsed))
    return rows
