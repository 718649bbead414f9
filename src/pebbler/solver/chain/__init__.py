"""Optimal pebbling of chains: note 001's game, exactly and at any size.

`solve_chain` is for chains whose nodes are alike, `solve_general` for any `Chain`; `as_chain` finds a chain in a graph. What is
proven, and how, is in `docs/chains.md`.
"""

from __future__ import annotations

import math

from pebbler.errors import InputError
from pebbler.game.plan import Status
from pebbler.solver.chain.general import general_bound, is_exact, search_small, solve_general_chain
from pebbler.solver.chain.graph import as_chain, named_moves
from pebbler.solver.chain.model import Chain, read_chain
from pebbler.solver.chain.moves import Recorded, Splits, stream, tally
from pebbler.solver.chain.plan import ChainPlan
from pebbler.solver.chain.uniform import solve_uniform, uniform_bound
from pebbler.solver.problem import Search

__all__ = ["Chain", "ChainPlan", "as_chain", "read_chain", "solve_chain", "solve_chain_problem", "solve_general"]


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
) -> ChainPlan:
    """Return the cheapest pebbling of a chain of `length` layers with `red` pebbles.

    A forward or backward step costs `compute`, a store or load `io` (infinity: there is no slow memory); `store`, `load` and
    `backward` set one of them apart. With `adjoint`, `red` counts checkpoints as revolve-style tools do, N_0 included.

    >>> solved = solve_chain(100, red=11)
    >>> solved.energy, solved.status, solved.loads, solved.stores, solved.peak_red
    (336, 'optimal', 0, 0, 11)
    >>> solve_chain(100, red=10, adjoint=True).computes  # the extra forward steps of revolve
    222
    """
    chain = Chain.uniform(length, red, compute, io, store=store, load=load, backward=backward, adjoint=adjoint)
    if not adjoint and length > 1 and red < 3:
        raise InputError(
            f"{red} red pebbles are too few for a chain of length {length}: Backward(i) needs N_i and N_(i+1) red, and to compute "
            "N_i again takes a third that stays further down. The least is 3. (With 2, every node would have to be stored and "
            "loaded and none recomputed; solve_general takes such a chain.)"
        )
    return solve_general(chain)


def solve_general(chain: Chain) -> ChainPlan:
    """Return the cheapest schedule of any chain, or the best one found and a lower bound.

    >>> chain = Chain((1, 3, 1, 2), (0, 5, 1, 1), (1, 1, 1, 1), (4, 4, 4, 4), (4, 4, 4, 4), fast=4)
    >>> solved = solve_general(chain)
    >>> solved.energy, solved.status, solved.peak_red
    (27, 'optimal', 4)
    """
    splits: Splits | Recorded
    backward = chain.backward_total
    counted = None
    if chain.is_uniform:
        energy, splits, counted = solve_uniform(chain)
        bound, proof = uniform_bound(chain, energy)
    else:
        energy, splits = solve_general_chain(chain)
        if is_exact(chain):
            bound, proof = energy, "recurrence over all schedules (docs/chains.md)"
        else:
            bound, proof = general_bound(chain)
    energy, bound = energy + backward, bound + backward
    if not reaches(energy, bound):
        found = search_small(chain, energy)
        if found is not None:
            proof = "search of every position"
            if found[0] < energy:
                energy, splits = found
                counted = None
            bound = energy
    if math.isinf(energy):
        raise InputError(
            f"no schedule was found for this chain in {chain.fast} units of fast memory without slow memory; "
            "give it more, or a price for loads and stores"
        )
    if reaches(energy, bound):
        bound = energy
    status: Status = "optimal" if bound == energy else "bounded" if bound > 0 else "heuristic"
    counted = counted or tally(chain, stream(chain, splits))
    return ChainPlan(
        chain,
        tidy(energy),
        tidy(bound),
        status,
        proof,
        counted.computes,
        counted.loads,
        counted.stores,
        counted.peak,
        counted.moves,
        splits,
    )


def reaches(energy: float, bound: float) -> bool:
    """Say whether a bound proves an energy, up to the rounding of sums of costs."""
    return energy <= bound + 1e-9 * max(1.0, abs(bound))


def tidy(value: float) -> float:
    """Return a whole number as an int."""
    return int(value) if value == int(value) else value


def solve_chain_problem(search: Search) -> bool:
    """Solve a problem whose graph is a chain; return False, having done nothing, if it is not one."""
    problem = search.problem
    if problem.steady:
        return False
    found = as_chain(problem.graph, problem.machine, problem.start)
    if found is None:
        return False
    chain, names = found
    solved = solve_general(chain)
    if solved.count > 5_000_000:
        return False
    search.offer(list(named_moves(chain, names, problem.machine, solved.moves())))
    search.raise_bound(solved.bound, solved.proof)
    return search.done
