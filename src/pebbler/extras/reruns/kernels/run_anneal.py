"""A search over sequences of runs on caches, in which ops may run again, with the referee's price inside."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import inner_kernel, kernel
from pebbler.referee.kernels.cache_price import price
from pebbler.solver.kernels.sequence_edits import assign, delete_at, insert_at
from pebbler.solver.paging.kernels.random_draws import draw

__all__ = ["RunRules", "anneal_runs"]

_FINE = 1 << 20  # steps of a random number between 0 and 1


class RunRules(NamedTuple):
    """The positions at which an op may run."""

    before_start: Array  # per op: the ops that must have run before it
    before: Array
    gone_start: Array  # per op: the ops that overwrite what it reads or makes; after them it cannot run again
    gone: Array
    again: Array  # the ops that can run again


@kernel
def anneal_runs(game, rules, order, rounds, hot, cold, rng):  # type: ignore[no-untyped-def]
    """Return the cheapest sequence found by `rounds` random changes of an order of all ops, and its energy.

    A change puts in a run of an op, takes one out that is not the only one, or moves one. `rng` is the state of the generator.
    """
    n = len(rules.before_start) - 1
    room = 2 * n + 1
    here, trial, best = np.empty(room, np.int64), np.empty(room, np.int64), order.copy()
    here[:n] = order
    runs = np.zeros(n, np.int64)
    length = n
    now = least = price(game, order)
    for step in range(rounds):
        kind, at, count = draw(rng, 16), draw(rng, length), length
        assign(trial, here[:length])
        if kind < 4:
            if length + 1 == room or not len(rules.again):
                continue
            insert_at(trial, length, at, rules.again[draw(rng, len(rules.again))])
            count += 1
        else:
            delete_at(trial, length, at)
            count -= 1
            if kind >= 7:
                insert_at(trial, count, draw(rng, length), here[at])
                count += 1
        if not _may_run(rules, trial, count, runs):
            continue
        energy = price(game, trial[:count])
        heat = hot * (cold / hot) ** (step / rounds)
        if energy <= now or draw(rng, _FINE) < _FINE * np.exp((now - energy) / heat):
            here[:count] = trial[:count]
            now, length = energy, count
            if now < least:
                least, best = now, here[:count].copy()
    return best, least


@inner_kernel
def _may_run(rules, sequence, count, runs):  # type: ignore[no-untyped-def]
    """Return whether every op runs, after what it needs, and again only where it may."""
    for op in range(len(runs)):
        runs[op] = 0
    for i in range(count):
        op = sequence[i]
        if runs[op]:
            for k in range(rules.gone_start[op], rules.gone_start[op + 1]):
                if runs[rules.gone[k]]:
                    return False
            can = False
            for k in range(len(rules.again)):
                can = can or rules.again[k] == op
            if not can:
                return False
        else:
            for k in range(rules.before_start[op], rules.before_start[op + 1]):
                if not runs[rules.before[k]]:
                    return False
        runs[op] += 1
    for op in range(len(runs)):
        if not runs[op]:
            return False
    return True
