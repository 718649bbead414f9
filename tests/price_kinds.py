"""A program that prices every kind of game, in orders that it is given, each order in a process in which no kernel is loaded yet.

    python price_kinds.py lru,recency,any recency,lru,any ...

prints every price that is not what the brute-force twin of its rule says.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Callable

import naive_allocator
import naive_recency
import pebbler as pb
from naive_game import NaiveGame
from naive_lru import lru_energy
from pebbler.game.machine import Level, Machine
from pebbler.referee.known_prices import small_cache, small_graph, small_plans
from pebbler.solver.exact import solve_exact
from pebbler.solver.problem import Problem, Search
from pebbler.trace.energy import lru_energy as price_trace

__all__ = ["KINDS", "cache_twin"]

Prices = list[tuple[float, float]]  # found, right


def cache_twin(plan: pb.Plan) -> float:
    """Return the price of a plan on caches by the twin of its rule."""
    graph, machine = plan.graph, plan.machine
    order = [graph.op_index(move.words[1]) for move in plan.moves]
    costs = sum(graph.ops[op].cost for op in order)
    if machine.management == "recency":
        return sum(naive_recency.price(graph, machine, [graph.ops[op].name for op in order]).values())
    size = {tensor.name: tensor.size for tensor in graph.tensors}
    line, touched = (
        machine.line,
        [(n, w) for op in order for w in (False, True) for n in _names(graph.ops[op], write=w)],
    )
    places = naive_allocator.reuse(graph, order, line)
    if machine.allocator == "own":
        home, top = {}, 0
        for tensor in graph.tensors:
            home[tensor.name], top = top, top - (-tensor.size // line) * line
        places = [home[name] for name, _ in touched]
    touches = []
    for at, (name, write) in zip(places, touched, strict=True):
        lines = Counter(unit // line for unit in range(at, at + size[name]))
        touches += [(where, count, write) for where, count in sorted(lines.items())]
    levels = [[getattr(level, part) for level in machine.level] for part in ("capacity", "read", "write")]
    return costs + lru_energy(touches, *levels, line, bool(plan.steady))


def _names(op: pb.Op, *, write: bool) -> tuple[str, ...]:
    return tuple(op.writes if write else op.reads)


def _checked(management: str) -> Prices:
    prices = []
    for allocator, line, steady in (("own", 1, False), ("reuse", 1, True), ("reuse", 4, False)):
        plan = pb.Plan.in_order(small_graph(), small_cache(management, allocator, line), steady=steady)
        prices.append((pb.check(plan).energy, cache_twin(plan)))
    return prices


def _played(number: int) -> Prices:
    plan = small_plans()[number]
    moves = [move.words for move in plan.moves]
    twin = NaiveGame(plan.graph, plan.machine, bool(plan.steady)).play(moves)
    assert twin.legal, twin
    return [(pb.check(plan).energy, twin.energy)]


def _game(management: str) -> tuple[pb.Graph, Machine]:
    graph = pb.Graph("s").tensor("x", 3, kind="input").tensor("w", 2, kind="input")
    for k in range(4):
        graph = graph.tensor(f"t{k}", k + 1, kind="output" if k == 3 else "temp")
    for name, reads, writes in (("a", "x", "t0"), ("b", "w x", "t1"), ("c", "t0 w", "t2"), ("d", "t1 t0 t2", "t3")):
        graph = graph.op(name, reads=reads.split(), writes=[writes])
    levels = (Level("a", 1, 1, capacity=3), Level("b", 5, 5, capacity=4), Level("c", 50, 50))
    return graph, Machine("r", "float32", levels, management=management, operands="any")  # type: ignore[arg-type]


def _solved(management: str) -> Prices:
    plan = pb.solve(*_game(management), time_limit=5, threads=1, tile="none")
    return [(plan.energy, cache_twin(plan)), (pb.check(plan).energy, cache_twin(plan))]


def _exact() -> Prices:
    graph, machine = _game("explicit")
    search = Search(Problem.of(graph, machine))
    solve_exact(search, 100_000)
    assert search.best is not None
    return [(pb.check(search.best).energy, NaiveGame(graph, machine, False).solve())]


def _traced() -> Prices:
    rng = random.Random(0)
    touches = [(rng.randrange(9), 1, rng.random() < 0.5) for _ in range(60)]
    levels: tuple[list[int | None], list[float], list[float]] = [2, 5, None], [1, 4, 30], [2, 6, 40]
    items, _, writes = zip(*touches, strict=True)
    return [(price_trace(items, writes, *levels, steady=steady).energy, lru_energy(touches, *levels, 1, steady))
            for steady in (False, True)]  # fmt: skip


KINDS: dict[str, Callable[[], Prices]] = {
    "lru": lambda: _checked("lru"),
    "recency": lambda: _checked("recency"),
    "any": lambda: _played(0),
    "fastest": lambda: _played(1),
    "one": lambda: _played(2),
    "trace": _traced,
    "exact": _exact,
    "solved-lru": lambda: _solved("lru"),
    "solved-recency": lambda: _solved("recency"),
}


def main(orders: list[str]) -> None:
    """Price the kinds of each order in a process of its own."""
    for order in orders:
        child = os.fork()
        if child == 0:
            try:
                for kind in order.split(","):
                    wrong = [prices for prices in KINDS[kind]() if prices[0] != prices[1]]
                    if wrong:
                        print(f"{order}: {kind}: {wrong}", flush=True)
            except BaseException as error:
                print(f"{order}: {type(error).__name__}: {error}", flush=True)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status:
            print(f"{order}: ended with status {status}")


if __name__ == "__main__":
    main(sys.argv[1:])
