"""The table of methods: for each, its problems, its share of the time, its kernels, and the bounds it can prove again.

`run` goes through the table from top to bottom; `warm_up.needed` reads the kernels, `assessment` what proves a bound again, and
`ablation` which kind of problem it has. A new method is a file that offers plans or bounds to a `Search`, and one row here.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from pebbler.game.machine import Machine
from pebbler.game.moves import Copy, Moves
from pebbler.referee.judgement import check
from pebbler.solver.capacity import require_capacity, single_level_requirement
from pebbler.solver.case import Case
from pebbler.solver.problem import Impossible, Search
from pebbler.solver.program_order import offer_program_order

__all__ = ["METHODS", "Method", "chosen", "run"]

Left = Callable[[], float]  # the seconds that a method has left
Run = Callable[[Search, Case, Left], None]
_QUICK_STATES, _ALL_STATES = 400_000, 3_000_000  # of a small game, before and after the search for good plans
_QUICK_PEBBLES = 300_000  # of a pebble game of two levels, before it is gone through layer by layer
_ALL_PEBBLES = 4_000_000  # after everything else
_FEW_VALUES = 80  # of a graph that is bounded by rows before anything else
_FORM_SECONDS = 0.003  # per op: what a first bound for every form takes
_MOST_OPS = 600  # for proofs whose work grows with the square of the graph
_MOST_CHAIN_OPS = 5_000


@dataclass(frozen=True)
class Method:
    """One row: the problems that a method is for, and its needs."""

    name: str
    applies: Callable[[Case], bool]
    run: Run
    share: float = 1.0  # of the time that is left when it begins
    # Whether it runs while time is left, unless the limit is 0, or in any case.
    needs: Literal["time", "a limit", "nothing"] = "time"
    always: bool = False  # whether it runs even after a proof
    kernels: Callable[[Case], set[str]] = lambda case: set()  # parts of `warm_up` that it may call
    mostly_last: Callable[[Case], bool] = lambda case: False  # whether methods after it are hardly ever needed
    again: Run | None = None  # what proves a bound of somebody's plan in seconds, for `assessment`
    # Whether that bounds every form of the graph, or finds plans of them as well.
    forms: Literal["", "bound", "plans"] = ""
    transforms: bool = False  # whether `ablation` shows what orders, tilings and fusions of it save


def run(search: Search) -> Search:
    """Improve the search's plan and bound until it is proven, the time is over or the user interrupts; return it.

    The bound is for what was asked: for every form of the graph where it has others than itself and they are allowed, whether or
    not they are looked for.
    """
    case = search.case or Case(search.problem)
    search.as_it_is = case.as_it_is
    with _interruptible(search):
        _run_methods(search, case)
    return search


def _run_methods(search: Search, case: Case) -> None:
    for method in METHODS:
        if not method.applies(case):
            continue
        if search.done and not method.always:
            return
        if (search.remaining == 0 and method.needs == "time") or (search.time_limit == 0 and method.needs == "a limit"):
            search.cut_off = True
            return
        end = search.elapsed + method.share * search.remaining
        method.run(search, case, lambda end=end: max(0.0, min(search.remaining, end - search.elapsed)))  # type: ignore[misc]


def chosen(case: Case) -> Iterator[tuple[Method, Case]]:
    """Yield the methods that a problem may get, with the case that each is for.

    >>> from pebbler import workloads
    >>> from pebbler.solver.problem import Problem
    >>> [method.name for method, _ in chosen(Case(Problem.of(workloads.mlp(), "notes")))]
    ['program order', 'orders and tilings', 'single runs']
    >>> [method.name for method, _ in chosen(Case(Problem.of(workloads.chain(9), "red-blue")))]
    ['room', 'chain']
    """
    for method in METHODS:
        if method.applies(case):
            yield method, case
            if method.run is _run_whole:
                yield from chosen(case.of_graph)
            if method.mostly_last(case):
                return


@contextmanager
def _interruptible(search: Search) -> Iterator[None]:
    """Let Ctrl-C end the search with its best plan; without a plan, `KeyboardInterrupt` is raised at the end.

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


# Every form of the graph ------------------------------------------------------------------------------------------------


def _bound_forms(search: Search, case: Case, left: Left) -> None:
    """Bound every form of a graph whose forms are not searched."""
    problem = search.problem
    runs = problem.scale.lowered(float(problem.graph.dataflow.op_cost.sum()))
    search.raise_bound(runs, "every tiling: all ops run at least once")
    if problem.plain and case.ops * _FORM_SECONDS < left():
        _raise_by_rows(search, left)


def _raise_by_rows(search: Search, left: Left, sizes: dict[str, int] | None = None) -> None:
    from pebbler.solver.tiling.tiling_bound import RangeSearch

    bound = RangeSearch(search.problem, sizes).run(0, left)
    search.raise_bound(bound.energy, bound.proof, bound.certificate)


def _bound_tilings_again(search: Search, case: Case, left: Left) -> None:
    from pebbler.solver.tiling.tiling_bound import tiled_bound

    if case.ops <= _MOST_OPS and case.problem.plain:
        found = tiled_bound(search.problem, seconds_left=lambda: left() - 0.5 * (search.time_limit or 0.0))
        search.raise_bound(found.energy, found.proof)


def _run_whole(search: Search, case: Case, left: Left) -> None:
    """Solve the graph as it is where other forms are allowed: its plans are passed on, its bound is its own."""
    from pebbler.solver.least_memory import require_tiles_that_fit

    def pass_on(inner: Search) -> None:
        if inner.best is not None and inner.energy < search.energy:
            search.offer_plan(inner.best)

    search.whole = whole = search.part(None if search.time_limit is None else left(), pass_on)
    whole.as_it_is = True
    try:
        _run_methods(whole, case.of_graph)
    except Impossible as reason:
        if search.best is None and not case.tiled:
            raise Impossible(f"{reason}. That is for the graph as it is: its tilings are not looked for") from None
        if search.best is None and search.remaining == 0:
            raise Impossible(f"{reason}. That is for the graph as it is: there was no time for tilings") from None
        if search.best is None:
            require_tiles_that_fit(search.problem)
    search.cut_off |= whole.cut_off


def _solve_forms(search: Search, case: Case, left: Left) -> None:
    from pebbler.solver.tiling.small_forms import solve_small_forms

    solve_small_forms(search, left())


def _solve_forms_again(search: Search, case: Case, left: Left) -> None:
    if case.explicit and case.problem.plain:
        _solve_forms(search, case, lambda: 0.5 * left())


def _tile(search: Search, case: Case, left: Left) -> None:
    from pebbler.solver.tiling import solve_tiled

    solve_tiled(search, tile="none" if case.as_it_is else "auto")


def _search_orders_again(search: Search, case: Case, left: Left) -> None:
    from pebbler.solver.tiling import solve_orders

    if not case.explicit and case.ops <= _MOST_OPS:
        solve_orders(search)


def _tile_kernels(case: Case) -> set[str]:
    from pebbler.solver.tiling import MOST_EXACT

    kind = case.problem.machine.management
    if case.explicit:
        return _page_kernels(case) | ({"large"} if case.problem.machine.operands == "fastest" else set())
    return {kind} | ({f"{kind}-orders"} if case.as_it_is and case.ops <= MOST_EXACT else set())


# Caches -----------------------------------------------------------------------------------------------------------------


def _reruns_pay(case: Case) -> bool:
    from pebbler.solver.large_caches import reruns_pay

    return not case.large and reruns_pay(case.problem, as_it_is=case.as_it_is)


def _reruns_remain(case: Case) -> bool:
    """Return whether sequences with reruns are varied as long as there is time: where they are not all searched before."""
    from pebbler.solver.tiling.run_search import fits_runs

    few = case.ops <= 1 or fits_runs(case.problem) or case.problem.machine.management == "recency"
    return _reruns_pay(case) or (case.as_it_is and not case.explicit and not case.large and not few)


def _order_large_cache(search: Search, case: Case, left: Left) -> None:
    from pebbler.solver.large_caches import solve_large_cache

    solve_large_cache(search)


def _rerun(search: Search, case: Case, left: Left) -> None:
    from pebbler.solver.large_caches import raise_and_rerun

    raise_and_rerun(search, left)


def _rerun_on(search: Search, case: Case, left: Left) -> None:
    from pebbler.solver.large_caches import rerun_on

    rerun_on(search)


def _rerun_kernels(case: Case) -> set[str]:
    return {f"{case.problem.machine.management}-reruns"}


def _offer_single_runs(search: Search, case: Case, left: Left) -> None:
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


# Explicit machines ------------------------------------------------------------------------------------------------------


def _require_room(search: Search, case: Case, left: Left) -> None:
    require_capacity(search.problem)


def _solve_chain(search: Search, case: Case, left: Left) -> None:
    from pebbler.solver.chain import solve_chain_problem

    solve_chain_problem(search)


def _solve_chain_again(search: Search, case: Case, left: Left) -> None:
    if case.ops <= _MOST_CHAIN_OPS:
        _solve_chain(search, case, left)


def _solve_large(search: Search, case: Case, left: Left) -> None:
    from pebbler.solver.large_games import solve_large

    solve_large(search)


def _large_kernels(case: Case) -> set[str]:
    return {"large" if case.one_level or case.problem.machine.operands == "fastest" else "large-any"}


def _bound_by_rows(search: Search, case: Case, left: Left) -> None:
    _raise_by_rows(search, left, {})


def _bound_layouts(search: Search, case: Case, left: Left) -> None:
    from pebbler.extras.layout import layout_bounds

    for bound in layout_bounds(search.problem, any_sums=case.any_sums):
        certificate = dict(bound.certificate or {}, covers="sums") if case.any_sums else bound.certificate
        search.raise_bound(bound.value, bound.proof, certificate)


def _bound_in_stages(search: Search, case: Case, left: Left) -> None:
    """Raise compulsory costs first: they are known at once, whatever else the time allows."""
    from pebbler.solver.bounds.many_moments import bounds_in_stages

    for stage in bounds_in_stages(search.problem, left):
        for bound in stage:
            search.raise_bound(bound.value, bound.proof, bound.certificate)
        if search.done or search.remaining == 0:
            return


def _bound_in_stages_again(search: Search, case: Case, left: Left) -> None:
    if case.explicit and case.ops <= _MOST_OPS:
        _bound_in_stages(search, case, left)


def _search_states(search: Search, case: Case, left: Left, states: int = _QUICK_STATES) -> None:
    from pebbler.solver.exact import solve_exact

    solve_exact(search, states)


def _search_all_states(search: Search, case: Case, left: Left) -> None:
    _search_states(search, case, left, _ALL_STATES)


def _offer_blocks(search: Search, case: Case, left: Left) -> None:
    from pebbler.solver.products.blocked_orders import offer_blocks

    offer_blocks(search, left)


def _offer_greedy(search: Search, case: Case, left: Left) -> None:
    from pebbler.solver.large_games import offer_greedy

    offer_greedy(search, left)


def _lay_out(search: Search, case: Case, left: Left) -> None:
    from pebbler.extras.layout import solve_layout

    solve_layout(search, any_sums=case.any_sums)


def _recompute(search: Search, case: Case, left: Left) -> None:
    from pebbler.solver.recompute import solve_recompute

    solve_recompute(search)


def _recompute_kernels(case: Case) -> set[str]:
    return {"recompute"} | ({"large"} if case.one_level and (case.large or case.greedy) else set())


def _recompute_apart(search: Search, case: Case, left: Left) -> None:
    """Offer the best plan of one level in which no result goes over an operand; bounds and refusals of that are none here."""
    machine = msgspec.structs.replace(search.problem.machine, results="apart")

    def pass_on(inner: Search) -> None:
        if inner.best is not None and inner.energy < search.energy:
            search.offer(inner.best.moves, inner.best.start)

    inner = search.part(search.remaining, pass_on, replace(search.problem, machine=machine))
    try:
        _recompute(inner, case, left)
    except Impossible:
        return
    finally:
        search.cut_off |= inner.cut_off


def _recompute_then_page(search: Search, case: Case, left: Left) -> None:
    """Offer the best plan that loads the inputs once and then never leaves the fastest level: paging goes on from there."""
    problem = search.problem
    fast = problem.machine.names[0]
    loads = [
        Copy(problem.graph.tensor_names[tensor], problem.machine.names[levels[0]], fast)
        for tensor, levels in problem.plan([]).start_levels().items()
        if levels[0] != 0
    ]
    one = Machine(problem.machine.name, problem.machine.unit, problem.machine.level[:1])
    alone = replace(problem, machine=one, start={})
    capacity = one.level[0].capacity
    if capacity is not None and single_level_requirement(alone).units > capacity:
        return  # before anybody looks for a capacity that would do
    limit = None if search.time_limit is None else left()
    inner = search.part(limit, problem=alone)
    try:
        _recompute(inner, case, left)
    except Impossible:
        return
    if inner.best is None:
        return
    # What starts below is copied up first and stays below as well, where nothing needs room.
    lifted = problem.plan([*loads, *inner.best.moves])
    if check(lifted).legal:
        search.offer(lifted.moves)


def _page(search: Search, case: Case, left: Left) -> None:
    from pebbler.solver.paging import solve_paging

    solve_paging(search, left if _goes_on(case) else None)


def _goes_on(case: Case) -> bool:
    """Whether plans of the graph as it is are looked for as long as there is time: not where its tilings come next."""
    return not case.one_level and not (case.whole and case.tiled)


def _take_turns(search: Search, case: Case, left: Left) -> None:
    from pebbler.solver.turns import search_in_turns

    search_in_turns(search)


def _page_kernels(case: Case) -> set[str]:
    return set() if case.one_level else {"pages", "sequences", "prices"}


def _turn_kernels(case: Case) -> set[str]:
    return _large_kernels(case) | _page_kernels(case)


def _fits_pebbles(case: Case) -> bool:
    from pebbler.extras.pebbles.pebble_search import fits_pebbles

    return fits_pebbles(case.problem)


def _play_pebbles(search: Search, case: Case, left: Left) -> None:
    """Solve a pebble game of two levels: some plans, then two ways to prove one, for one kind of these games the second first."""
    from pebbler.extras.pebbles.pebble_search import offer_beam, solve_pebbles
    from pebbler.extras.pebbles.pebble_sweep import solve_joined, solve_sweep, sweep_pays

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


# The table --------------------------------------------------------------------------------------------------------------


def _game(case: Case) -> bool:
    """An explicit game of the graph as it is."""
    return case.explicit and case.as_it_is


def _plain_game(case: Case) -> bool:
    """Such a game with the common rules, for methods that take more than near-linear time."""
    return _game(case) and case.problem.plain and not case.large


def _free_game(case: Case) -> bool:
    """Such a game whose starts or results are freer than usual."""
    return _game(case) and not case.problem.plain


def _cache(case: Case) -> bool:
    """Caches, with forms of the graph that are searched or not asked for."""
    return not case.explicit and (case.as_it_is or case.tiled)


METHODS = (
    Method("room", lambda case: _plain_game(case) or _free_game(case), _require_room, needs="nothing",
           kernels=lambda case: {"play"}),
    Method("chain", lambda case: _game(case) and bool(case.chain), _solve_chain, needs="nothing",
           kernels=lambda case: {"play", "chain"} | ({"uneven"} if case.chain == "uneven" else set()),
           mostly_last=lambda case: case.chain == "even", again=_solve_chain_again),
    Method("large graph", lambda case: _game(case) and case.problem.plain and case.large, _solve_large, needs="nothing",
           kernels=lambda case: {"play"} | _large_kernels(case)),
    Method("program order", lambda case: _plain_game(case) or _free_game(case) or _cache(case) or (case.tiled and case.quick),
           lambda search, case, left: offer_program_order(search), needs="nothing", kernels=lambda case: {"play"}),
    # For every form of the graph, where others than itself are allowed.
    Method("bound for every form", lambda case: not case.as_it_is and not case.tiled, _bound_forms, 0.2, "nothing", True,
           again=_bound_tilings_again, forms="bound"),
    Method("graph as it is, alone", lambda case: not case.as_it_is and not case.tiled, _run_whole, needs="nothing", always=True),
    Method("graph as it is", lambda case: case.tiled and not case.as_it_is and case.explicit and not case.quick, _run_whole, 0.3,
           "nothing"),
    Method("small forms", lambda case: case.tiled and not case.as_it_is and case.explicit and not case.quick, _solve_forms, 0.3,
           kernels=lambda case: {"exact"} if case.small else set(), again=_solve_forms_again, forms="plans"),
    # Caches, and tilings on any machine.
    Method("large graph on caches", lambda case: _cache(case) and case.large, _order_large_cache, needs="a limit",
           kernels=_rerun_kernels, transforms=True),
    Method("reruns on caches", lambda case: _cache(case) and _reruns_pay(case), _rerun, 0.3, "a limit", kernels=_rerun_kernels),
    Method("orders and tilings", lambda case: _cache(case) and not case.large, _tile, needs="a limit", always=True,
           kernels=_tile_kernels, again=_search_orders_again, transforms=True),
    Method("single runs", lambda case: _cache(case) and not case.large, _offer_single_runs, needs="a limit", always=True),
    Method("reruns on caches, to the end", lambda case: _cache(case) and _reruns_remain(case), _rerun_on, kernels=_rerun_kernels),
    Method("tilings, quickly", lambda case: case.explicit and case.tiled and not case.as_it_is and case.quick, _tile,
           needs="a limit", always=True, transforms=True),
    Method("tilings", lambda case: case.explicit and case.tiled and not case.as_it_is and not case.quick, _tile,
           kernels=_tile_kernels, transforms=True),
    # Explicit games of the graph as it is.
    Method("rows", lambda case: _plain_game(case) and case.problem.graph.dataflow.values <= _FEW_VALUES, _bound_by_rows, 0.1,
           "a limit"),
    Method("bounds in stages", _plain_game, _bound_in_stages, needs="a limit", again=_bound_in_stages_again),
    Method("bounds of layouts", _free_game, _bound_layouts, needs="a limit"),
    Method("states", lambda case: (_plain_game(case) or _free_game(case)) and case.small, _search_states,
           kernels=lambda case: {"exact"}, again=_search_states),
    Method("blocks of products", lambda case: _plain_game(case) and case.greedy and not case.one_level, _offer_blocks, 0.1),
    Method("greedy runs", lambda case: _plain_game(case) and case.greedy and not case.one_level, _offer_greedy, 0.45,
           kernels=_large_kernels),
    Method("layouts", lambda case: _free_game(case) and case.lays_out, _lay_out, kernels=lambda case: {"layout"}),
    Method("recomputation", lambda case: _plain_game(case) and case.one_level, _recompute, needs="a limit",
           kernels=_recompute_kernels),
    Method("recomputation, results apart", lambda case: _free_game(case) and case.one_level and not case.lays_out,
           _recompute_apart, kernels=_recompute_kernels),
    Method("recomputation before paging", lambda case: _plain_game(case) and not case.one_level and not case.problem.steady
           and case.problem.machine.operands == "fastest", _recompute_then_page, 0.35, "a limit",
           kernels=_recompute_kernels),
    Method("paging", lambda case: (_plain_game(case) or (_free_game(case) and not case.lays_out)) and not case.one_level, _page,
           0.5, "a limit", kernels=_page_kernels),
    Method("all states", lambda case: (_plain_game(case) or _free_game(case)) and case.small, _search_all_states),
    Method("pebbles", lambda case: _plain_game(case) and _fits_pebbles(case), _play_pebbles, kernels=lambda case: {"pebbles"}),
    Method("turns", lambda case: _plain_game(case) and _goes_on(case), _take_turns, kernels=_turn_kernels),
)  # fmt: skip
