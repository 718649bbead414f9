"""What the first call on a new machine costs: every call in a fresh process with no compiled kernels, then again with them.

On a machine that does other work too, the wall time says little: the last column is what would be waited for with two cores to
oneself, the CPU seconds of the longest of the processes that compile (where there are none, all the extra CPU seconds).

    python -m benchmarks.cold_start [WORDS OF A CALL]
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALLOWED = 15.0  # seconds that a first call may take longer
NEAR = 0.01  # how far the energies of the two calls may be apart

STEP = "solve mlp:n=20,hidden=1000 --time-limit 10 --json"
CALLS = [
    STEP,
    f"{STEP} --machine notes-explicit",
    f"{STEP} --machine h200",
    "solve attention:tokens=64,width=64,heads=4 --time-limit 10 --json",
    "solve deep-mlp:n=20,hidden=1000,layers=8 --time-limit 10 --json",
    "solve {one_level} --machine {machine} --time-limit 10 --json",
    "solve chain:length=100 --time-limit 10 --json",
    "chain --length 1000 --red 30 --json",
    "check {plan} --json",
    "README",
]

# Runs a call and writes down, for every process that it starts and waits for, the CPU seconds it took.
TIMED = """
import os, subprocess, sys

class Timed(subprocess.Popen):
    def wait(self, timeout=None):
        _, status, usage = os.wait4(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        print(usage.ru_utime + usage.ru_stime, file=open(notes, "a"))
        return self.returncode

subprocess.Popen = Timed
notes, code, sys.argv = sys.argv[1], sys.argv[2], sys.argv[2:]
if code == "pebbler":
    from pebbler.__main__ import main
    main()
else:
    exec(code)
"""


@dataclass(frozen=True)
class Run:
    """What one call took, and the energy that it found."""

    wall: float
    cpu: float
    longest: float
    energy: float


def run(call: str, folder: Path, cache: Path) -> Run:
    """Run a call in a process of its own with this folder of compiled kernels."""
    notes = folder / "processes"
    notes.write_text("")
    command = [readme()] if call == "README" else ["pebbler", *call.split()]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", TIMED, str(notes), *command],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{call}: {done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    longest = max([float(line) for line in notes.read_text().split()], default=0.0)
    found = re.search(r'"energy":\s*([\d.e+]+)', done.stdout)
    return Run(wall, cpu, longest, float(found[1]) if found else float("nan"))


def readme() -> str:
    """Return the ten lines of the README, with the energy printed."""
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)[0]
    return f"{code}\nprint('\"energy\":', plan.energy)\n"


def prepare(folder: Path) -> dict[str, str]:
    """Write the files that some calls read."""
    import pebbler as pb

    step = pb.workloads.chain(60)
    step.save(folder / "one_level.json")
    (folder / "machine.toml").write_text(
        'name = "one"\nunit = "pebble"\n[[level]]\nname = "fast"\nread = 0\nwrite = 0\ncapacity = 9\n'
    )
    pb.solve("note-mlp", "notes", time_limit=0).save(folder / "plan.json")
    return {name: str(folder / f"{name}.json") for name in ("one_level", "plan")} | {
        "machine": str(folder / "machine.toml")
    }


def main(words: list[str]) -> int:
    """Print the table; the exit status says whether every first call kept to what is allowed."""
    failed = 0
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    print(f"{'call':60} {'cold wall':>9} {'CPU':>6} {'warm wall':>9} {'CPU':>6} {'extra':>6}  energies", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        places = prepare(folder)
        for number, call in enumerate(call for call in CALLS if all(word in call for word in words)):
            cache = folder / f"kernels-{number}"
            cold, warm = (run(call.format(**places), folder, cache) for _ in range(2))
            extra = cold.longest or cold.cpu - warm.cpu
            same = abs(cold.energy - warm.energy) <= NEAR * warm.energy or warm.energy != warm.energy
            failed += extra > ALLOWED or not same
            print(
                f"{call.replace(' --json', ''):60} {cold.wall:9.1f} {cold.cpu:6.1f} {warm.wall:9.1f} {warm.cpu:6.1f} {extra:6.1f}  "
                f"{cold.energy:.6g} {warm.energy:.6g}",
                flush=True,
            )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
