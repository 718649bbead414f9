"""A product's points in any order: the graph with its terms in that order."""

from __future__ import annotations

from dataclasses import dataclass

from pebbler.arrays import Ints
from pebbler.game.graph import Graph
from pebbler.game.sums import Sums
from pebbler.referee.programs.product_points import ProductPoints
from pebbler.solver.problem import Problem

__all__ = ["ProductOrders"]


@dataclass(frozen=True)
class ProductOrders:
    """A product's graph, and its points in the order in which its sums know their terms."""

    sums: Sums
    index: Ints

    @classmethod
    def of(cls, graph: Graph) -> ProductOrders | None:
        """Return the points of a graph whose terms are all products, None for any other.

        >>> from pebbler.workloads import chain, matmul
        >>> ProductOrders.of(matmul(2, 3, 4)).sizes, ProductOrders.of(chain(3)) is None
        ((2, 3, 4), True)
        """
        sums, points = Sums.of(graph), ProductPoints.of(graph.dataflow)
        if sums is None or points is None or tuple(points.makers.tolist()) != sums.makers:
            return None
        return cls(sums, points.index)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of i, j and k."""
        m, n, k = (self.index.max(axis=0) + 1).tolist()
        return m, n, k

    def problem(self, problem: Problem, order: Ints) -> Problem:
        """Return the problem with the terms in another order."""
        return problem.transformed(self.sums.in_order(order))
