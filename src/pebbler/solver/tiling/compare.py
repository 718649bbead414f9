"""What each further freedom is worth: the rows of `pebbler solve --compare` for graphs that can be tiled."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pebbler.game.machine import Machine
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.solver.problem import Problem, Search
from pebbler.solver.tiling import Tastings, solve_tiled
from pebbler.solver.tiling.bounds import tiled_bound
from pebbler.solver.tiling.cache_bounds import order_bound
from pebbler.solver.tiling.locality import Program, program_of
from pebbler.solver.tiling.recipe import Kitchen, Recipe
from pebbler.solver.tiling.tasting import dish_of
from pebbler.workloads.mlp import NOTE_ORDERS

__all__ = ["Row", "compare_tiled", "forward_sweeps"]

Ints = npt.NDArray[np.int64]
_TILE = re.compile(r"\[(\d+)\]")


@dataclass(frozen=True)
class Row:
    """One line: what was allowed, the energy of the best plan found under it (None: illegal or none found), and a remark."""

    name: str
    energy: float | None
    note: str = ""


def compare_tiled(problem: Problem, time_limit: float = 30.0, report: Callable[[str], None] | None = None) -> list[Row]:
    """Return program order, the notes' orders where they apply, then each freedom added to those before it, and the bound.

    >>> from pebbler import machine, workloads
    >>> rows = compare_tiled(Problem.of(workloads.mlp(n=4, hidden=64), machine("notes")), 2)
    >>> [row.name for row in rows][4:]
    ['best whole-tensor order', '+ fusion', '+ tiling', '+ reversed sweep', '+ recomputation', 'bound']
    >>> rows[1].note
    'move 7: upd_W2 overwrites W2 (version 0) before bwd_dh reads it'
    """
    return _Comparison(problem, time_limit, report or (lambda name: None)).run()


class _Comparison:
    def __init__(self, problem: Problem, time_limit: float, report: Callable[[str], None]) -> None:
        self.problem, self.time_limit, self.report = problem, time_limit, report
        self.rows: list[Row] = []
        self.lowest = float("inf")

    def run(self) -> list[Row]:
        problem = self.problem
        self._add("program order", lambda: self._energy_of(np.arange(len(problem.graph.ops), dtype=np.int64)))
        self._notes()
        self._add("best whole-tensor order", lambda: self._best(0.15, fused=False))
        if problem.machine.management == "recency":
            return [*self.rows, Row("bound", order_bound(problem), "every order and recomputation of whole tensors")]
        self._add("+ fusion", lambda: self._best(0.1, fused=True))
        kitchen = Kitchen(problem.graph)
        search = Search(problem, self.time_limit * 0.35)
        tastings = Tastings(search, kitchen, self.time_limit * 0.25)
        tastings.explore(second_makings=False)
        self._add("+ tiling", lambda: self._forward(tastings), "every sweep over the tiles from first to last")
        self._add("+ reversed sweep", lambda: search.energy, tastings.best.describe())
        search = Search(problem, self.time_limit * 0.4)
        self.report("+ recomputation")
        solve_tiled(search)
        self._add("+ recomputation", lambda: search.energy, "" if search.best is None else search.best.graph.name)
        bound = tiled_bound(problem)
        return [*self.rows, Row("bound", bound.energy, bound.proof)]

    def _add(self, name: str, energy: Callable[[], float], note: str = "") -> None:
        """Add a row; whatever is allowed includes what was allowed before it."""
        self.report(name)
        found = energy()
        self.lowest = min(self.lowest, found)
        self.rows.append(Row(name, None if self.lowest == float("inf") else self.lowest, note))

    def _notes(self) -> None:
        """Add the orders of note 000, for graphs with its ops."""
        graph = self.problem.graph
        index = {op.name: i for i, op in enumerate(graph.ops)}
        arena = Machine("arena", graph.unit, self.problem.machine.level[-1:], operands="any")
        for name, title in (
            ("fused", "note 000, fused"),
            ("perlayer", "note 000, per layer"),
            ("optimal", "note 000, optimal"),
        ):
            if sorted(NOTE_ORDERS[name]) != sorted(index):
                continue
            verdict = check(Plan.in_order(graph, arena, NOTE_ORDERS[name], steady=False))
            if verdict.legal:
                energy = self._energy_of(np.array([index[op] for op in NOTE_ORDERS[name]], np.int64))
                self.lowest = min(self.lowest, energy)
                self.rows.append(Row(title, energy))
            else:
                self.rows.append(Row(title, None, verdict.error or ""))

    def _energy_of(self, order: Ints) -> float:
        """Return what an order of the graph as it is costs; on an explicit machine with a quick placement."""
        program = program_of(self.problem.graph)
        assert program is not None
        dish = dish_of(self.problem, program, given=order)
        return float("inf") if dish is None else dish.energy

    def _best(self, share: float, *, fused: bool) -> float:
        """Return the best order of the graph as it is, or with all that can be fused away."""
        kitchen = Kitchen(self.problem.graph)
        recipe = Tastings(Search(self.problem), kitchen, 0.0).fused() if fused else Recipe()
        program = kitchen.program(recipe)
        dish = None if program is None else dish_of(self.problem, program)
        if dish is None:
            return float("inf")
        search = Search(self.problem, share * self.time_limit)
        dish.improve(lambda: search.remaining, 4_000)
        return dish.energy

    def _forward(self, tastings: Tastings) -> float:
        """Return the best of the tilings tried when every sweep goes from the first tile to the last."""
        best = float("inf")
        search = Search(self.problem, 0.1 * self.time_limit)
        for recipe in sorted(tastings.dishes, key=lambda one: (tastings.energy(one), one)):
            program = tastings.kitchen.program(recipe) if recipe.sizes else None
            if program is not None and search.remaining > 0:
                dish = dish_of(self.problem, program, given=forward_sweeps(program))
                best = min(best, float("inf") if dish is None else dish.energy)
        return best


def forward_sweeps(program: Program) -> Ints:
    """Return the sequence that always runs the ready node of the lowest tile, in program order within a tile.

    >>> from pebbler.game.transform import tile
    >>> from pebbler.workloads import mlp
    >>> program = program_of(tile(mlp(), "hidden", 500))
    >>> [program.graph.ops[op].name for op in program.order(forward_sweeps(program))][:4]
    ['fwd_linear1[0]', 'fwd_relu[0]', 'fwd_linear2[0]', 'fwd_linear1[1]']
    """
    nodes, ops = program.nodes, program.graph.ops
    tile = [tuple(int(i) for i in _TILE.findall(ops[nodes.ops[end - 1]].name)) for end in nodes.start[1:].tolist()]
    waits = np.diff(nodes.before_start).tolist()
    ready = [(tile[node], node) for node, count in enumerate(waits) if count == 0]
    heapq.heapify(ready)
    sequence = []
    while ready:
        _, node = heapq.heappop(ready)
        sequence.append(node)
        for other in nodes.after[nodes.after_start[node] : nodes.after_start[node + 1]].tolist():
            waits[other] -= 1
            if waits[other] == 0:
                heapq.heappush(ready, (tile[other], other))
    return np.array(sequence, np.int64)
