"""Compiling the kernels that a problem needs, on all cores, before its clock starts.

Compiled kernels are kept on disk, so this happens once per machine and version of the package. docs/explanation/kernels.md says why
they are compiled there and not shipped. `python -m pebbler.solver.warm_up` compiles all of them, for images and shared machines.
"""

from __future__ import annotations

import gc
import hashlib
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial

import numpy as np

from pebbler.compiled import compare_flags_quickly, source_key
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Plan
from pebbler.game.transform import tile as cut
from pebbler.kernel_folder import cache_folder, child_variables
from pebbler.referee.judgement import check
from pebbler.solver.case import Case
from pebbler.solver.methods import chosen
from pebbler.solver.problem import Problem, Search
from pebbler.workloads import chain, matmul, mlp

__all__ = ["PARTS", "needed", "warm_up"]


def needed(case: Case) -> list[str]:
    """Return the parts whose kernels a search may call: those of the methods that it gets.

    >>> from pebbler import workloads
    >>> [needed(Case(Problem.of(*pair))) for pair in ((workloads.mlp(), "notes"), (workloads.chain(9), "red-blue"))]
    [['lru', 'play'], ['play', 'chain']]
    """
    parts = {part for method, own in chosen(case) for part in method.kernels(own)}
    return [part for part in PARTS if part in parts]


def warm_up(parts: Iterable[str], tell: Callable[[str], None] | None = None) -> bool:
    """Compile some parts, unless that was done before; return whether there was anything to do.

    Processes of their own compile them side by side and leave the machine code on disk.
    """
    parts = list(parts)
    if all(_is_ready(part) for part in parts):
        return False
    # One process of this machine compiles, however many begin at once: the others wait, and find its kernels.
    with cache_folder().locked("compiling"):
        missing = [part for part in parts if not _is_ready(part)]
        if missing:
            _compile_missing(missing, tell or _tell)
        return bool(missing)


def _compile_missing(missing: Sequence[str], tell: Callable[[str], None]) -> None:
    began = time.monotonic()
    tell("compiling kernels, once; about a minute on two idle cores")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | child_variables()
    running = [
        # A session of its own, so that Ctrl-C is for this process alone; the pipe ends them when it ends.
        subprocess.Popen(
            [sys.executable, "-m", "pebbler.solver.warm_up", *share],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        for share in _shares(missing, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
    ]
    try:
        _wait(running, began, tell)
    except BaseException:
        for process in running:
            process.kill()
        raise
    finally:
        for process in running:
            assert process.stdin is not None
            process.stdin.close()
    _compile(part for part in missing if not _is_ready(part))  # here, where no process can be started
    tell(f"compiled in {time.monotonic() - began:.0f} s")


def _wait(
    running: Sequence[subprocess.Popen[bytes]], began: float, tell: Callable[[str], None], every: float = 10.0
) -> None:
    """Wait for processes, and tell every few seconds how long it has taken so far."""
    said = time.monotonic()
    for process in running:
        while True:
            try:
                process.wait(max(0.0, said + every - time.monotonic()))
            except subprocess.TimeoutExpired:
                said = time.monotonic()
                tell(f"compiling kernels: {said - began:.0f} s so far")
            else:
                break


def _shares(parts: Sequence[str], cores: int) -> list[list[str]]:
    """Deal parts out to processes, each to the one that will be ready first.

    >>> _shares(["pages", "play", "exact", "sequences", "prices"], 2)
    [['pages', 'sequences'], ['play', 'exact', 'prices']]
    """
    shares: list[list[str]] = [[] for _ in range(min(cores, len(parts)))]
    for part in parts:
        min(shares, key=lambda share: sum(PARTS[one][0] for one in share)).append(part)
    return shares


def _compile(parts: Iterable[str]) -> None:
    for part in parts:
        PARTS[part][1]()
        cache_folder().mark(_stamp(part))


def _tell(text: str) -> None:
    print(f"pebbler: {text}", file=sys.stderr, flush=True)


def _is_ready(part: str) -> bool:
    return cache_folder().has(_stamp(part))


def _stamp(part: str) -> str:
    return f"ready-{part}-{_key()}"


@cache
def _key() -> str:
    """Return a hash of all that the solver's compiled code depends on."""
    import numba
    from llvmlite.binding import get_host_cpu_name

    facts = (source_key("pebbler.solver.methods"), numba.__version__, get_host_cpu_name(), *sys.version_info[:2])
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:20]


# Parts: each runs kernels on a problem so small that compiling them is all that takes time ----------------------------

_LEVELS = (Level("fast", 1, 1, capacity=64), Level("middle", 2, 2, capacity=256), Level("slow", 9, 9))


def _problem(management: str = "explicit", graph: Graph | None = None) -> Problem:
    machine = Machine(management, "float32", _LEVELS, management, "any")  # type: ignore[arg-type]
    return Problem.of(cut(mlp(n=2, hidden=4), "hidden", 2) if graph is None else graph, machine)


def _one_level(capacity: int = 5) -> Problem:
    return Problem.of(chain(9), Machine("one", "pebble", (Level("fast", 0, 0, capacity=capacity),)))


def _play(management: str = "explicit") -> None:
    problem = _problem(management)
    check(Plan.in_order(problem.graph, problem.machine, steady=problem.steady))


def _cache(management: str) -> None:
    from pebbler.solver.tiling.candidates import candidate_of
    from pebbler.solver.tiling.nest_search import NestSearch
    from pebbler.solver.tiling.node_graph import NodeGraph

    problem = _problem(management)
    nodes = NodeGraph.of(problem.graph)
    if nodes is not None and (candidate := candidate_of(problem, nodes)) is not None:
        candidate.improve(lambda: 1.0, 20)
    if management == "lru":
        NestSearch.compile(problem)
    _play(management)


def _orders(management: str) -> None:
    from pebbler.extras.reruns.rerun_search import solve_reruns
    from pebbler.solver.tiling.cache_order import best_order
    from pebbler.solver.tiling.run_search import best_runs

    search = Search(_problem(management, mlp(n=2, hidden=2)))
    best = best_order(search.problem, limit=2_500)
    if management == "recency":
        solve_reruns(search, best.order)
    else:
        best_runs(search.problem, best.order, best.energy, limit=5_000)


def _pages(*, sequences: bool = False, prices: bool = False) -> None:
    from pebbler.solver.bounds.sampled_moments import large_bounds
    from pebbler.solver.paging.sequence_search import PagingSearch
    from pebbler.solver.paging.start_orders import start_orders
    from pebbler.solver.tiling.list_order import nearest_first
    from pebbler.solver.tiling.node_graph import NodeGraph

    problem = _problem()
    paging, nodes = PagingSearch(problem, lambda: 1.0), NodeGraph.of(problem.graph)
    assert nodes is not None
    paged = paging.page(np.arange(len(problem.graph.ops)))
    assert paged is not None
    if sequences:
        paging.anneal(paging.try_reruns(paged), 2, 0.1, reruns=True)
    elif prices:
        paging.price_capacity(paged, 20)
        nodes.order(nearest_first(nodes, problem.machine, by_price=True))
        start_orders(problem.graph)
        large_bounds(problem, lambda: 1.0)
        _passes()
    else:
        paging.improve(paged, 1)


def _layout() -> None:
    from pebbler.extras.layout.kernels.reordering import Reach
    from pebbler.extras.layout.layout_search import Layout
    from pebbler.extras.layout.product_orders import ProductOrders
    from pebbler.extras.layout.product_search import ProductAnnealing
    from pebbler.solver.bounds import bounds

    problem = Problem.of(matmul(1, 1, 2), "grid")
    bounds(problem)
    layout = Layout.of(problem, np.arange(len(problem.graph.ops)), rounds=2)
    layout.improve(2, seed=0)
    orders = ProductOrders.of(problem.graph)
    assert orders is not None
    ProductAnnealing.of(orders, layout).run(2, 0.5, 0.1, 0, Reach(1, 1, 1))
    check(Plan.in_order(problem.graph, problem.machine))


def _exact() -> None:
    from pebbler.solver.exact import solve_exact

    graph = chain(2)
    solve_exact(Search(_problem(graph=Graph(graph.name, "float32", graph.tensors, graph.ops))), 100)


def _pebbles() -> None:
    from pebbler.extras.pebbles.pebble_search import offer_beam, solve_pebbles
    from pebbler.extras.pebbles.pebble_sweep import solve_sweep

    near = Machine("near", "pebble", (Level("fast", 0, 0, capacity=3), Level("slow", 0.25, 0.25)))
    search = Search(Problem.of(chain(2), near))
    solve_sweep(search)
    offer_beam(search, lambda: 1e9)
    solve_pebbles(search, 100)


def _recompute() -> None:
    from pebbler.solver.capacity import require_capacity
    from pebbler.solver.recompute.annealing import AnnealingSettings, improve
    from pebbler.solver.recompute.recompute_problem import RecomputeProblem
    from pebbler.solver.recompute.start_sequences import fit

    require_capacity(_one_level())
    game = RecomputeProblem.of(_one_level())
    game.moves(improve(game, fit(game, game.program), AnnealingSettings(0.1, 1.0, 0.5, 0.5, 0.0, 1)))


def _reruns(management: str) -> None:
    from pebbler.solver.large_caches import raise_and_rerun
    from pebbler.solver.paging.start_orders import start_orders

    search = Search(_problem(management))
    start_orders(search.problem.graph)  # not asked for when the search is done before
    _orders_from_structure()
    raise_and_rerun(search, lambda: 1e9)  # it ends by itself, and compiling takes its time
    _play(management)


def _orders_from_structure() -> None:
    from pebbler.solver.structure.kernels.block_walks import walk_blocks
    from pebbler.solver.structure.kernels.connected_groups import connected_groups
    from pebbler.solver.structure.order_search import OrderSearch

    one, two = np.zeros(1, np.int64), np.zeros(2, np.int64)
    walk_blocks(one, one, (two, one), (two, one), True)
    connected_groups(2, np.zeros(1, np.int64), np.ones(1, np.int64))  # not all coordinates are drawn
    OrderSearch(chain(3).dataflow, [4.0], lambda order, bound: 1.0, lambda: 1e9).explore()


def _passes() -> None:
    from pebbler.solver.bounds.pass_search import pass_bounds

    two = Machine("two", "pebble", (Level("fast", 0, 0, capacity=4), Level("slow", 1, 1)))
    pass_bounds(Problem.of(chain(3), two, steady=False), lambda: 1e9)


def _large(*, anywhere: bool = False) -> None:
    from pebbler.solver.bounds.sampled_moments import large_bounds
    from pebbler.solver.greedy_plans import GreedyPlanner
    from pebbler.solver.large_games import solve_large
    from pebbler.solver.structure.kernels.near_orders import anneal_stretch
    from pebbler.solver.structure.order_search import net_of
    from pebbler.solver.tiling.loop_nests import LoopNests

    fastest = Problem.of(_problem().graph, Machine("fastest", "float32", _LEVELS, operands="fastest"))
    for problem in (_problem(),) if anywhere else (_one_level(), fastest):
        solve_large(Search(problem))
    # Not asked for where a search is done before.
    large_bounds(_problem(), lambda: 1.0)
    _passes()
    _orders_from_structure()
    planner, order, net = GreedyPlanner.of(fastest), np.arange(len(fastest.graph.ops)), net_of(fastest.graph.dataflow)
    planner.belady(order)
    anneal_stretch(planner.game, net, order, 0, 2, 1, 1, 0.1, 0)
    if not anywhere:
        LoopNests(fastest).nested(0, {"n": 1})


def _chain(uneven: bool = False) -> None:
    from pebbler.solver.capacity import require_capacity
    from pebbler.solver.chain import Chain, solve_chain, solve_general
    from pebbler.solver.chain.held_nodes import describe, waiting_nodes
    from pebbler.solver.chain.kernels.bound_tables import TOPS, segment_tables, table_rows
    from pebbler.solver.chain.kernels.segment_bound import bound_of_all, fill_block

    require_capacity(_one_level())
    if not uneven:
        solve_chain(20, red=4)
        solve_chain(20, red=4, io=2)
        return
    sizes, steps = (1, 2, 3, 1) * 5, (0.0, *(3.0,) * 19)
    for io in (4.0, math.inf):
        moved = tuple(io * size for size in sizes)
        solve_general(Chain(sizes, steps, steps, moved, moved, fast=8))
    # A table with the small entries that only long chains get.
    never = (math.inf,) * 3
    described = describe(Chain((1,) * 3, (0.0, 1.0, 1.0), (1.0,) * 3, never, never, fast=3), np.ones(3, np.int64), 1.0)
    waiting, swept = waiting_nodes(described.size, 2, 2), np.empty((table_rows(2) * 4, TOPS), np.float32)
    bounds = segment_tables(described, waiting, swept, swept[:0], 4)
    fill_block(described, waiting, bounds, 0, 2)
    bound_of_all(described, bounds, math.inf, 2)


# The seconds that each takes on a core of 2024, and what compiles it; those that others build on come first.
PARTS: dict[str, tuple[float, Callable[[], None]]] = {
    "lru": (9.0, partial(_cache, "lru")),
    "recency": (6.0, partial(_cache, "recency")),
    "pages": (8.0, _pages),
    "play": (4.0, _play),
    "exact": (6.0, _exact),
    "sequences": (5.0, partial(_pages, sequences=True)),
    "large": (11.0, _large),
    "large-any": (13.0, partial(_large, anywhere=True)),
    "lru-reruns": (9.0, partial(_reruns, "lru")),
    "recency-reruns": (9.0, partial(_reruns, "recency")),
    "lru-orders": (9.0, partial(_orders, "lru")),
    "recency-orders": (12.0, partial(_orders, "recency")),
    "layout": (7.0, _layout),
    "recompute": (4.0, _recompute),
    "chain": (3.0, _chain),
    "uneven": (12.0, partial(_chain, uneven=True)),
    "pebbles": (6.0, _pebbles),
    "prices": (2.0, partial(_pages, prices=True)),
}


def main(arguments: Sequence[str]) -> None:
    """Compile some parts, as `warm_up` asks for it; without arguments, all of them."""
    if not arguments:
        warm_up(PARTS)
        return
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.disable()  # the compiler leaves little garbage behind and a lot to look through: this saves a tenth of the time
    compare_flags_quickly()
    _compile(arguments)


def _end_with_parent() -> None:
    """End this process when its parent has ended, for whatever reason."""
    os.read(0, 1)  # not through `sys.stdin`, whose lock would be held when the interpreter ends
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
