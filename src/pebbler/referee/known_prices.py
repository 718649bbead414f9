"""Small problems whose prices are known: the referee's kernels are asked for them whenever their code is loaded.

The code of a kernel is compiled, kept on disk and linked by others, and each of these has gone wrong once. A kernel whose code does
not give the known figures never prices anything else: code from disk is set aside and compiled anew, and code that is wrong when it
is new is an error. Only kernels that are loaded anyway are asked, each when it is loaded; that takes a fraction of a millisecond.
`tests/referee/test_known_prices.py` holds the figures to the brute-force twins of the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numba import typeof

from pebbler.arrays import Array
from pebbler.compiled import check_on_load
from pebbler.errors import PebblerError
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import Moves
from pebbler.game.plan import Plan
from pebbler.referee.judgement import judge
from pebbler.referee.kernels.allocation import allocate
from pebbler.referee.kernels.books import Books
from pebbler.referee.kernels.cache_price import lru_price, recency_price
from pebbler.referee.kernels.explicit_play import play
from pebbler.referee.kernels.lru_stack import Runs, charge, cut_runs, window
from pebbler.referee.kernels.recency_rank import price_prefix
from pebbler.referee.pricing import cache_game
from pebbler.referee.touches import touches_of_ops

__all__ = ["KNOWN", "WrongKernel", "small_cache", "small_graph", "small_plans"]

_OPS, _INPUTS = 22, 18  # NumPy's sorts, as numba compiles them, have a way of their own for up to 15 numbers
_ORDER = np.array([2, 0, 1, *range(3, _OPS + 1)], np.int64)


class WrongKernel(PebblerError):
    """Compiled code does not give a price that is known: nothing that it says can be believed."""


@cache
def small_graph() -> Graph:
    """Return a graph with inputs, a param that is updated, temps of all sizes and two outputs.

    >>> len(small_graph().ops), small_graph().ops[1].reads
    (23, ('x7', 'w'))
    """
    graph = Graph("known").tensor("w", 6, kind="param")
    for k in range(_INPUTS):
        graph = graph.tensor(f"x{k}", 1 + k * 3 % 11, kind="input")
    for k in range(_OPS):
        graph = graph.tensor(f"t{k}", 1 + k * 7 % 10, kind="output" if k in (9, _OPS - 1) else "temp")
    for k in range(_OPS):
        reads = [f"x{k * 7 % _INPUTS}", "w"] if k < 3 else [f"t{k - 1}", f"t{k * 5 % (k - 1)}", f"x{k * 7 % _INPUTS}"]
        graph = graph.op(f"o{k}", reads=list(dict.fromkeys(reads)), writes=[f"t{k}"], cost=k % 3)
    return graph.op("update", reads=["w", f"t{_OPS - 1}"], writes=["w"])


def small_cache(management: str, allocator: str = "reuse", line: int = 1) -> Machine:
    """Return a machine of caches that the small graph does not fit into."""
    levels = (Level("a", 1, 2, capacity=12), Level("b", 5, 7, capacity=36), Level("c", 50, 60))
    return Machine("known", "float32", levels, management, "any", allocator=allocator, line=line)  # type: ignore[arg-type]


@cache
def small_plans() -> tuple[Plan, ...]:
    """Return explicit plans of the small graph: operands anywhere, operands in the fastest level, one level."""
    graph = small_graph()
    fastest: list[tuple[str, ...]] = []
    for op in graph.ops:
        fastest += [("copy", name, "b", "a") for name in op.reads]
        fastest += [("compute", op.name, "a"), *(("copy", name, "a", "b") for name in op.writes)]
        fastest += [("drop", name, "a") for name in dict.fromkeys((*op.reads, *op.writes))]
    anywhere = [("compute", op.name, "ba"[number % 2]) for number, op in enumerate(graph.ops)]
    alone = [("compute", op.name, "a") for op in graph.ops]
    alone.insert(_OPS, ("drop", "t3", "a"))
    kinds: list[tuple[list[Any], Machine]] = [
        (anywhere, Machine("known", "float32", (Level("a", 1, 2, capacity=200), Level("b", 5, 7)), operands="any")),
        (fastest, Machine("known", "float32", (Level("a", 1, 2, capacity=60), Level("b", 5, 7)), operands="fastest")),
        (alone, Machine("known", "float32", (Level("a", 3, 4, capacity=400),))),
    ]
    return tuple(Plan(graph, machine, Moves.of(graph, machine, moves)) for moves, machine in kinds)


def _lru_prices(run: Callable[..., Any]) -> list[float]:
    return [
        run(cache_game(small_graph(), small_cache("lru", allocator, line), steady=steady), _ORDER)
        for allocator in ("own", "reuse")
        for line in (1, 4)
        for steady in (False, True)
    ]


def _prefix_price(run: Callable[..., Any]) -> list[float]:
    graph, machine = small_graph(), small_cache("recency")
    books = Books.empty(len(machine.level), len(graph.tensors), len(graph.ops), len(_ORDER))
    energy, live, accessed = run(cache_game(graph, machine, steady=False), _ORDER, len(_ORDER), True, books)
    return [energy, _sum(live), _sum(accessed), *books.by_level.tolist()]


def _window_units(run: Callable[..., Any], *, with_depths: bool) -> list[list[int]]:
    """Return the units moved by a window of touches: item i and its neighbour in turn, then all backwards; odd touches write."""
    item = np.array([0, 1, 0, 2, 1, 3, 2, 3, 1, 0], np.int64)
    lines = 1 + item % 3
    runs = Runs(item, np.arange(len(item)) % 2 == 1, lines, 4 * lines, 4, 4)
    depth = (
        (np.array([0, 0, 3, 0, 6, 0, 6, 4, 6, 7], np.int64), np.array([9, 8, 6, 7], np.int64)) if with_depths else ()
    )
    return np.vstack([run(runs, *depth, np.array([2, 5]), False, detail).units for detail in (False, True)]).tolist()  # type: ignore[no-any-return]


def _sum(numbers: Array) -> float:
    """Return a sum that depends on the order of the numbers."""
    return float(np.asarray(numbers, np.float64) @ np.arange(1, len(numbers) + 1))


def _cut(run: Callable[..., Any]) -> list[float]:
    k = np.arange(2 * _OPS)
    runs, touch, edges = run(k * 29 % 61, 1 + k * 7 % 10, 4 + k * 28 % 40, k % 3 == 0, 4)
    return [*map(_sum, (runs.item, runs.write, runs.lines, runs.units, touch, edges)), runs.items]


def _allocated(run: Callable[..., Any]) -> list[float]:
    return [_sum(run(touches_of_ops(small_graph(), name, 4), _ORDER)[1]) for name in ("own", "reuse")]


_UNITS = [[0, 4, 32], [32, 0, 0], [0, 28, 20]]  # read, written and written back by each level
# A kernel, what it is asked, and the figures that are right.
KNOWN: tuple[tuple[Any, Callable[[Callable[..., Any]], Any], Any], ...] = (
    (play, lambda run: [judge(plan, run).energy for plan in small_plans()], [1797, 3688, 21]),
    (recency_price, lambda run: run(cache_game(small_graph(), small_cache("recency"), steady=False), _ORDER), 8401),
    (price_prefix, _prefix_price, [8401, 2280, 12280, 301, 1050, 7050]),
    (lru_price, _lru_prices, [15185, 16007, 18060, 19526, 12005, 12527, 13740, 14726]),
    (allocate, _allocated, [168956, 120183]),
    (cut_runs, _cut, [643784, 6424, 24748, 98992, 625897, 77552, 59]),
    (window, partial(_window_units, with_depths=False), 2 * _UNITS),
    (charge, partial(_window_units, with_depths=True), 2 * _UNITS),
)


class _OtherTypes(Exception):
    """The code is for other types of arguments than those of the small problem."""


def _require(name: str, ask: Callable[[Callable[..., Any]], Any], right: Any, result: Any) -> None:
    """Refuse compiled code whose result is wrong."""

    def run(*arguments: Any) -> Any:
        if tuple(map(typeof, arguments)) != result.signature.args:
            raise _OtherTypes  # the code would read them as what they are not
        return result.entry_point(*arguments)

    try:
        found = ask(run)
    except _OtherTypes:
        return
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    if found != right:
        raise WrongKernel(f"the compiled kernel {name!r} gives {found} for a small problem, and {right} is right")


for _kernel, _ask, _right in KNOWN:
    check_on_load(_kernel, partial(_require, _kernel.__name__, _ask, _right))
