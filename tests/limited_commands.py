"""Commands and readers in a process that may take so much memory: `python limited_commands.py MIB`, a JSON list of words per line.

The first word is the folder where it is run, the second says what is run: `cli` and the arguments of a command, or a reader of
`READERS` and a file. The answer is one line of JSON: the exit status, what was printed, the CPU seconds, and the most memory so
far.
"""

from __future__ import annotations

import io
import json
import os
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from pebbler.cli import main
from pebbler.errors import PebblerError
from pebbler.sweeps.solve_task import peak_memory

SUCCESS, CRASHED = 0, -1


def torch_plan(path: str) -> None:
    from pebbler.run.torch.plan.torch_plan import TorchPlan

    plan = TorchPlan.load(path)
    if all(judgement.legal for judgement in plan.judge()):
        _ = (plan.peak, plan.cost, plan.bound, plan.gap, plan.status, plan.offloaded, plan.recomputed, plan.as_plan())


def plan_cache(path: str) -> None:
    from pebbler.run.torch.backend.plan_cache import PlanCache

    plan = PlanCache(str(Path(path).parent)).load(Path(path).stem)
    if plan is not None:
        frontier = plan.frontier
        _ = (frontier.choice, str(frontier), frontier.within(10**6), frontier.least, frontier.cost())


def device(path: str) -> None:
    from pebbler.run.torch.cost.costs import find_device

    find_device(path)


READERS: dict[str, Callable[[str], None]] = {"torch_plan": torch_plan, "plan_cache": plan_cache, "device": device}


def run(words: list[str]) -> int:
    """Return the status of a command, or of a reader as a command would give it."""
    if words[0] != "cli":
        try:
            READERS[words[0]](words[1])
        except PebblerError as error:
            sys.stderr.write(f"error: {error}")
            return 2
        return SUCCESS
    sys.argv = ["pebbler", *words[1:]]
    try:
        main()
    except SystemExit as caught:
        return int(caught.code or 0)
    return SUCCESS


def answer(words: list[str]) -> dict[str, object]:
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    began = time.process_time()
    try:
        status = run(words)
    except BaseException:
        status = CRASHED
        sys.stderr.write(traceback.format_exc())
    finally:
        out, err = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in (sys.stdout, sys.stderr))  # type: ignore[attr-defined]
        sys.stdout, sys.stderr = kept
    seconds = time.process_time() - began
    return {"status": status, "out": out[-4000:], "err": err[-4000:], "seconds": seconds, "peak": peak_memory()}


if __name__ == "__main__":
    limit = int(sys.argv[1]) * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    warnings.simplefilter("ignore")
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        folder, *words = json.loads(line)
        os.chdir(folder)
        replies.write(json.dumps(answer(words)) + "\n")
        replies.flush()
