"""One front door to every solving method: `solve(graph, machine)` returns the best plan found and how good it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pebbler.errors import InputError, quoted

if TYPE_CHECKING:
    from pebbler.game.graph import Graph
    from pebbler.game.machine import Machine
    from pebbler.game.plan import Plan
    from pebbler.solver.capacity import LeastMemory
    from pebbler.solver.problem import Problem, Search, Start

__all__ = ["Tile", "find_least_capacity", "finish", "new_search", "solve", "solve_search"]

Tile = Literal["auto", "none"]


def solve(
    graph: Graph | str | Path,
    machine: Machine | str | Path | None = None,
    *,
    steady: bool | None = None,
    start: Start | None = None,
    tile: Tile = "auto",
    time_limit: float | None = 30.0,
    threads: int | None = None,
    seed: int = 0,
    quick: bool = False,
    resume: Plan | str | Path | None = None,
    report: Callable[[Search], None] | None = None,
) -> Plan:
    """Return the cheapest plan found, with its energy, a lower bound, and a status that says what is proven.

    The graph may be a file or a built-in workload such as `mlp:n=20,hidden=1000`, the machine a file or a built-in one; without
    one, pebbles are played on `red-blue` and everything else on `notes`.

    The method follows from the problem: chains have their own exact solver, small games are searched completely, caches get a
    search over orders, tilings and fusions, explicit memories one over order, residency and recomputation. It runs until the
    plan is proven optimal or `time_limit` seconds are over (None: no limit); Ctrl-C ends it with the best plan so far. The
    same call gives the same plan unless time cut it off, and then `plan.meta["cut_off"]` says so. `report` is called with the
    running search whenever the best plan or the bound improves; without one, a notebook shows a line under the cell. `quick`
    stops the search for tilings after a small, fixed amount of work, so that it ends within seconds and yet gives the same plan
    every time. `resume` is a plan of the same problem, or its file, to go on from: the answer is never worse.

    >>> plan = solve("chain:length=10", start={"N0": "fast"})
    >>> plan.energy, plan.status
    (21, 'optimal')
    """
    from pebbler.solver.notebook_progress import NotebookLine

    line = NotebookLine.wanted() if report is None else None
    search = solve_search(graph, machine, steady, start, tile, time_limit, threads, seed, report or line, quick, resume)
    if line is not None:
        line.show(search)
    return finish(search)


def solve_search(
    graph: Graph | str | Path,
    machine: Machine | str | Path | None = None,
    steady: bool | None = None,
    start: Start | None = None,
    tile: Tile = "auto",
    time_limit: float | None = 30.0,
    threads: int | None = None,
    seed: int = 0,
    report: Callable[[Search], None] | None = None,
    quick: bool = False,
    resume: Plan | str | Path | None = None,
) -> Search:
    """Return the finished search behind `solve`, for callers that want more than the plan."""
    from pebbler.solver.methods import run

    search = new_search(graph, machine, steady, start, tile, time_limit, threads, seed, report, quick, resume)
    run(search, tile)
    return search


def new_search(
    graph: Graph | str | Path,
    machine: Machine | str | Path | None = None,
    steady: bool | None = None,
    start: Start | None = None,
    tile: Tile = "auto",
    time_limit: float | None = 30.0,
    threads: int | None = None,
    seed: int = 0,
    report: Callable[[Search], None] | None = None,
    quick: bool = False,
    resume: Plan | str | Path | None = None,
) -> Search:
    """Return the search behind `solve` before it begins: `methods.run` runs it, and another thread may interrupt it."""
    from pebbler.solver.problem import Problem, Search
    from pebbler.solver.warm_up import needed, warm_up

    if tile not in ("auto", "none"):
        raise InputError(f"tile must be auto or none, got {quoted(tile)}")
    threads = (os.cpu_count() or 1) if threads is None else threads
    if threads < 1:
        raise InputError(f"threads must be at least 1, got {threads}")
    problem = Problem.of(graph, machine, steady=steady, start=start, seed=seed, threads=threads)
    if time_limit != 0:
        warm_up(needed(problem, tile))
    known = None if resume is None else _resumed(problem, resume)
    search = Search(problem, time_limit, report)  # its clock starts here, with the kernels ready
    search.quick = quick
    search.offer_plan(known)
    return search


def _resumed(problem: Problem, resume: Plan | str | Path) -> Plan:
    """Return a plan to go on from, if it is a legal one of this very problem."""
    from pebbler.game.plan import Plan
    from pebbler.referee.judgement import check

    place = "resume" if isinstance(resume, Plan) else f"{resume}"
    plan = resume if isinstance(resume, Plan) else Plan.load(resume)
    wanted = problem.plan([])
    if (plan.graph if plan.source is None else plan.source) != problem.graph:
        raise InputError(
            f"{place}: is a plan of another graph, {quoted(plan.graph.name)}; expected {quoted(problem.graph.name)}"
        )
    if plan.machine.in_unit(plan.graph.unit) != problem.machine:
        raise InputError(f"{place}: is a plan for another machine than {quoted(problem.machine.name)}")
    if bool(plan.steady) != problem.steady:
        raise InputError(f"{place}: its plan is {'steady' if plan.steady else 'one step'}; the problem is not")
    free = {problem.graph.tensor_names[tensor] for tensor, where in problem.start_choices().items() if where is None}
    fixed = {name: where for name, where in plan.start.items() if name not in free}
    if plan.source is None and problem.plan([], fixed).start_levels() != wanted.start_levels():
        raise InputError(f"{place}: its plan starts from other levels than the problem")
    judgement = check(plan)
    if not judgement.legal:
        raise InputError(f"{place}: an illegal plan: {judgement.error}")
    return plan


def finish(search: Search) -> Plan:
    """Return the best plan of a search, with energy, bound, status and proof filled in."""
    from pebbler.files import int_if_whole
    from pebbler.solver.assessment import remember_proof
    from pebbler.solver.problem import Impossible

    best, energy, bound, proof = search.snapshot()
    if best is None:
        raise Impossible("no legal plan was found in the time given; a longer time limit may find one")
    done = energy <= bound * (1 + 1e-12)
    bound = energy if done else bound  # one above the energy was refuted when it was stated
    status: Literal["optimal", "bounded", "heuristic"] = "optimal" if done else "bounded" if bound > 0 else "heuristic"
    meta = {"cut_off": True} if (search.cut_off or search.interrupted) and not done else {}
    made = replace(
        best,
        energy=int_if_whole(energy),
        bound=int_if_whole(bound),
        status=status,
        proof=proof,
        meta=meta,
    )
    remember_proof(made)
    return made


def find_least_capacity(
    graph: Graph | str | Path,
    machine: Machine | str | Path | None = None,
    *,
    steady: bool | None = None,
    time_limit: float = 10.0,
) -> LeastMemory:
    """Return the least capacity of the fastest level with which some plan is legal, whatever it costs.

    >>> from pebbler import machine, workloads
    >>> find_least_capacity(workloads.note_mlp(), machine("cortex-m").in_unit("float32")).least
    40000
    """
    from pebbler.solver.capacity import LeastMemory, op_requirement
    from pebbler.solver.problem import Problem
    from pebbler.solver.recompute.least_capacity import least_capacity

    problem = Problem.of(graph, machine, steady=steady)
    if problem.machine.management != "explicit":
        raise InputError(f"machine {problem.machine.name} has caches: every schedule runs in any amount of them")
    if len(problem.machine.level) == 1:
        found = least_capacity(problem, time_limit)
        return LeastMemory(found.upper, found.lower, found.reason)
    need = op_requirement(problem)
    if need is None:
        why = "operands may be anywhere, so no op needs room" if problem.graph.ops else "there is no op that needs room"
        return LeastMemory(1, 1, f"{why} in the fastest level")
    return LeastMemory(need.units, need.units, f"{need.reason}, and the rest can be elsewhere")
