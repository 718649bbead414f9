"""Pebble games of two levels in which nothing pays to run twice, solved layer by layer, with proof.

Where memory is tight there are few positions per set of ops that have run, and going through all of them that can lead to a
better plan takes less than keeping them sorted. `docs/exact.md` ("Layer by layer") says why no plan is missed.
"""

from __future__ import annotations

import math

import numpy as np

from pebbler.extras.pebbles.joined_ops import join_ops
from pebbler.extras.pebbles.kernels import pebble_layers as kernel
from pebbler.extras.pebbles.kernels.pebble_state import BEFORE, READS
from pebbler.extras.pebbles.pebble_moments import with_tightest_moments
from pebbler.extras.pebbles.pebble_moves import moves_of_runs
from pebbler.extras.pebbles.pebble_rules import PebbleRules, pebble_rules
from pebbler.extras.pebbles.pebble_search import offer_beam
from pebbler.game.moves import Moves
from pebbler.referee.judgement import check
from pebbler.solver.problem import Problem, Search

__all__ = ["fits_sweep", "solve_joined", "solve_sweep", "sweep_pays"]

PROOF = "searched every position, layer by layer"
_SECONDS = 0.1  # between two looks at the clock, about
_WIDEST = 1_000  # ways to make room for one run
_FEW_WAYS = 100  # with more of them, A* gets further in the same time
_MOST_SETS = 20_000  # sets of as many ops that can have run: with more, there is no end to the positions
_FINEST = 1e-9  # a price that is less than this part of everything may vanish in a sum
_FIRST = 0.4  # the first cutoff lies so far between the bound and the best plan


def fits_sweep(problem: Problem) -> bool:
    """Return whether `solve_sweep` can play the game (it may still be too large to finish).

    >>> from pebbler import machine, workloads
    >>> fits_sweep(Problem.of(workloads.chain(20), machine("red-blue")))  # steps cost less than copies: they run again
    False
    """
    return _sweep_rules(problem) is not None


def sweep_pays(problem: Problem) -> bool:
    """Return whether the game fits, with few ways to make room and few sets of ops that can have run: `solve_sweep` gets somewhere.

    >>> from pebbler import machine, workloads
    >>> sweep_pays(Problem.of(workloads.chain(20), machine("red-blue")))
    False
    """
    rules = _sweep_rules(problem)
    if rules is None or _ways_to_make_room(rules) > _FEW_WAYS:
        return False
    waits_for = rules.game.ops[:, BEFORE].tolist()
    sets = {0}
    for _ in waits_for:
        sets = {
            ran | 1 << op for ran in sets for op, before in enumerate(waits_for) if not (ran >> op & 1 or before & ~ran)
        }
        if len(sets) > _MOST_SETS:
            return False
    return True


def _sweep_rules(problem: Problem) -> PebbleRules | None:
    rules = pebble_rules(problem, join_sources=True)
    if rules is None or rules.game.repeat:
        return None
    game = rules.game
    cheapest = min(game.load, game.store)
    if cheapest <= 0 or cheapest < _FINEST * (
        rules.base + len(rules.values) * len(game.needs) * (game.load + game.store)
    ):
        return None
    return rules if _ways_to_make_room(rules) <= _WIDEST else None


def _ways_to_make_room(rules: PebbleRules) -> int:
    """Return the greatest number of sets of values that one run may have to choose from."""
    room = min(rules.game.capacity, len(rules.values))
    return math.comb(room, min(int(rules.game.needs.max()), room // 2))


def solve_joined(search: Search, share: float) -> None:
    """Solve the game in which ops that only pass a value on are joined with others, in a share of the time; raise the bound.

    What is proven of it holds for the game as it is. Its plan is offered too: mostly it costs as much.

    >>> from pebbler.game.graph import Graph
    >>> from pebbler.game.machine import Level, Machine
    >>> graph = Graph("share", unit="pebble").tensor("a", 1, kind="input").tensor("rank", 1).tensor("share", 1)
    >>> graph = graph.tensor("b", 1, kind="output").op("sum", ["a"], ["rank"], 2).op("divide", ["rank"], ["share"], 1)
    >>> graph = graph.op("add", ["a", "share"], ["b"], 2)
    >>> two = Machine("two", "pebble", (Level("fast", 0, 0, capacity=3), Level("slow", 1, 1)))
    >>> search = Search(Problem.of(graph, two, steady=False))
    >>> solve_joined(search, 1.0)
    >>> search.energy, search.bound
    (6, 6)
    """
    joined = join_ops(search.problem)
    if joined is None or not sweep_pays(joined.problem):
        return
    inner = search.part(None if search.time_limit is None else share * search.remaining, problem=joined.problem)
    inner.as_it_is = search.as_it_is
    end = 0.1 * inner.remaining
    offer_beam(inner, lambda: min(inner.remaining, end - inner.elapsed))
    solve_sweep(inner, known=search.energy)
    if inner.best is not None:
        plan = search.problem.plan(joined.moves(inner.best.moves))
        if check(plan).legal:
            search.offer_plan(plan)
    search.raise_bound(min(inner.bound, search.energy), f"{inner.proof}; ops that pass a value on joined")


def solve_sweep(search: Search, max_states: int = 16_000_000, known: float = math.inf) -> None:
    """Go through all positions that can lead to plans cheaper than a cutoff: halfway to the best plan first, then up to it.

    Offers the cheapest plan and proves it, or raises the bound as far as time and `max_states` allow. Does nothing when the
    game does not fit (see `fits_sweep`). Plans that cost as much as one that is `known` to exist need not be found.

    >>> from pebbler.game.graph import Graph
    >>> from pebbler.game.machine import Level, Machine
    >>> graph = Graph("sum", unit="pebble").tensor("a", 1, kind="input").tensor("b", 1, kind="input")
    >>> graph = graph.tensor("c", 1, kind="output").op("add", ["a", "b"], ["c"], cost=2)
    >>> two = Machine("two", "pebble", (Level("fast", 0, 0, capacity=3), Level("slow", 1, 1)))
    >>> search = Search(Problem.of(graph, two, steady=False))
    >>> solve_sweep(search)
    >>> search.energy, search.bound, search.proof
    (4, 4, 'searched every position, layer by layer, 2 states')
    """
    rules = _sweep_rules(search.problem)
    if rules is None:
        return
    rules = with_tightest_moments(rules, lambda: search.remaining)
    cutoffs = [min(search.energy, known)]
    if cutoffs[0] < math.inf:
        cutoffs.insert(0, search.problem.scale.least(search.bound + _FIRST * (cutoffs[0] - search.bound)))
    for cutoff in cutoffs:
        if search.done or search.bound >= cutoff or not _sweep(search, rules, cutoff, max_states):
            break
    search.cut_off |= not search.done


def _sweep(search: Search, rules: PebbleRules, cutoff: float, max_states: int) -> bool:
    """Look for a plan cheaper than the cutoff until there is one or surely none; return whether there was time and space."""
    game, scale = rules.game, search.problem.scale
    most = scale.cutoff(cutoff) - rules.base
    layers = _first_layer(rules, min(1 << 16, max_states))
    outlook = _outlook(rules)
    pieces = 64
    for _ in range(len(game.needs)):
        start, end = int(layers.counters[1]), int(layers.counters[0])
        nodes = start + np.argsort(layers.sets[start:end, 0], kind="stable")
        layers.counters[1] = end
        while len(nodes):
            if search.remaining <= 0:
                return False
            began = search.elapsed
            piece = nodes[:pieces]
            done = kernel.expand_layer(game, layers, piece, outlook, most)
            nodes = nodes[done:]
            pieces = _next_size(pieces, search.elapsed - began)
            if done < len(piece):
                if len(layers.paid) >= max_states:
                    return False
                layers = _with_more_space(layers, max_states)
    start, end = int(layers.counters[1]), int(layers.counters[0])
    proof = f"{PROOF}, {end:,} states"
    if end > start:
        best = start + int(np.argmin(layers.paid[start:end]))
        search.offer(_way_to(search.problem, rules, layers, best))
        search.raise_bound(search.energy, proof)
    else:
        search.raise_bound(scale.lowered(cutoff) if cutoff < search.energy else search.energy, proof)
    return True


def _next_size(pieces: int, seconds: float) -> int:
    return max(1, min(2 * pieces, int(pieces * _SECONDS / max(1e-6, seconds))))


def _outlook(rules: PebbleRules) -> kernel.Outlook:
    ops, values = len(rules.game.needs), len(rules.values)
    columns = rules.game.tightest.shape[1]
    return kernel.Outlook(np.zeros(ops, np.int64), np.zeros(columns), np.zeros(2 * values + 2, np.int64))


# The positions ------------------------------------------------------------------------------------------------------------


def _space(positions: int) -> kernel.Layers:
    return kernel.Layers(
        sets=np.empty((positions, 3), np.int64),
        paid=np.empty(positions, np.float64),
        parent=np.empty(positions, np.int32),
        op=np.empty(positions, np.int8),
        table=np.full(1 << (2 * positions - 1).bit_length(), -1, np.int32),
        counters=np.zeros(2, np.int64),
    )


def _first_layer(rules: PebbleRules, positions: int) -> kernel.Layers:
    """Return space with the start of the game in it."""
    game = rules.game
    wanted = game.survive & ~rules.slow
    for v, readers in enumerate(game.readers.tolist()):
        if readers:
            wanted |= 1 << v
    layers = _space(positions)
    layers.sets[0] = 0, rules.fast & wanted, rules.fast & rules.slow & wanted
    layers.paid[0] = 0.0
    layers.parent[0] = layers.op[0] = -1
    layers.counters[:] = 1, 0
    kernel.enter_newest(layers)
    return layers


def _with_more_space(layers: kernel.Layers, max_states: int) -> kernel.Layers:
    """Return the same positions with room for more."""
    positions = int(layers.counters[0])
    grown = _space(min(4 * len(layers.paid), max_states))
    for field in ("sets", "paid", "parent", "op"):
        getattr(grown, field)[:positions] = getattr(layers, field)[:positions]
    grown.counters[:] = layers.counters
    kernel.enter_newest(grown)
    return grown


def _way_to(problem: Problem, rules: PebbleRules, layers: kernel.Layers, node: int) -> Moves:
    """Return the moves that lead to a position of the last layer."""
    at_end, path = int(layers.sets[node, 1]), []
    while (before := int(layers.parent[node])) >= 0:
        op = int(layers.op[node])
        path.append((op, int(rules.game.ops[op, READS]) & ~int(layers.sets[before, 1])))
        node = before
    return moves_of_runs(problem, rules, path[::-1], at_end)
