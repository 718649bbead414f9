"""Lower bounds that hold for every legal schedule of a problem: compulsory traffic, and what cannot all stay in fast memory.

`docs/exact.md` and `docs/products.md` prove them. All allow recomputation, any order and any number of copies.
"""

from __future__ import annotations

from pebbler.referee.programs.compulsory_traffic import ValuePrices
from pebbler.solver.bounds.bound import Bound, certified_moments, product_bounds
from pebbler.solver.bounds.min_cuts import best_cut
from pebbler.solver.bounds.sampled_moments import SampledMoments
from pebbler.solver.problem import Problem

__all__ = ["Bound", "bounds", "product_bounds"]

CUTS = 12  # moments and levels that get the full min-cut treatment, the most promising first


def bounds(problem: Problem, cuts: int = CUTS) -> list[Bound]:
    """Return lower bounds for every legal plan, the best first; `cuts` limits the work of the min-cut ones.

    >>> from pebbler import machine, workloads
    >>> [bound.value for bound in bounds(Problem.of(workloads.note_mlp(), machine("notes-explicit"), steady=True))][0]
    10453825.0
    """
    flow = problem.graph.dataflow
    found = [Bound(problem.scale.lowered(float(flow.op_cost.sum())), "every op runs at least once")]
    if problem.machine.management == "explicit" and flow.ops:
        found.append(
            certified_moments(problem, "every op runs once, and every value is brought to where it is read", [])
        )
        found += _wavefronts(problem, cuts)
        found += product_bounds(problem)
    return sorted(found, key=lambda bound: -bound.value)


def _wavefronts(problem: Problem, cuts: int) -> list[Bound]:
    """Return bounds from values that are alive at one moment and cannot all be in the fast levels then."""
    prices = ValuePrices.of(problem)
    terms = SampledMoments(problem, prices)
    boundaries = len(terms.rooms)
    if not boundaries:
        return []
    ops = problem.graph.dataflow.ops
    priced = {op: terms.priced(op)[1] for op in range(ops + 1)}
    ranked = sorted(priced, key=lambda op: -priced[op].gain)
    found = [] if priced[ranked[0]].gain == 0 else [terms.certified([(ranked[0], priced[ranked[0]].prices)])]
    for op in ranked[: -(-cuts // boundaries)]:
        for level in range(boundaries):
            cut = best_cut(problem, prices, None if op == ops else op, level)
            found += [] if cut is None else [cut]
    return found
