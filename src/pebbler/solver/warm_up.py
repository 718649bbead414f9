"""Compiling the kernels that a kind of problem needs, on all cores, before its clock starts.

Compiled kernels are kept on disk, so this happens once per machine and version of the package. Machine code in the wheel would save
even that, but a wheel per processor is more than the wait is worth. `python -m pebbler.solver.warm_up` compiles for every kind of
problem, for images and shared machines.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache

import msgspec

from pebbler.compiled import cache_folder, source_key
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import Moves
from pebbler.game.plan import Plan
from pebbler.game.transform import tile
from pebbler.referee.judgement import check
from pebbler.solver.problem import Problem, Search
from pebbler.workloads import chain, mlp

__all__ = ["kind_of", "warm_up"]


def kind_of(machine: Machine, *, large: bool = False) -> str:
    """Return which kernels a machine's problems need, or those on graphs of thousands of ops.

    >>> from pebbler.game.machine import machine
    >>> kind_of(machine("notes")), kind_of(machine("red-blue"))
    ('lru', 'explicit-fastest')
    """
    kind = machine.management if machine.management != "explicit" else f"explicit-{machine.operands}"
    if machine.management == "explicit" and len(machine.level) == 1:
        kind = "explicit-one"
    return f"{kind}-large" if large else kind


def warm_up(kind: str, tell: Callable[[str], None] | None = None) -> bool:
    """Compile what a kind of problem needs, unless that was done before; return whether there was anything to do.

    Tasks run side by side in processes of their own and leave the compiled code on disk.
    """
    stamp = cache_folder() / f"ready-{kind}-{_key()}"
    if stamp.exists():
        return False
    (tell or _tell)("compiling kernels, once")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "pebbler.solver.warm_up", kind]
    running = [
        # A session of its own, so that Ctrl-C is for this process alone; the pipe ends them when it ends.
        subprocess.Popen(
            [*command, task],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        for task in _TASKS[kind]
    ]
    try:
        failed = sum(process.wait() != 0 for process in running)  # waits for all of them
    except BaseException:
        for process in running:
            process.kill()
        raise
    finally:
        for process in running:
            assert process.stdin is not None
            process.stdin.close()
    if failed:  # where no process can be started, the work is done here
        for task in _TASKS[kind]:
            _TASKS[kind][task](kind)
    stamp.touch()
    return True


def _tell(text: str) -> None:
    sys.stderr.write(f"pebbler: {text}\n")
    sys.stderr.flush()


@cache
def _key() -> str:
    """Return a hash of all that the solver's compiled code depends on."""
    import numba
    from llvmlite.binding import get_host_cpu_name

    facts = (source_key("pebbler.solver.methods"), numba.__version__, get_host_cpu_name(), *sys.version_info[:2])
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:20]


# Tasks: each runs kernels on a problem so small that compiling them is all that takes time ----------------------------


def _machine(kind: str) -> Machine:
    management, _, operands = kind.removesuffix("-large").partition("-")
    levels = [Level("fast", 1, 1, capacity=64), Level("middle", 2, 2, capacity=256), Level("slow", 9, 9)]
    if operands == "one":
        levels, operands = levels[:1], "fastest"
    return Machine(kind, "float32", tuple(levels), management, operands or "any")  # type: ignore[arg-type]


def _problem(kind: str, graph: Graph | None = None) -> Problem:
    return Problem.of(tile(mlp(n=2, hidden=4), "hidden", 2) if graph is None else graph, _machine(kind))


def _judge(kind: str) -> None:
    problem = _problem(kind)
    check(
        Plan(
            problem.graph,
            problem.machine,
            Moves.computes(problem.graph, problem.machine, range(len(problem.graph.ops))),
        )
    )


def _improve(kind: str) -> None:
    from pebbler.solver.tiling.candidates import candidate_of
    from pebbler.solver.tiling.node_graph import NodeGraph

    problem = _problem(kind)
    nodes = NodeGraph.of(problem.graph)
    candidate = None if nodes is None else candidate_of(problem, nodes)
    if candidate is not None:
        candidate.improve(lambda: 1.0, 20)


def _search_orders(kind: str) -> None:
    from pebbler.solver.tiling.cache_order import best_order

    best_order(_problem(kind, mlp(n=2, hidden=2)), limit=2_500)


def _search_states(kind: str) -> None:
    from pebbler.solver.exact import solve_exact

    _judge(kind)
    solve_exact(Search(_problem(kind, _pebbles(kind))), 100)


def _recompute(kind: str) -> None:
    from pebbler.solver.recompute import solve_recompute

    level = msgspec.structs.replace(_machine(kind).level[0], capacity=5)
    machine = msgspec.structs.replace(_machine(kind), level=(level,))
    solve_recompute(Search(Problem.of(_pebbles(kind, 9), machine), 1.0))


def _rerun(kind: str) -> None:
    from pebbler.solver.large_caches import raise_and_rerun

    search = Search(_problem(kind))
    raise_and_rerun(search, lambda: max(0.0, 1.0 - search.elapsed))


def _play_large(kind: str) -> None:
    from pebbler.solver.large_games import solve_large

    _judge(kind)
    solve_large(Search(_problem(kind), 1.0))


def _pebbles(kind: str, length: int = 2) -> Graph:
    graph = chain(length)
    return Graph(graph.name, "float32", graph.tensors, graph.ops)


_TASKS: dict[str, dict[str, Callable[[str], None]]] = {
    "lru": {"judge": _judge, "improve": _improve, "orders": _search_orders},
    "recency": {"judge": _judge, "orders": _search_orders},
    "explicit-any": {"judge": _search_states, "improve": _improve},
    "explicit-fastest": {"judge": _search_states, "improve": _improve, "recompute": _recompute},
    "explicit-one": {"judge": _judge, "recompute": _recompute},
    "lru-large": {"judge": _judge, "rerun": _rerun},
    "recency-large": {"judge": _judge, "rerun": _rerun},
    "explicit-any-large": {"play": _play_large},
    "explicit-fastest-large": {"play": _play_large},
    "explicit-one-large": {"play": _play_large},
}


def main(arguments: Sequence[str]) -> None:
    """Run one task of a kind, as `warm_up` asks for it; without arguments, compile for every kind."""
    if not arguments:
        for kind in _TASKS:
            warm_up(kind)
        return
    threading.Thread(target=_end_with_parent, daemon=True).start()
    kind, task = arguments
    _TASKS[kind][task](kind)


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, however it went."""
    os.read(0, 1)  # not through `sys.stdin`, whose lock would be held when the interpreter ends
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
