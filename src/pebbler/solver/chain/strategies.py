"""Known strategies for note 001's game, played by the referee beside the optimum."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pebbler.errors import InputError
from pebbler.files import int_if_whole
from pebbler.referee.judgement import check
from pebbler.solver.chain import solve_uniform
from pebbler.solver.chain.chain_model import Chain
from pebbler.solver.chain.chain_moves import ChainMove, tally
from pebbler.solver.chain.chain_solution import chain_plan
from pebbler.solver.chain.kernels.uniform_table import uniform_levels

__all__ = ["StrategyResult", "binomial_moves", "compare_strategies", "every_k_moves", "judge", "spent"]

# The referee takes all moves at once; a comparison of longer chains than this would be millions of them.
LONGEST = 20_000


@dataclass(frozen=True)
class StrategyResult:
    """The cost of a strategy, and its fault: `error` is the referee's message for its first illegal move, number `move`."""

    name: str
    energy: float  # what its moves cost, legal or not
    moves: int
    computes: int
    loads: int
    stores: int
    peak_red: int
    legal: bool
    error: str | None
    move: int | None


def spent(moves: list[ChainMove], compute: float = 1, io: float = 100) -> float:
    """Return the cost of moves of a uniform chain, legal or not."""
    prices = {"compute": compute, "backward": compute, "load": io, "store": io}
    return sum(prices.get(kind, 0) for kind, _ in moves)


def every_k_moves(length: int, every: int, stored: bool) -> Iterator[ChainMove]:
    """Yield checkpointing every k nodes: each segment is computed again, whole, before its backward steps.

    The checkpoints are kept red, or with `stored` go to slow memory and are loaded one by one.

    >>> list(every_k_moves(2, 2, stored=False))[:4]
    [('compute', 1), ('compute', 2), ('backward', 2), ('backward', 1)]
    """
    if every < 1:
        raise InputError(f"a checkpoint every k nodes takes k >= 1, got {every}")
    bottom = (length - 1) // every * every
    for k in range(1, length + 1):
        if stored and (k - 1) % every == 0 and k - 1 < bottom:
            yield "store", k - 1
        yield "compute", k
        if k - 1 < bottom and (stored or (k - 1) % every):
            yield "drop", k - 1
    yield "backward", length
    for base in range(bottom, -1, -every):
        top = min(base + every, length)
        if base < bottom:
            if stored:
                yield "load", base
            for k in range(base + 1, top):
                yield "compute", k
        for i in range(top - 1, base - 1, -1):
            yield "backward", i
            yield "drop", i + 1


def binomial_moves(length: int, red: int) -> Iterator[ChainMove]:
    """Yield revolve's schedule (Griewank and Walther 2000): `red` - 2 checkpoints, two pebbles for the running step.

    As in revolve, each backward step makes its own N_{i+1} again, even where it is still red from the step before.

    >>> sum(kind == "compute" for kind, _ in binomial_moves(100, 12))
    322
    """
    snaps = min(red - 2, length)
    if snaps < 1:
        raise InputError(
            f"revolve needs at least 3 red pebbles here: a checkpoint and two for the running step; got {red}"
        )
    splits = uniform_levels(length, snaps, True)[3]
    stack = [(0, length - 1, snaps)]
    while stack:
        s, t, room = stack.pop()
        if t < s:  # the segment above s is done
            yield "drop", s
        elif s == t:
            yield "compute", t + 1
            if t + 1 == length:
                yield "backward", length
            yield "backward", t
            yield "drop", t + 1
        else:
            z = s + int(splits[room, t - s])
            for k in range(s + 1, z + 1):
                yield "compute", k
                if k - 1 > s:
                    yield "drop", k - 1
            stack += [(s, z - 1, room), (z, -1, 0), (z, t, room - 1)]


def compare_strategies(
    length: int = 100,
    red: int = 11,
    compute: float = 1,
    io: float = 100,
    references: Mapping[str, Iterable[ChainMove]] | None = None,
) -> list[StrategyResult]:
    """Return the results of `references`, checkpointing every k nodes, revolve and the optimum, as the referee prices them.

    Revolve needs three pebbles; with fewer it is left out.

    >>> [(row.name, row.energy, row.legal) for row in compare_strategies()][-1]
    ('optimal', 336, True)
    """
    if length > LONGEST:
        raise InputError(f"strategies are compared on chains of up to {LONGEST} nodes, got {length}")
    solved = solve_uniform(length, red, compute, io)
    played = list((references or {}).items())
    root = max(1, math.isqrt(length))
    played.append((f"red checkpoint every {root}", every_k_moves(length, root, False)))
    if math.isfinite(io):
        every = min(range(1, red), key=lambda k: _stored_cost(length, k, compute, io))
        played.append((f"stored checkpoint every {every}", every_k_moves(length, every, True)))
    if red >= 3:
        played.append(("binomial (revolve)", binomial_moves(length, red)))
    played.append((solved.status, solved.moves()))
    return [judge(name, length, red, compute, io, moves) for name, moves in played]


def _stored_cost(length: int, every: int, compute: float, io: float) -> float:
    segments = (length - 1) // every
    return segments * (2 * io + compute * (every - 1))


def judge(name: str, length: int, red: int, compute: float, io: float, moves: Iterable[ChainMove]) -> StrategyResult:
    """Return a strategy's figures and the referee's verdict."""
    chain, played = Chain.uniform(length, red, compute, io), list(moves)
    error, move = None, None
    try:
        judgement = check(chain_plan(chain, played))
        error, move = judgement.error, judgement.move
    except InputError as refused:  # a store where there is no slow memory
        error = str(refused)
    count, energy = tally(chain, played), int_if_whole(spent(played, compute, io))
    return StrategyResult(
        name, energy, count.moves, count.computes, count.loads, count.stores, _peak(played), error is None, error, move
    )


def _peak(moves: list[ChainMove]) -> int:
    reds, peak = {0}, 1
    for kind, node in moves:
        if kind in ("compute", "load"):
            reds.add(node)
        elif kind == "drop":
            reds.discard(node)
        peak = max(peak, len(reds))
    return peak
