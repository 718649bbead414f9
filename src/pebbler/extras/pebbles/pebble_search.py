"""Pebble games of two levels solved exactly: up to 62 ops and values of one size, with proof.

`docs/exact.md` ("Pebble games of two levels") says why no plan is missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pebbler.extras.pebbles.kernels import pebble_astar as kernel
from pebbler.extras.pebbles.pebble_moments import with_fillings, with_tightest_moments
from pebbler.extras.pebbles.pebble_moves import moves_of_runs
from pebbler.extras.pebbles.pebble_pool import grow, pool_from, search_pool
from pebbler.extras.pebbles.pebble_rules import PebbleRules, pebble_rules
from pebbler.extras.pebbles.pebble_symmetries import swap_back, with_symmetries
from pebbler.game.bit_sets import bit_set, members
from pebbler.game.moves import Moves
from pebbler.solver.exact.kernels import astar as states
from pebbler.solver.kernels.open_list import least_open
from pebbler.solver.problem import Problem, Search

__all__ = ["fits_pebbles", "offer_beam", "solve_pebbles"]

PROOF = "searched every sequence of runs"
_WIDTH = 200  # states from which a beam goes on
_ROUNDS = 2_000, 50_000  # states that are looked at after each op that fills the memory, one time and the next
_SHARE = 0.6  # of the time that is left after each of them, about
_ROOM = 100  # states that one may lead to, when room for them is made


def fits_pebbles(problem: Problem) -> bool:
    """Return whether `solve_pebbles` can represent the game (it may still be too large to finish).

    >>> from pebbler import machine, workloads
    >>> fits_pebbles(Problem.of(workloads.chain(20), machine("red-blue")))
    True
    """
    return pebble_rules(problem) is not None


def solve_pebbles(search: Search, max_states: int = 8_000_000, seconds_left: Callable[[], float] | None = None) -> None:
    """Offer the cheapest plan and prove it, or raise the bound as far as time and `max_states` allow.

    Does nothing when the game does not fit (see `fits_pebbles`). `seconds_left` may say less than the search has.

    >>> from pebbler import machine, workloads
    >>> search = Search(Problem.of(workloads.chain(6), machine("red-blue"), start={"N0": "fast"}))
    >>> solve_pebbles(search)
    >>> search.energy, search.bound, search.proof
    (13, 13, 'searched every sequence of runs, 20 states')
    """
    problem = search.problem
    rules = pebble_rules(problem)
    if rules is None:
        return
    if seconds_left is None:
        seconds_left = lambda: search.remaining  # noqa: E731
    rules = with_tightest_moments(rules, seconds_left)
    rules = replace(rules, game=with_symmetries(rules.game, seconds_left))
    for states_of_each in _ROUNDS if max_states > _ROUNDS[0] else ():
        end = seconds_left() * _SHARE
        left = lambda end=end: seconds_left() - (end if end < math.inf else 0.0)  # noqa: E731
        known = rules
        rules = with_fillings(rules, _cutoff(search, rules), states_of_each, left)
        if rules is not known:  # the new prices also show the way
            _beam(search, rules, seconds_left, _WIDTH)
    pool = _first_pool(rules, max(64, min(1 << 14, max_states)))
    status, pool = search_pool(rules.game, pool, max_states, _cutoff(search, rules), seconds_left)
    if status == states.FOUND:
        search.offer(_retrace(problem, rules, pool))
    if status == states.FOUND or (status == states.EXHAUSTED and search.best is not None):
        search.raise_bound(search.energy, f"{PROOF}, {int(pool.counters[0]):,} states")
        return
    search.cut_off = True
    bound = min(problem.scale.lowered(rules.base + least_open(pool.open, 0.0)), search.energy)
    search.raise_bound(bound, "smallest estimate among the sequences of runs still open")


def offer_beam(search: Search, seconds_left: Callable[[], float], width: int = _WIDTH) -> None:
    """Offer plans of a beam search: after every run only so many states are kept, those with the least estimates.

    >>> from pebbler import machine, workloads
    >>> search = Search(Problem.of(workloads.chain(6), machine("red-blue"), start={"N0": "fast"}))
    >>> offer_beam(search, lambda: search.remaining)
    >>> search.energy
    13
    """
    rules = pebble_rules(search.problem)
    if rules is not None:
        _beam(search, rules, seconds_left, width)


def _beam(search: Search, rules: PebbleRules, seconds_left: Callable[[], float], width: int) -> None:
    pool = _first_pool(rules, width * _ROOM)
    for _ in range(3 * len(rules.game.again)):  # runs; a plan that is any good has fewer
        entries = int(pool.open.used[0])
        if entries == 0 or seconds_left() <= 0:
            return
        nodes = pool.open.node[:entries].astype(np.int64)
        ended = nodes[pool.sets[nodes, 0] & kernel.END != 0]
        if len(ended):
            pool.counters[1] = ended[np.argmin(pool.spent[ended])]
            search.offer(_retrace(search.problem, rules, pool))
        chosen = nodes[np.lexsort((-pool.open.paid[:entries], pool.open.estimate[:entries]))][:width]
        pool.open.used[0] = 0
        if pool.counters[0] + width * _ROOM > len(pool.spent):
            pool = grow(pool, 4 * len(pool.spent))
        for part in np.array_split(chosen, 1 + len(chosen) // 20):
            if seconds_left() <= 0 or not kernel.expand_each(rules.game, pool, part, _cutoff(search, rules)):
                return


def _cutoff(search: Search, rules: PebbleRules) -> float:
    """Only plans cheaper than the best so far are wanted."""
    if search.best is None:
        return math.inf
    return search.problem.scale.cutoff(search.energy) - rules.base


def _first_pool(rules: PebbleRules, nodes: int) -> kernel.PebblePool:
    """Return a pool with the start of the game in it."""
    return pool_from(rules.game, nodes, 0, rules.fast, rules.slow)


# The way back -------------------------------------------------------------------------------------------------------------


def _retrace(problem: Problem, rules: PebbleRules, pool: kernel.PebblePool) -> Moves:
    """Return the moves that lead to the goal."""
    nodes = []
    node = last = int(pool.links[int(pool.counters[1]), 0])
    while int(pool.links[node, 0]) >= 0:
        nodes.append(node)
        node = int(pool.links[node, 0])
    # What the ops and values of a state stand for: some of them may have changed places on the way.
    ops, values = list(range(len(rules.game.needs))), list(range(len(rules.values)))
    path = []
    for node in reversed(nodes):
        path.append((ops[int(pool.links[node, 1])], bit_set(values[v] for v in members(int(pool.sets[node, 2])))))
        swap_back(rules.game, int(pool.sets[node, 4]), ops, values)
    at_end = bit_set(values[v] for v in members(_kept_at_end(rules, pool, last)))
    return moves_of_runs(problem, rules, path, at_end)


def _kept_at_end(rules: PebbleRules, pool: kernel.PebblePool, node: int) -> int:
    """Return the values that must survive and stay in the fast level: as many as can."""
    level = pool.levels[node].tolist()
    unsaved = list(members(rules.game.survive & ~int(pool.sets[node, 1])))
    kept = 0
    for v in sorted(unsaved, key=lambda v: level[v]):
        if kept.bit_count() < level[v]:
            kept |= 1 << v
    return kept
