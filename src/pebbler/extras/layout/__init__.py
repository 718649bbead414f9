"""Layouts: where every value of a fixed order is, on explicit machines of many levels; and the solver that uses them."""

from __future__ import annotations

import numpy as np

from pebbler.extras.layout.layout_arrays import can_lay_out
from pebbler.extras.layout.layout_search import Layout
from pebbler.solver.bounds import Bound, bounds, product_bounds
from pebbler.solver.bounds.bound import certified_moments
from pebbler.solver.paging.start_orders import start_orders
from pebbler.solver.problem import Problem, Search

__all__ = ["can_lay_out", "layout_bounds", "solve_layout"]

_MOST_OPS = 600  # for bounds whose work grows with the square of the graph
_EFFORT = 20  # how often the values of an op are routed anew, on average, before orders are compared
_PATIENCE = 4


def layout_bounds(problem: Problem, *, any_sums: bool) -> list[Bound]:
    """Return bounds for every plan; with `any_sums` for every order of the terms of sums as well."""
    if not any_sums and len(problem.graph.ops) <= _MOST_OPS:
        return bounds(problem)
    least = certified_moments(problem, "every op runs once, and every value is brought to where it is read", [])
    return [least, *product_bounds(problem)]


def solve_layout(search: Search, *, any_sums: bool) -> None:
    """Offer layouts of better and better orders; `any_sums` lets the terms of sums come in any order."""
    from pebbler.extras.layout.product_orders import ProductOrders
    from pebbler.extras.layout.product_search import ProductSearch

    problem = search.problem
    orders = ProductOrders.of(problem.graph) if any_sums else None
    if orders is not None:
        known = search.best if search.best is not None and search.best.source is not None else None
        ProductSearch(search, orders).run(known)
        return
    starts = start_orders(problem.graph)
    if search.best is not None:
        starts.insert(0, search.best.moves.order)
    layouts: list[Layout] = []
    for number, order in enumerate(starts):
        if len(np.unique(order)) < len(order):
            continue  # an op runs twice
        layout = Layout.of(problem, order, left=lambda: search.remaining)
        layout.improve(_EFFORT * len(order), seed=number, left=lambda: search.remaining)
        search.offer_plan(layout.plan())
        layouts.append(layout)
        if search.remaining <= 0:
            break
    best, stale, tries = min(layouts, key=lambda layout: layout.energy), 0, len(starts)
    while search.remaining > 0 and stale < _PATIENCE and not search.done:
        before, tries = best.energy, tries + 1
        best.improve(_EFFORT * len(problem.graph.ops), seed=tries, left=lambda: search.remaining)
        search.offer_plan(best.plan())
        stale = 0 if best.energy < before else stale + 1
    search.cut_off |= search.remaining <= 0
