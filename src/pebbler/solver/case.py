"""The facts that decide how a problem is solved, found once: the kind of machine and of graph, and which forms of it count."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from pebbler.solver.problem import Problem

__all__ = ["Case", "has_forms", "keeps_graph"]


@dataclass(frozen=True)
class Case:
    """A problem as it was asked: `tile` allows other forms of the graph, `whole` takes it as it is for a part of the search."""

    problem: Problem
    tile: str = "auto"
    quick: bool = False
    whole: bool = False

    @cached_property
    def explicit(self) -> bool:
        """Whether the plan's moves place the data; otherwise caches do."""
        return self.problem.machine.management == "explicit"

    @cached_property
    def one_level(self) -> bool:
        return len(self.problem.machine.level) == 1

    @cached_property
    def ops(self) -> int:
        return len(self.problem.graph.ops)

    @cached_property
    def large(self) -> bool:
        """Whether all that takes more than near-linear time takes too long."""
        from pebbler.solver.large_caches import is_large_cache
        from pebbler.solver.large_games import is_large

        return is_large(self.problem) or is_large_cache(self.problem)

    @cached_property
    def tiled(self) -> bool:
        """Whether other forms of the graph are searched; large graphs and graphs with freer rules are solved as they are.

        >>> from pebbler import workloads
        >>> Case(Problem.of(workloads.mlp(), "notes")).tiled
        True
        """
        return not self.large and self.problem.plain and has_forms(self.problem, self.tile)

    @cached_property
    def as_it_is(self) -> bool:
        """Whether all that is found is for the graph as it is."""
        return self.whole or not has_forms(self.problem, self.tile)

    @property
    def of_graph(self) -> Case:
        """The same for the graph as it is."""
        return replace(self, whole=True)

    @cached_property
    def any_sums(self) -> bool:
        """Whether the terms of sums may come in any order: on layouts of products."""
        from pebbler.extras.layout.product_orders import ProductOrders

        return self.tile != "none" and self.lays_out and ProductOrders.of(self.problem.graph) is not None

    @cached_property
    def lays_out(self) -> bool:
        """Whether values are laid out one by one, each on its own way through the levels."""
        from pebbler.extras.layout import can_lay_out

        return self.explicit and not self.problem.plain and can_lay_out(self.problem)

    @cached_property
    def small(self) -> bool:
        """Whether every state of the game can be searched; of the graph as it is, not of its sums in other orders."""
        from pebbler.solver.exact import fits_exact

        return fits_exact(self.problem) and not self.any_sums

    @cached_property
    def chain(self) -> str:
        """The kind of chain that the graph is: `even` if all nodes are alike, `uneven`, or none."""
        from pebbler.solver.chain import as_chain

        problem = self.problem
        if self.tiled or not self.explicit or problem.steady or not problem.plain:
            return ""
        found = as_chain(problem.graph, problem.machine, problem.start)
        return "" if found is None else "even" if found[0].is_uniform else "uneven"

    @cached_property
    def greedy(self) -> bool:
        """Whether greedy runs are tried before other methods."""
        from pebbler.solver.greedy_plans import greedy_pays

        return greedy_pays(self.problem)


def keeps_graph(problem: Problem, tile: str) -> bool:
    """Return whether plans are of the graph as it is because that was asked, or because ranks by recency are of whole tensors."""
    return tile == "none" or problem.machine.management == "recency"


def has_forms(problem: Problem, tile: str = "auto") -> bool:
    """Return whether plans may be of the graph in another form, tiled or with temps fused away, and whether it has any.

    >>> from pebbler import machine, workloads
    >>> [has_forms(Problem.of(workloads.mlp(), machine("notes")), tile) for tile in ("auto", "none")]
    [True, False]
    >>> has_forms(Problem.of(workloads.chain(3), machine("red-blue")), "auto")
    False
    """
    return not keeps_graph(problem, tile) and bool(problem.space.axes or problem.space.temps)
