"""The methods that apply to a problem, their order, and their shares of the time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from pebbler.game.machine import Machine
from pebbler.game.moves import Copy, Moves
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.solver.capacity import require_capacity
from pebbler.solver.problem import Impossible, Problem, Search

__all__ = ["can_tile", "has_forms", "keeps_graph", "program_order_energy", "program_order_words", "run"]

# States of a small game that are looked at before and after the search for good plans: about a second, and the rest.
_QUICK_STATES = 400_000
_ALL_STATES = 3_000_000
_QUICK_PEBBLES = 300_000  # of a pebble game of two levels, before it is gone through layer by layer
_ALL_PEBBLES = 4_000_000  # after everything else
_FEW_VALUES, _ROWS_SHARE = 80, 0.1  # of a graph that is bounded by rows before anything else, and of the time for that
_BOUND_SECONDS, _BOUND_SHARE = 0.003, 0.2  # per op: what a first bound for every form takes; of the time, at the most
_WHOLE_SHARE, _FORMS_SHARE = 0.3, 0.3  # of the time, for the graph as it is, and then for each form of a very small one


def run(search: Search, tile: str) -> None:
    """Improve the search's plan and bound until it is proven, the time is over or the user interrupts.

    The bound is for what was asked: for every form of the graph where it has others than itself and they are allowed, whether or
    not they are looked for.
    """
    problem = search.problem
    search.as_it_is = not has_forms(problem, tile)
    with _interruptible(search):
        if search.as_it_is:
            _run_whole(search, tile)
        elif not can_tile(problem, tile):
            _run_untiled(search, tile)
        elif problem.machine.management == "explicit":
            _run_explicit(search)
        else:
            _run_cache(search, tile)


@contextmanager
def _interruptible(search: Search) -> Iterator[None]:
    """Let Ctrl-C end the search with what it has; if it has nothing, `KeyboardInterrupt` is raised once it has ended.

    An exception must never be thrown into compiled code, so the signal only stops the search's clock, however often it comes.
    """
    before = None
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGINT, lambda *_: search.interrupt())
    try:
        yield
    except Impossible:
        if not search.interrupted:  # otherwise all it means is that there was no time
            raise
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
    if search.interrupted:
        search.cut_off = True
        if search.best is None:
            raise KeyboardInterrupt


def keeps_graph(problem: Problem, tile: str) -> bool:
    """Return whether plans are of the graph as it is because that was asked, or because ranks by recency are of whole tensors."""
    return tile == "none" or problem.machine.management == "recency"


def has_forms(problem: Problem, tile: str) -> bool:
    """Return whether plans may be of the graph in another form, tiled or with temps fused away, and whether it has any.

    >>> from pebbler import machine, workloads
    >>> [has_forms(Problem.of(workloads.mlp(), machine("notes")), tile) for tile in ("auto", "none")]
    [True, False]
    >>> has_forms(Problem.of(workloads.chain(3), machine("red-blue")), "auto")
    False
    """
    from pebbler.solver.tiling.transform_space import TransformSpace

    if keeps_graph(problem, tile):
        return False
    space = TransformSpace(problem.graph)
    return bool(space.axes or space.temps)


def can_tile(problem: Problem, tile: str) -> bool:
    """Return whether other forms of the graph are looked for: large graphs, and those with freer rules, are taken as they are.

    >>> from pebbler import machine, workloads
    >>> can_tile(Problem.of(workloads.mlp(), machine("notes")), "auto")
    True
    """
    from pebbler.solver.large_caches import is_large_cache
    from pebbler.solver.large_games import is_large

    if is_large(problem) or is_large_cache(problem) or not problem.plain:
        return False
    return has_forms(problem, tile)


def program_order_energy(problem: Problem) -> float | None:
    """Return what program order costs with the plainest memory management there is, or None where it does not fit.

    What that is on an explicit machine, `program_order_words` says.

    >>> from pebbler import machine, workloads
    >>> program_order_energy(Problem.of(workloads.note_mlp(), machine("notes-recency")))
    11004490
    """
    if problem.machine.management != "explicit":
        return check(Plan.in_order(problem.graph, problem.machine, steady=problem.steady)).energy
    from pebbler.solver.paging.demand_paging import program_order_plan

    plan = program_order_plan(problem)
    return None if plan is None else check(plan).energy


def program_order_words(machine: Machine) -> str:
    """Return how program order is run on a machine; empty for caches, which leave nothing to decide.

    >>> from pebbler import machine
    >>> program_order_words(machine("notes-explicit")), program_order_words(machine("notes"))
    ('every tensor stays in the fastest level with room for it', '')
    """
    from pebbler.solver.paging.demand_paging import RUNTIME

    if machine.management != "explicit":
        return ""
    return "every value kept until its last use" if len(machine.level) == 1 else RUNTIME[machine.operands]


def _run_cache(search: Search, tile: str) -> None:
    from pebbler.solver.large_caches import is_large_cache, raise_and_rerun, reruns_pay, solve_large_cache
    from pebbler.solver.tiling import solve_tiled

    problem = search.problem
    search.offer(Moves.computes(problem.graph, problem.machine, range(len(problem.graph.ops))))
    search.note_program_order(search.energy)
    if search.time_limit == 0:
        search.cut_off = True
    elif is_large_cache(problem):
        solve_large_cache(search)
    else:  # however short the time, the bound comes first
        if reruns_pay(problem, as_it_is=search.as_it_is):
            end = search.elapsed + 0.3 * search.remaining
            raise_and_rerun(search, lambda: min(search.remaining, end - search.elapsed))
        solve_tiled(search, tile="none" if tile == "none" else "auto")
        _offer_single_runs(search)


def _offer_single_runs(search: Search) -> None:
    """Offer the best plan of a cache machine without its recomputation, which searches may have added where it does not pay."""
    best = search.best
    if best is None:
        return
    runs = best.moves.order.tolist()
    single = list(dict.fromkeys(runs))
    if len(single) < len(runs):
        plan = replace(best, moves=Moves.computes(best.graph, best.machine, single))
        if check(plan).legal:  # what an update destroyed may have to be made again
            search.offer_plan(plan)


def _run_whole(search: Search, tile: str) -> None:
    """Solve a problem with the graph as it is."""
    from pebbler.solver.chain import solve_chain_problem
    from pebbler.solver.large_games import is_large

    problem = search.problem
    if problem.machine.management != "explicit":
        _run_cache(search, "none")
    elif not problem.plain:
        _run_layouts(search, tile)
    else:
        if not is_large(problem):
            require_capacity(problem)
        if not solve_chain_problem(search):
            _run_as_it_is(search)


def _begin_whole(search: Search, limit: float | None) -> Search:
    """Return a search of the graph as it is, where other forms are allowed: its plans are passed on, its bound is its own."""

    def pass_on(inner: Search) -> None:
        if inner.best is not None and inner.energy < search.energy:
            search.offer_plan(inner.best)

    search.whole = search.part(limit, pass_on)
    search.whole.as_it_is = True
    return search.whole


def _run_untiled(search: Search, tile: str) -> None:
    """Solve the graph as it is where other forms are allowed but not looked for; the bound is still for all of them."""
    from pebbler.solver.tiling.tiling_bound import RangeSearch

    problem, ops = search.problem, len(search.problem.graph.ops)
    runs = problem.scale.lowered(float(problem.graph.dataflow.op_cost.sum()))
    search.raise_bound(runs, "every tiling: all ops run at least once")
    if problem.plain and ops * _BOUND_SECONDS < _BOUND_SHARE * search.remaining:
        end = search.elapsed + _BOUND_SHARE * search.remaining
        bound = RangeSearch(problem).run(0, lambda: end - search.elapsed)
        search.raise_bound(bound.energy, bound.proof, bound.certificate)
    whole = _begin_whole(search, None if search.time_limit is None else search.remaining)
    try:
        _run_whole(whole, tile)
    except Impossible as reason:
        if search.best is None:
            raise Impossible(f"{reason}. That is for the graph as it is: its tilings are not looked for") from None
    search.cut_off |= whole.cut_off


def _run_explicit(search: Search) -> None:
    """Solve a graph as it is, then in its other forms."""
    from pebbler.solver.least_memory import require_tiles_that_fit
    from pebbler.solver.tiling import solve_tiled
    from pebbler.solver.tiling.small_forms import solve_small_forms

    if search.quick:
        _offer_program_order(search)
        solve_tiled(search, tile="auto")
        return
    whole = _begin_whole(search, None if search.time_limit is None else _WHOLE_SHARE * search.time_limit)
    try:
        require_capacity(search.problem)
        _run_as_it_is(whole)
    except Impossible as reason:
        if search.remaining == 0 and search.best is None:
            raise Impossible(f"{reason}. That is for the graph as it is: there was no time for tilings") from None
        if search.best is None:
            require_tiles_that_fit(search.problem)
    if search.remaining > 0:
        solve_small_forms(search, _FORMS_SHARE * search.remaining)
    if search.remaining > 0 and not search.done:
        solve_tiled(search, tile="auto")
    search.cut_off |= whole.cut_off


def _bound_by_rows(search: Search) -> None:
    """Bound a small graph as it is by rows: whatever else is found, that has a certificate."""
    from pebbler.solver.tiling.tiling_bound import RangeSearch

    if search.problem.graph.dataflow.values <= _FEW_VALUES:
        end = search.elapsed + _ROWS_SHARE * search.remaining
        bound = RangeSearch(search.problem, {}).run(0, lambda: end - search.elapsed)
        search.raise_bound(bound.energy, bound.proof, bound.certificate)


def _run_as_it_is(search: Search) -> None:
    """Solve an explicit game without changing the graph."""
    from pebbler.solver.bounds.many_moments import bounds_in_stages
    from pebbler.solver.exact import fits_exact, solve_exact
    from pebbler.solver.exact.pebble_search import fits_pebbles
    from pebbler.solver.greedy_plans import greedy_pays
    from pebbler.solver.large_games import is_large, offer_greedy, solve_large
    from pebbler.solver.paging import solve_paging
    from pebbler.solver.products.blocked_orders import offer_blocks
    from pebbler.solver.recompute import solve_recompute

    problem = search.problem
    if is_large(problem):
        solve_large(search)
        return
    _offer_program_order(search)
    if search.time_limit == 0:
        search.cut_off = True
        return
    _bound_by_rows(search)
    if search.done:
        return
    # Compulsory costs first: they are known at once, whatever else the time allows.
    for stage in bounds_in_stages(problem, lambda: search.remaining):
        for bound in stage:
            search.raise_bound(bound.value, bound.proof, bound.certificate)
        if search.done:
            return
        if search.remaining == 0:
            search.cut_off = True
            return
    small = fits_exact(problem)
    if small:
        solve_exact(search, _QUICK_STATES)
    if search.done:
        return
    if greedy_pays(problem) and len(problem.machine.level) > 1:
        offer_blocks(search, 0.1)
        if search.done:
            return
        end = search.elapsed + 0.2 * search.remaining
        offer_greedy(search, lambda: min(search.remaining, end - search.elapsed))
        if search.done:
            return
    if len(problem.machine.level) == 1:
        solve_recompute(search)
    else:
        if problem.machine.operands == "fastest" and not problem.steady:
            _recompute_without_paging(search)
        if not search.done:
            solve_paging(search)
    if small and not search.done and search.remaining > 0:
        solve_exact(search, _ALL_STATES)
    if not search.done and search.remaining > 0 and fits_pebbles(problem):
        _play_pebbles(search)


def _play_pebbles(search: Search) -> None:
    """Solve a pebble game of two levels: some plans, then two ways to prove one, for one kind of these games the second first."""
    from pebbler.solver.exact.pebble_search import offer_beam, solve_pebbles
    from pebbler.solver.exact.pebble_sweep import solve_joined, solve_sweep, sweep_pays

    end = search.elapsed + 0.1 * search.remaining
    offer_beam(search, lambda: min(search.remaining, end - search.elapsed))
    if not search.done and search.remaining > 0:
        solve_joined(search, 0.8)
    if not search.done and sweep_pays(search.problem):
        later = search.elapsed + 0.2 * search.remaining
        solve_pebbles(search, _QUICK_PEBBLES, lambda: min(search.remaining, later - search.elapsed))
        if not search.done and search.remaining > 0:
            solve_sweep(search)
    if not search.done and search.remaining > 0:
        solve_pebbles(search, _ALL_PEBBLES)


def _run_layouts(search: Search, tile: str) -> None:
    """Solve an explicit game whose starts or results are freer than usual."""
    from pebbler.solver.exact import fits_exact, solve_exact
    from pebbler.solver.layout import can_lay_out, layout_bounds, solve_layout
    from pebbler.solver.paging import solve_paging
    from pebbler.solver.products.product_orders import ProductOrders

    problem = search.problem
    require_capacity(problem)
    _offer_program_order(search)
    search.as_it_is = True  # other orders of the terms of a sum cost whole numbers as well
    any_sums = tile != "none" and can_lay_out(problem) and ProductOrders.of(problem.graph) is not None
    if search.time_limit != 0:
        for bound in layout_bounds(problem, any_sums=any_sums):
            certificate = dict(bound.certificate or {}, covers="sums") if any_sums else bound.certificate
            search.raise_bound(bound.value, bound.proof, certificate)
    small = fits_exact(problem) and not any_sums  # every state of the graph as it is, not of its sums in other orders
    if small and not search.done and search.remaining > 0:
        solve_exact(search, _QUICK_STATES)
    if search.done or search.remaining <= 0:
        search.cut_off |= not search.done
        return
    if can_lay_out(problem):
        solve_layout(search, any_sums=any_sums)
    elif len(problem.machine.level) == 1:
        _recompute_apart(search)
    else:
        solve_paging(search)
    if small and not search.done and search.remaining > 0:
        solve_exact(search, _ALL_STATES)


def _recompute_apart(search: Search) -> None:
    """Offer the best plan of one level in which no result goes over an operand; bounds and refusals of that are none here."""
    from pebbler.solver.recompute import solve_recompute

    machine = msgspec.structs.replace(search.problem.machine, results="apart")

    def pass_on(inner: Search) -> None:
        if inner.best is not None and inner.energy < search.energy:
            search.offer(inner.best.moves, inner.best.start)

    inner = search.part(search.remaining, pass_on, replace(search.problem, machine=machine))
    try:
        solve_recompute(inner)
    except Impossible:
        return
    finally:
        search.cut_off |= inner.cut_off


def _offer_program_order(search: Search) -> None:
    from pebbler.solver.paging.demand_paging import program_order_plan

    plan = program_order_plan(search.problem)
    if search.offer_plan(plan):
        search.note_program_order(search.energy)


def _recompute_without_paging(search: Search) -> None:
    """Offer the best plan that loads the inputs once and then never leaves the fastest level: paging goes on from there."""
    from pebbler.solver.recompute import solve_recompute

    problem = search.problem
    fast = problem.machine.names[0]
    loads = [
        Copy(problem.graph.tensor_names[tensor], problem.machine.names[levels[0]], fast)
        for tensor, levels in problem.plan([]).start_levels().items()
        if levels[0] != 0
    ]
    one = Machine(problem.machine.name, problem.machine.unit, problem.machine.level[:1])
    limit = None if search.time_limit is None else 0.35 * search.remaining
    inner = search.part(limit, problem=replace(problem, machine=one, start={}))
    try:
        solve_recompute(inner)
    except Impossible:
        return
    if inner.best is None:
        return
    # What starts below is copied up first and stays below as well, where nothing needs room.
    lifted = problem.plan([*loads, *inner.best.moves])
    if check(lifted).legal:
        search.offer(lifted.moves)
