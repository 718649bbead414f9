"""Which methods a problem gets, in which order."""

from __future__ import annotations

from pebbler.plan import Plan
from pebbler.referee import check
from pebbler.solve.problem import Search

__all__ = ["offer_program_order", "program_order_energy", "run"]


def run(search: Search, tile: str) -> None:
    """Improve the search's plan and bound until it is proven, the time is over or the user interrupts."""
    try:
        if search.problem.machine.management == "explicit":
            _run_explicit(search, tile)
        else:
            _run_cache(search, tile)
    except KeyboardInterrupt:
        search.cut_off = True
        if search.best is None:
            raise


def _run_explicit(search: Search, tile: str) -> None:
    from pebbler.solve.bounds import bounds
    from pebbler.solve.chain import solve_chain_problem
    from pebbler.solve.exact import fits_exact, solve_exact
    from pebbler.solve.needs import require_room
    from pebbler.solve.paging import solve_paging
    from pebbler.solve.recompute import solve_recompute

    problem = search.problem
    require_room(problem)
    if solve_chain_problem(search):
        return
    offer_program_order(search)
    if search.remaining == 0:
        search.cut_off = True
        return
    for bound in bounds(problem):
        search.raise_bound(bound.value, bound.proof)
    if fits_exact(problem):
        solve_exact(search)
        if search.done:
            return
    one_level = len(problem.machine.level) == 1
    if one_level or problem.machine.operands == "fastest":
        solve_recompute(search)
    if not one_level:
        solve_paging(search)


def _run_cache(search: Search, tile: str) -> None:
    offer_program_order(search)


def offer_program_order(search: Search) -> None:
    """Offer the ops in program order, with the plainest memory management there is; nothing if that does not fit."""
    problem = search.problem
    if problem.machine.management != "explicit":
        search.offer([("compute", op.name) for op in problem.graph.ops])


def program_order_energy(search: Search) -> float | None:
    """Return what program order costs, or None where it does not fit."""
    problem = search.problem
    if problem.machine.management != "explicit":
        return check(Plan.in_order(problem.graph, problem.machine, steady=problem.steady)).energy
    return None
