"""What each further freedom is worth: the rows of `pebbler solve --compare` for graphs that can be tiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pebbler.game.machine import Machine
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.solver.problem import Problem, Search
from pebbler.solver.tiling import TransformSearch, solve_tiled
from pebbler.solver.tiling.cache_bounds import order_bound
from pebbler.solver.tiling.candidates import candidate_of
from pebbler.solver.tiling.list_order import forward_sweeps
from pebbler.solver.tiling.node_graph import NodeGraph
from pebbler.solver.tiling.tiling_bound import tiled_bound
from pebbler.solver.tiling.transform_space import Transform, TransformSpace

__all__ = ["Row", "compare_tiled"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Row:
    """One line: what was allowed, the energy of the best plan found under it (None: illegal or none found), and a remark."""

    name: str
    energy: float | None
    note: str = ""


def compare_tiled(
    problem: Problem,
    time_limit: float = 30.0,
    report: Callable[[str], None] | None = None,
    references: Mapping[str, Sequence[str]] | None = None,
) -> list[Row]:
    """Return program order, reference orders where they apply, then each freedom added to those before it, and the bound.

    A reference order has a name, lists op names, and applies to graphs that have exactly these ops.

    >>> from pebbler import machine, workloads
    >>> step = workloads.mlp(n=4, hidden=64)
    >>> early = [op.name for op in step.ops]
    >>> early.insert(6, early.pop(early.index("upd_W2")))
    >>> rows = compare_tiled(Problem.of(step, machine("notes")), 2, references={"W2 early": early})
    >>> [row.name for row in rows][1:]
    ['W2 early', 'best whole-tensor order', '+ fusion', '+ tiling', '+ reversed sweep', '+ recomputation', 'bound']
    >>> rows[1].note
    'move 7: upd_W2 overwrites W2 (version 0) before bwd_dh reads it'
    """
    return _Comparison(problem, time_limit, report or (lambda name: None), references or {}).run()


class _Comparison:
    def __init__(
        self,
        problem: Problem,
        time_limit: float,
        report: Callable[[str], None],
        references: Mapping[str, Sequence[str]],
    ) -> None:
        self.problem, self.time_limit, self.report, self.references = problem, time_limit, report, references
        self.rows: list[Row] = []
        self.lowest = float("inf")

    def run(self) -> list[Row]:
        problem = self.problem
        self._add("program order", lambda: self._energy_of(np.arange(len(problem.graph.ops), dtype=np.int64)))
        self._add_references()
        self._add("best whole-tensor order", lambda: self._best(0.15, fused=False))
        if problem.machine.management == "recency":
            return [*self.rows, Row("bound", order_bound(problem), "every order and recomputation of whole tensors")]
        self._add("+ fusion", lambda: self._best(0.1, fused=True))
        space = TransformSpace(problem.graph)
        search = Search(problem, self.time_limit * 0.35)
        transforms = TransformSearch(search, space, self.time_limit * 0.25)
        transforms.explore(recompute=False)
        self._add("+ tiling", lambda: self._forward(transforms), "every sweep over the tiles from first to last")
        self._add("+ reversed sweep", lambda: search.energy, transforms.best.describe())
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

    def _add_references(self) -> None:
        """Add the reference orders, for graphs that have their ops."""
        graph = self.problem.graph
        index = {op.name: i for i, op in enumerate(graph.ops)}
        arena = Machine("arena", graph.unit, self.problem.machine.level[-1:], operands="any")
        for title, order in self.references.items():
            if sorted(order) != sorted(index):
                continue
            verdict = check(Plan.in_order(graph, arena, order, steady=False))
            if verdict.legal:
                energy = self._energy_of(np.array([index[op] for op in order], np.int64))
                self.lowest = min(self.lowest, energy)
                self.rows.append(Row(title, energy))
            else:
                self.rows.append(Row(title, None, verdict.error or ""))

    def _energy_of(self, order: Ints) -> float:
        """Return what an order of the graph as it is costs; on an explicit machine with a quick placement."""
        nodes = NodeGraph.of(self.problem.graph)
        assert nodes is not None
        candidate = candidate_of(self.problem, nodes, given=order)
        return float("inf") if candidate is None else candidate.energy

    def _best(self, share: float, *, fused: bool) -> float:
        """Return the best order of the graph as it is, or with all that can be fused away."""
        space = TransformSpace(self.problem.graph)
        transform = TransformSearch(Search(self.problem), space, 0.0).fused() if fused else Transform()
        nodes = space.nodes(transform)
        candidate = None if nodes is None else candidate_of(self.problem, nodes)
        if candidate is None:
            return float("inf")
        search = Search(self.problem, share * self.time_limit)
        candidate.improve(lambda: search.remaining, 4_000)
        return candidate.energy

    def _forward(self, transforms: TransformSearch) -> float:
        """Return the best of the tilings tried when every sweep goes from the first tile to the last."""
        best = float("inf")
        search, space = Search(self.problem, 0.1 * self.time_limit), transforms.space
        for transform in sorted(transforms.candidates, key=lambda one: (transforms.energy(one), space.rank(one))):
            nodes = space.nodes(transform) if transform.sizes else None
            if nodes is not None and search.remaining > 0:
                candidate = candidate_of(self.problem, nodes, given=forward_sweeps(nodes))
                best = min(best, float("inf") if candidate is None else candidate.energy)
        return best
