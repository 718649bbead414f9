"""How far schedules of uneven chains may be from the optimum: energy, bound and gap by length, memory and price of slow memory.

Run `python -m benchmarks.uneven_chains [--steps 18 30 60 200 2000] [--fast 10 14 20 40] [--io 20 inf]`. Nodes have 1 to 4
units, forward steps cost 1 to 9, stores and loads `io` per unit. Each chain is solved in a process of its own, so that its peak
memory is its own too; seconds are those of the processor. "before" is the gap to the better of the bounds of 0.1.0.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time

import numpy as np

from pebbler.errors import InputError
from pebbler.solver.chain import Chain, solve_general
from pebbler.solver.chain.general import alike_bound

__all__ = ["main", "uneven_chain"]

HEADER = f"{'steps':>6} {'fast':>5} {'io':>5} {'energy':>10} {'bound':>10} {'gap %':>7} {'before':>7} {'s':>6} {'MiB':>6}  status"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Gaps of uneven chains.")
    parser.add_argument("--steps", type=int, nargs="+", default=[18, 30, 60, 200, 2000])
    parser.add_argument("--fast", type=int, nargs="+", default=[10, 14, 20, 40])
    parser.add_argument("--io", type=float, nargs="+", default=[20, math.inf])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(_measure(*json.loads(options.one))))
        return
    print(HEADER, flush=True)
    for steps in options.steps:
        for fast in options.fast:
            for io in options.io:
                asked = json.dumps([steps, fast, io, options.seed])
                command = [sys.executable, "-m", "benchmarks.uneven_chains", "--one", asked]
                answer = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
                print(f"{steps:>6} {fast:>5} {io:>5g} {_cells(answer)}", flush=True)


def uneven_chain(steps: int, fast: int, io: float, seed: int = 1) -> Chain:
    """Return a chain of nodes of 1 to 4 units and forward steps of 1 to 9.

    >>> uneven_chain(3, 9, 20).sizes
    (2, 3, 4, 4)
    """
    rng = np.random.default_rng(seed)
    sizes = tuple(rng.integers(1, 5, steps + 1).tolist())
    forward = (0.0, *rng.integers(1, 10, steps).tolist())
    moved = tuple(io * size for size in sizes)
    return Chain(sizes, forward, (1.0,) * (steps + 1), moved, moved, fast)


def _measure(steps: int, fast: int, io: float, seed: int) -> dict[str, float | str]:
    solve_general(uneven_chain(5, 10, 20))  # compiles, or loads what is compiled
    try:
        chain = uneven_chain(steps, fast, io, seed)
        began = time.process_time()
        solved = solve_general(chain)
    except InputError as error:
        return {"error": str(error)}
    seconds = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    alike = alike_bound(chain)[0] + chain.backward_total
    return {
        "energy": solved.energy,
        "bound": solved.bound,
        "gap": 100 * solved.gap,
        "alike": 100 * (solved.energy / alike - 1),
        "seconds": seconds,
        "memory": memory,
        "status": solved.status,
    }


def _cells(row: dict[str, float]) -> str:
    if "error" in row:
        return str(row["error"])
    figures = f"{row['energy']:>10,.0f} {row['bound']:>10,.0f} {row['gap']:>7.2f} {row['alike']:>7.1f}"
    return f"{figures} {row['seconds']:>6.1f} {row['memory']:>6.0f}  {row['status']}"


if __name__ == "__main__":
    main()
