"""The gain from each kind of optimisation, row by row: the table of `pebbler solve --compare`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.machine import Machine
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.solver.case import Case
from pebbler.solver.methods import chosen
from pebbler.solver.paging.demand_paging import demand_plan
from pebbler.solver.paging.paging_solver import PagingSolver
from pebbler.solver.problem import Search
from pebbler.solver.program_order import program_order, program_order_energy, program_order_words
from pebbler.solver.tiling import TransformSearch, solve_tiled
from pebbler.solver.tiling.candidates import Candidate, candidate_of
from pebbler.solver.tiling.list_order import forward_sweeps
from pebbler.solver.tiling.node_graph import NodeGraph
from pebbler.solver.tiling.transform_space import Transform

__all__ = ["AblationRow", "compare"]

References = Mapping[str, Sequence[str]]
Report = Callable[[str], None]


@dataclass(frozen=True)
class AblationRow:
    """One line: the freedoms, the energy of the best plan found with them (None: illegal or none found), and a remark."""

    name: str
    energy: float | None
    note: str = ""


def compare(
    search: Search,
    references: References | None = None,
    report: Report | None = None,
    seconds: float | None = None,
) -> list[AblationRow]:
    """Return the rows for a finished search: from program order, adding one freedom at a time, to its plan and its bound.

    `references` are orders of op names to compare with, by name; each applies to graphs that have exactly these ops. The rows take
    `seconds` together, as long as the search had by default. What they find is offered to the search, so that no row is better
    than its plan.

    >>> from pebbler import workloads
    >>> from pebbler.solver import solve_search
    >>> [row.name for row in compare(solve_search("chain:length=4", "red-blue"))]
    ['program order', 'greedy', 'best placement of program order', 'best order', '+ recomputation', 'bound']
    >>> step = workloads.mlp(n=4, hidden=64)
    >>> early = [op.name for op in step.ops]
    >>> early.insert(6, early.pop(early.index("upd_W2")))
    >>> rows = compare(solve_search(step, "notes", time_limit=2), references={"W2 early": early})
    >>> [row.name for row in rows][1:]
    ['W2 early', 'best whole-tensor order', '+ fusion', '+ tiling', '+ reversed sweep', '+ recomputation', 'bound']
    >>> rows[1].note
    'move 7: upd_W2 overwrites W2 (version 0) before bwd_dh reads it'
    """
    problem = search.problem
    if seconds is None:
        seconds = 30.0 if search.time_limit is None else search.time_limit
    search.time_limit = search.elapsed + seconds
    case = search.case or Case(problem)
    if any(method.transforms for method, _ in chosen(case)):
        rows = _TransformAblation(search, seconds, references or {}, report or (lambda name: None)).run(case.tiled)
    elif not case.one_level:
        rows = _ablate_paging(search, seconds)
    else:
        base = program_order_energy(search)
        words = program_order_words(problem.machine) if base is not None else "does not fit"
        rows = [AblationRow("program order", base, words), AblationRow("+ recomputation", search.energy)]
    if search.energy < (rows[-1].energy or math.inf):
        name = "" if search.best is None else search.best.graph.name
        rows[-1] = AblationRow(rows[-1].name, search.energy, name)
    return [*rows, AblationRow("bound", search.bound, search.proof)]


def _part(search: Search, seconds: float) -> Search:
    """Return a separate search that offers its plans to this search too, within the remaining time."""

    def pass_on(inner: Search) -> None:
        search.offer_plan(inner.best)

    return search.part(min(seconds, search.remaining), pass_on)


def _ablate_paging(search: Search, time_limit: float) -> list[AblationRow]:
    """Return the best energy found as more is left free: nothing, residency, order, recomputation."""
    rows: list[AblationRow] = []
    problem = search.problem

    def add(name: str, search: Search, note: str = "") -> None:
        rows.append(AblationRow(name, None if search.best is None else search.energy, note))

    limited = _part(search, time_limit * 0.3)
    limited.offer_plan(program_order(problem))
    add("program order", limited, program_order_words(problem.machine))
    solver = PagingSolver(limited)
    solver.prepare()
    greedy = Search(problem)
    if problem.machine.operands == "fastest":
        found = demand_plan(problem, range(len(problem.graph.ops)), "farthest")
    else:
        first_come = solver.paging.page(np.arange(len(problem.graph.ops)))
        found = None if first_come is None else solver.paging.plan(first_come)
    greedy.offer_plan(found)
    limited.offer_plan(found)
    add("greedy", greedy)
    solver.page_start_orders(only_program_order=True)
    if solver.best is not None:
        solver.refine()
    add("best placement of program order", limited)
    limited.time_limit = time_limit * 0.6
    if solver.best is not None:
        solver.page_start_orders()
        solver.anneal(reruns=False)
    add("best order", limited)
    limited.time_limit = time_limit
    if solver.best is not None:
        solver.anneal(reruns=True)
    add("+ recomputation", limited)
    return rows


class _TransformAblation:
    """The rows of a graph that may be tiled or fused, or that runs on caches."""

    def __init__(self, search: Search, seconds: float, references: References, report: Report) -> None:
        self.search, self.problem, self.seconds = search, search.problem, seconds
        self.report, self.references = report, references
        self.rows: list[AblationRow] = []
        self.lowest = math.inf

    def run(self, tiled: bool) -> list[AblationRow]:
        """Return the rows; unless `tiled`, those for plans of the graph as it is."""
        problem = self.problem
        base = program_order_energy(self.search)
        words = program_order_words(problem.machine)
        self._add("program order", lambda: math.inf if base is None else base, words)
        self._add_references()
        self._add("best whole-tensor order", lambda: self._best(0.15, fused=False))
        if problem.machine.management == "recency":
            return self.rows
        if tiled:
            self._add_tilings()
        again = _part(self.search, self.seconds * 0.4)
        self.report("+ recomputation")
        if again.remaining > 0:
            solve_tiled(again, tile="auto" if tiled else "none")
        self._add("+ recomputation", lambda: again.energy, "" if again.best is None else again.best.graph.name)
        return self.rows

    def _add_tilings(self) -> None:
        """Add what fusion and tiling bring, tiles visited from first to last and then in the best directions."""
        self._add("+ fusion", lambda: self._best(0.1, fused=True))
        part = _part(self.search, self.seconds * 0.35)
        transforms = TransformSearch(part, self.problem.space, self.seconds * 0.25)
        if part.remaining > 0:
            transforms.explore(recompute=False)
        self._add("+ tiling", lambda: self._forward(transforms), "every sweep over the tiles from first to last")
        self._add("+ reversed sweep", lambda: part.energy, transforms.best.describe())

    def _add(self, name: str, energy: Callable[[], float], note: str = "") -> None:
        """Add a row; whatever is allowed includes what was allowed before it."""
        self.report(name)
        found = energy()
        self.lowest = min(self.lowest, found)
        note = "no time was left" if found == math.inf and self.search.remaining == 0 else note
        self.rows.append(AblationRow(name, None if self.lowest == math.inf else self.lowest, note))

    def _add_references(self) -> None:
        """Add the reference orders, for graphs that have their ops."""
        graph = self.problem.graph
        arena = Machine("arena", graph.unit, self.problem.machine.level[-1:], operands="any")
        for title, order in self.references.items():
            if sorted(order) != sorted(graph.op_names):
                continue
            judgement = check(Plan.in_order(graph, arena, order, steady=False))
            if judgement.legal:
                energy = self._energy_of(np.array([graph.op_numbers[op] for op in order], np.int64))
                self.lowest = min(self.lowest, energy)
                self.rows.append(AblationRow(title, energy))
            else:
                self.rows.append(AblationRow(title, None, judgement.error or ""))

    def _energy_of(self, order: Ints) -> float:
        """Return the energy of an order of the graph as it is; on an explicit machine with a quick placement."""
        nodes = NodeGraph.of(self.problem.graph)
        assert nodes is not None
        return self._offered(candidate_of(self.problem, nodes, given=order))

    def _offered(self, candidate: Candidate | None) -> float:
        """Return a candidate's energy, infinite for none, having offered its plan to the search."""
        if candidate is None:
            return math.inf
        if candidate.energy < self.search.energy:
            moves, start = candidate.moves()
            self.search.offer(moves, start, candidate.graph)
        return candidate.energy

    def _best(self, share: float, *, fused: bool) -> float:
        """Return the best order of the graph as it is, or with all that can be fused away."""
        part = _part(self.search, share * self.seconds)
        if part.remaining == 0:
            return math.inf
        space = self.problem.space
        transform = TransformSearch(part, space, 0.0).fused() if fused else Transform()
        nodes = space.nodes(transform)
        candidate = None if nodes is None else candidate_of(self.problem, nodes)
        if candidate is not None:
            candidate.improve(lambda: part.remaining, 4_000)
        return self._offered(candidate)

    def _forward(self, transforms: TransformSearch) -> float:
        """Return the best of the tilings tried when every sweep goes from the first tile to the last."""
        best = math.inf
        part, space = _part(self.search, 0.1 * self.seconds), transforms.space
        for transform in sorted(transforms.candidates, key=lambda one: (transforms.energy(one), space.rank(one))):
            nodes = space.nodes(transform) if transform.sizes and part.remaining > 0 else None
            if nodes is not None:
                best = min(best, self._offered(candidate_of(self.problem, nodes, given=forward_sweeps(nodes))))
        return best
