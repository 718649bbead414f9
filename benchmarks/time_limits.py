"""How long `pebbler solve --time-limit T` takes, from the start of its process, with every option that adds work.

The wall time of a machine that does other work too says little, so what counts is how many CPU seconds the process still needs
when T seconds of wall time are over: 10 % of T and a second are allowed, and that second is mostly for imports.

    python -m benchmarks.time_limits [--seconds T] [WORDS OF A CALL]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[1]
GRAPHS = ("mlp:n=20,hidden=1000", "note-mlp", "deep-mlp", "attention", "chain:length=100")
MACHINES = ("notes", "notes-explicit", "notes-recency", "h200", "laptop", "cortex-m", "horowitz-45nm", "red-blue")
OPTIONS = ("", "--compare", "--report page.html", "--compare --report page.html --plot steps.png", "--least-capacity")

# Runs the command and prints the CPU seconds that it took after the time was over.
TIMED = """
import sys, threading, time
seconds, sys.argv = float(sys.argv[1]), sys.argv[1:]
over = []
clock = threading.Timer(seconds, lambda: over.append(time.process_time()))
clock.daemon = True
clock.start()
from pebbler.__main__ import main
try:
    main()
finally:
    print("late", time.process_time() - over[0] if over else 0.0)
"""


def late(call: str, seconds: float, folder: str) -> tuple[float, float, int]:
    """Return the wall time of a call, its CPU seconds after the limit, and its exit status."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", TIMED, str(seconds), *call.split(), "--time-limit", str(seconds)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    words = done.stdout.split()
    return time.perf_counter() - began, float(words[-1]) if words[-2:-1] == ["late"] else float("nan"), done.returncode


def main() -> int:
    """Print a line for every call; the exit status says whether all kept to their limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    failed = 0
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}; limit {given.seconds:g} s", flush=True)
    print(f"{'call':90} {'wall':>6} {'late CPU':>8}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for graph, machine, options in product(GRAPHS, MACHINES, OPTIONS):
            if graph.startswith("chain") != (machine == "red-blue"):
                continue
            call = f"solve {graph} --machine {machine} {options}".strip()
            if not all(word in call for word in given.words):
                continue
            wall, cpu, status = late(call, given.seconds, folder)
            if status == 2:  # a machine that the option is not for
                continue
            slow = not cpu <= 0.1 * given.seconds + 1
            failed += slow
            print(f"{call:90} {wall:6.1f} {cpu:8.2f}{'  late' if slow else ''}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
