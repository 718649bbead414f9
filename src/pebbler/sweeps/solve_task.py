"""The task of a worker for one run: solve a problem, and return the plan and its figures."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from pebbler.files import decode_json
from pebbler.game.graph import Graph, GraphFile
from pebbler.game.machine import Machine
from pebbler.game.plan import SCOPES
from pebbler.solver import finish, new_search
from pebbler.solver.methods import run
from pebbler.solver.problem import Impossible
from pebbler.solver.program_order import program_order_energy

__all__ = ["SolveTask", "TaskResult", "peak_memory", "solve_task"]


class SolveTask(msgspec.Struct, frozen=True):
    """A problem as data: graph and machine as JSON, and the solver's options."""

    graph: bytes
    machine: bytes
    tile: str
    seed: int
    time_limit: float | None
    quick: bool
    steady: bool | None
    threads: int = 1


class TaskResult(msgspec.Struct, frozen=True):
    """Figures of a run, by column, and its plan as a file; a run that is impossible has none."""

    figures: dict[str, Any]
    plan: bytes | None = None


def peak_memory() -> int | None:
    """Return the most bytes that this process has held so far, where that is known."""
    with suppress(OSError, IndexError, ValueError):  # Linux; there ru_maxrss of a child begins with that of its parent
        return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def solve_task(payload: bytes) -> bytes:
    """Solve the problem of a task, and return its result.

    >>> from pebbler import machine, workloads
    >>> task = SolveTask(workloads.chain(9).to_json(), msgspec.json.encode(machine("red-blue")), "auto", 0, 5.0, False, None)
    >>> result = msgspec.msgpack.decode(solve_task(msgspec.msgpack.encode(task)), type=TaskResult)
    >>> result.figures["energy"], result.figures["status"]
    (119, 'optimal')
    """
    task = msgspec.msgpack.decode(payload, type=SolveTask)
    graph = Graph.from_file(decode_json(task.graph, GraphFile, "graph"))
    machine = decode_json(task.machine, Machine, "machine")
    began = time.monotonic()
    try:
        search = new_search(
            graph, machine, steady=task.steady, tile=task.tile, time_limit=task.time_limit, threads=task.threads,  # type: ignore[arg-type]
            seed=task.seed, quick=task.quick, report=lambda _: None,
        )  # fmt: skip
        began = time.monotonic()
        run(search)
        plan = finish(search)
    except Impossible as error:
        figures: dict[str, Any] = {"status": "impossible", "error": str(error), "seconds": time.monotonic() - began}
        return msgspec.msgpack.encode(TaskResult(figures))
    seconds = time.monotonic() - began
    figures = {
        "status": plan.status, "energy": plan.energy, "bound": plan.bound, "bound_for": SCOPES[plan.covers or "graph"],
        "gap": plan.gap, "energy_unit": plan.energy_unit,
        "program_order": program_order_energy(search), "moves": len(plan.moves),
        "cut_off": bool(plan.meta.get("cut_off")), "proof": plan.proof,
        "seconds": seconds, "memory": peak_memory(),
    }  # fmt: skip
    return msgspec.msgpack.encode(TaskResult(figures, plan.to_json() + b"\n"))
