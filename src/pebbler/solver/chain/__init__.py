"""Optimal pebbling of chains: note 001's game, exactly and at any size.

`solve_chain` returns the plan of a chain whose nodes are alike. `solve_uniform` and `solve_general` return what lies behind it, a
`ChainSolution`, whose moves are made one at a time and only when asked for; `as_chain` finds a chain in a graph. What is proven,
and how, is in `docs/chains.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from pebbler.errors import InputError
from pebbler.files import int_if_whole
from pebbler.game.plan import Plan
from pebbler.solver.chain.chain_model import Chain, read_chain
from pebbler.solver.chain.chain_moves import Recorded, Splits, plan_moves, stream, tally
from pebbler.solver.chain.chain_solution import SEARCHED, ChainSolution
from pebbler.solver.chain.general import general_bound, general_recurrence, is_exact, search_small, search_tight
from pebbler.solver.chain.recognise import as_chain
from pebbler.solver.chain.uniform import uniform_bound, uniform_recurrence
from pebbler.solver.problem import Search

__all__ = [
    "Chain",
    "ChainSolution",
    "as_chain",
    "read_chain",
    "solve_chain",
    "solve_chain_problem",
    "solve_general",
    "solve_uniform",
]

LONGEST_PLAN = 5_000_000  # moves; longer schedules are not written out


def solve_chain(
    length: int,
    red: int,
    compute: float = 1.0,
    io: float = 100.0,
    *,
    store: float | None = None,
    load: float | None = None,
    backward: float | None = None,
    adjoint: bool = False,
) -> Plan:
    """Return the cheapest plan for a chain of `length` layers with `red` pebbles; its `meta` counts computes, loads and stores.

    A forward or backward step costs `compute`, a store or load `io` (infinity: there is no slow memory); `store`, `load` and
    `backward` set one of them apart. With `adjoint`, `red` counts checkpoints as revolve-style tools do, N_0 included.

    >>> plan = solve_chain(100, red=11)
    >>> plan.energy, plan.bound, plan.status, plan.meta
    (336, 336, 'optimal', {'computes': 235, 'loads': 0, 'stores': 0, 'peak_red': 11})
    >>> solve_chain(100, red=10, adjoint=True).meta["computes"]  # the extra forward steps of revolve
    222
    """
    solved = solve_uniform(length, red, compute, io, store=store, load=load, backward=backward, adjoint=adjoint)
    if not 0 <= solved.count <= LONGEST_PLAN:
        many = f"{solved.count:,}" if solved.count >= 0 else "billions of"
        raise InputError(
            f"the schedule has {many} moves, and a plan of at most {LONGEST_PLAN:,} is made; solve_uniform of "
            "pebbler.solver.chain gives its energy and counts, and its moves one at a time"
        )
    counts = {"computes": solved.computes, "loads": solved.loads, "stores": solved.stores, "peak_red": solved.peak_red}
    return replace(solved.plan(), meta=counts)


def solve_uniform(
    length: int,
    red: int,
    compute: float = 1.0,
    io: float = 100.0,
    *,
    store: float | None = None,
    load: float | None = None,
    backward: float | None = None,
    adjoint: bool = False,
) -> ChainSolution:
    """Return the same as `solve_chain` without writing the moves out, for chains of any length.

    >>> solved = solve_uniform(100_000, red=1000)
    >>> solved.energy, solved.status, solved.computes, solved.peak_red
    (299002, 'optimal', 199001, 1000)
    """
    chain = Chain.uniform(length, red, compute, io, store=store, load=load, backward=backward, adjoint=adjoint)
    if not adjoint and length > 1 and red == 2 and math.isinf(chain.store[1] + chain.load[1]):
        raise InputError(
            f"2 red pebbles are too few for a chain of length {length} without slow memory: Backward(i) needs N_i and N_(i+1) red, "
            "and to compute N_i again takes a third that stays further down. The least is 3"
        )
    return solve_general(chain)


def solve_general(chain: Chain, remaining: Callable[[], float] = lambda: math.inf) -> ChainSolution:
    """Return the cheapest schedule of any chain, or the best one found and a lower bound.

    `remaining` says how many seconds are left for the bound: without them a weaker one is stated.

    >>> chain = Chain((1, 3, 1, 2), (0, 5, 1, 1), (1, 1, 1, 1), (4, 4, 4, 4), (4, 4, 4, 4), fast=4)
    >>> solved = solve_general(chain)
    >>> solved.energy, solved.status, solved.peak_red
    (27, 'optimal', 4)
    """
    splits: Splits | Recorded
    counted = None
    if chain.is_uniform:
        energy, splits, counted = uniform_recurrence(chain)
        bound, proof = uniform_bound(chain, energy)
    else:
        energy, splits = general_recurrence(chain, remaining)
        if is_exact(chain):
            bound, proof = energy, "recurrence over all schedules (docs/chains.md)"
        else:
            bound, proof = general_bound(chain, energy, remaining)
    scale = chain.scale
    energy, bound = energy + chain.backward_total, bound + chain.backward_total
    bound = energy if bound >= energy else scale.least(bound)
    if not scale.proves(bound, energy):
        found = search_small(chain, energy)
        if found is None and remaining() > 0:
            found = search_tight(chain, energy)
        if found is not None:
            proof = SEARCHED
            if found[0] < energy:
                energy, splits = found
                counted = None
            bound = energy
    if math.isinf(energy):
        raise InputError(
            f"no schedule was found for this chain in {chain.fast} units of fast memory without slow memory; "
            "give it more, or a price for loads and stores"
        )
    scale.require_exact(energy)
    if scale.proves(bound, energy):
        bound = energy
    counted = counted or tally(chain, stream(chain, splits))
    return ChainSolution(
        chain,
        int_if_whole(energy),
        int_if_whole(bound),
        scale.status(bound, energy),
        proof,
        counted.computes,
        counted.loads,
        counted.stores,
        counted.peak,
        counted.moves,
        splits,
    )


def solve_chain_problem(search: Search) -> bool:
    """Solve a problem whose graph is a chain; return False, having done nothing, if it is not one."""
    problem = search.problem
    if problem.steady or not problem.plain:
        return False
    found = as_chain(problem.graph, problem.machine, problem.start)
    if found is None:
        return False
    chain, parts = found
    solved = solve_general(chain, lambda: search.remaining)
    if solved.count > LONGEST_PLAN:
        return False
    moves = plan_moves(parts, solved.moves(), len(problem.machine.level) - 1)
    search.offer(moves.moves(problem.graph, problem.machine))
    search.raise_bound(solved.bound, solved.proof, solved.certificate)
    return search.done
