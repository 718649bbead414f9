"""Chains beside checkpoint_schedules 1.0.4: cost and time of the same schedules in one run.

Its actions are priced as its own cost model does: a forward step uf unless it tapes (a taped step is part of the backward step),
a backward step ub, a disk write wd, a disk read rd. Times are of one call each, compilation excluded: the first call of every
kernel is made beforehand, on a chain of ten.

    python -m benchmarks.chain_speed            # a few minutes: the other tool's large cases take about a minute each
    python -m benchmarks.chain_speed --quick    # without these
"""

from __future__ import annotations

import argparse
import math
import platform
import resource
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pebbler.solver.chain import Chain, solve_general, solve_uniform

__all__ = ["main", "priced"]


def priced(actions: Iterable[Any], uf: float, ub: float, wd: float, rd: float) -> tuple[int, float]:
    """Return the plain forward steps of a checkpoint_schedules schedule, and its cost."""
    from checkpoint_schedules import Copy, EndReverse, Forward, Move, Reverse, StorageType

    forwards, cost = 0, 0.0
    for action in actions:
        if isinstance(action, Forward):
            steps = action.n1 - action.n0
            if not action.write_adj_deps:
                forwards += steps
                cost += uf * steps
            if action.write_ics and action.storage == StorageType.DISK:
                cost += wd
        elif isinstance(action, Reverse):
            cost += ub * (action.n1 - action.n0)
        elif isinstance(action, Copy | Move) and action.from_storage == StorageType.DISK:
            cost += rd
        elif isinstance(action, EndReverse):
            break
    return forwards, cost


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a call gives, and its seconds."""
    began = time.perf_counter()
    value = call()
    return value, time.perf_counter() - began


def against(name: str, make: Callable[[], Any], n: int, snaps: int, uf: float, ub: float, io: float) -> None:
    """Print one line: the other tool's schedule and ours."""
    (theirs, their_cost), their_time = timed(lambda: priced(make(), uf, ub, io, io))
    ours, our_time = timed(lambda: solve_uniform(n, snaps, uf, io, backward=ub, adjoint=True))
    print(
        f"{name:<42}{theirs:>9,} {their_cost:>10,.0f} {their_time:>9.3f} s {ours.computes:>9,} {ours.energy:>10,} "
        f"{our_time:>9.4f} s {their_time / our_time:>8,.0f}x  {ours.status}",
        flush=True,
    )


def alone(name: str, call: Callable[[], Any]) -> None:
    """Print one line about a chain that only we solve."""
    solved, seconds = timed(call)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{name:<42}{solved.energy:>14,} {solved.bound:>14,} {solved.status:<9} {seconds:>8.2f} s   "
        f"peak memory so far {memory:.2f} GiB",
        flush=True,
    )


def main() -> None:
    """Print the tables."""
    from checkpoint_schedules import DiskRevolve, HRevolve, Revolve

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="leave out what takes the other tool minutes")
    quick = parser.parse_args().quick
    for adjoint in (False, True):
        solve_uniform(10, 3, adjoint=adjoint, io=1)
        one = (1,) * 11
        solve_general(Chain((1, 2) * 5 + (1,), (0, *range(1, 11)), one, (9,) * 11, (9,) * 11, 4, adjoint))
    print(
        f"{platform.machine()}, Python {platform.python_version()}; columns: forwards, cost, seconds, theirs then ours"
    )
    for snaps in (9, 10, 11):
        name = f"Revolve n=100 s={snaps}"
        against(name, lambda snaps=snaps: Revolve(100, snaps), 100, snaps, 1, 1, math.inf)
    against("DiskRevolve n=100 s=1 io=100", lambda: DiskRevolve(100, 1, wd=100, rd=100), 100, 1, 1, 1, 100)
    against(
        "HRevolve n=100 s=3 uf=10 ub=1 io=5", lambda: HRevolve(100, 3, 100, uf=10, ub=1, wd=5, rd=5), 100, 3, 10, 1, 5
    )
    if not quick:
        against("Revolve n=5000 s=10", lambda: Revolve(5000, 10), 5000, 10, 1, 1, math.inf)
        against("DiskRevolve n=5000 s=10 io=100", lambda: DiskRevolve(5000, 10, wd=100, rd=100), 5000, 10, 1, 1, 100)
        make = lambda: HRevolve(5000, 10, 14, wd=100, rd=100)  # noqa: E731
        against("HRevolve n=5000 s=10, 14 on disk, io=100", make, 5000, 10, 1, 1, 100)
    print("\nonly here: energy, bound, status, seconds")
    alone("uniform n=100,000, 11 red, io 100", lambda: solve_uniform(100_000, 11))
    alone("uniform n=100,000, 3 red, io 100", lambda: solve_uniform(100_000, 3))
    alone("uniform n=100,000, 1,000 red, io 100", lambda: solve_uniform(100_000, 1000))
    rng, n = np.random.default_rng(1), 2000
    one, forward = (1,) * (n + 1), (0, *rng.integers(1, 100, n).tolist())
    alone(
        "costs differ, n=2,000, 10 red",
        lambda: solve_general(Chain(one, forward, one, (500,) * (n + 1), (500,) * (n + 1), 10)),
    )
    sizes = tuple(rng.integers(1, 6, n + 1).tolist())
    moved = tuple(300 * size for size in sizes)
    alone(
        "sizes and costs differ, n=2,000, 40 units", lambda: solve_general(Chain(sizes, forward, one, moved, moved, 40))
    )


if __name__ == "__main__":
    main()
