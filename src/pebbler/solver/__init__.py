"""One front door to every solving method: `solve(graph, machine)` returns the best plan found and how good it is."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from pebbler.errors import InputError, quoted

if TYPE_CHECKING:
    from pebbler.game.graph import Graph
    from pebbler.game.machine import Machine
    from pebbler.game.plan import Plan
    from pebbler.solver.least_memory import LeastMemory
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
    search = solve_search(
        graph, machine, steady=steady, start=start, tile=tile, time_limit=time_limit, threads=threads, seed=seed,
        quick=quick, resume=resume, report=report or line,
    )  # fmt: skip
    if line is not None:
        line.show(search)
    return finish(search)


class SolveKeywords(TypedDict, total=False):
    """Keyword arguments of `solve` besides graph and machine."""

    steady: bool | None
    start: Start | None
    tile: Tile
    time_limit: float | None
    threads: int | None
    seed: int
    quick: bool
    resume: Plan | str | Path | None
    report: Callable[[Search], None] | None


def solve_search(
    graph: Graph | str | Path, machine: Machine | str | Path | None = None, **options: Unpack[SolveKeywords]
) -> Search:
    """Return the finished search behind `solve`, for callers that want more than the plan."""
    from pebbler.solver.methods import run

    return run(new_search(graph, machine, **options))


def new_search(
    graph: Graph | str | Path, machine: Machine | str | Path | None = None, **options: Unpack[SolveKeywords]
) -> Search:
    """Return the search behind `solve` before it begins: `methods.run` runs it, and another thread may interrupt it."""
    from pebbler.solver.case import Case, keeps_graph
    from pebbler.solver.problem import Problem, Search
    from pebbler.solver.warm_up import needed, warm_up

    tile, time_limit, resume = options.get("tile", "auto"), options.get("time_limit", 30.0), options.get("resume")
    if tile not in ("auto", "none"):
        raise InputError(f"tile must be auto or none, got {quoted(tile)}")
    threads = options.get("threads")
    threads = (os.cpu_count() or 1) if threads is None else threads
    if threads < 1:
        raise InputError(f"threads must be at least 1, got {threads}")
    steady, start, seed = options.get("steady"), options.get("start"), options.get("seed", 0)
    problem = Problem.of(graph, machine, steady=steady, start=start, seed=seed, threads=threads)
    case = Case(problem, tile, options.get("quick", False))
    if time_limit != 0:
        warm_up(needed(case))
    known = None if resume is None else _resumed(problem, resume)
    if known is not None and known.source is not None and keeps_graph(problem, tile):
        raise InputError("resume: is a plan of a tiled or fused graph; here the graph stays as it is")
    search = Search(problem, time_limit, options.get("report"))  # its clock starts here, with the kernels ready
    search.case, search.quick = case, case.quick
    search.offer_plan(known)
    return search


def _resumed(problem: Problem, resume: Plan | str | Path) -> Plan:
    """Return the plan to resume from, if it is a legal plan of this problem."""
    from pebbler.game.plan import Plan
    from pebbler.referee.judgement import check
    from pebbler.solver.plan_forms import form_in, starts_as_asked

    place = "resume" if isinstance(resume, Plan) else f"{resume}"
    plan = resume if isinstance(resume, Plan) else Plan.load(resume)
    if (plan.graph if plan.source is None else plan.source) != problem.graph:
        raise InputError(
            f"{place}: is a plan of another graph, {quoted(plan.graph.name)}; expected {quoted(problem.graph.name)}"
        )
    if plan.machine.in_unit(plan.graph.unit) != problem.machine:
        raise InputError(f"{place}: is a plan for another machine than {quoted(problem.machine.name)}")
    if bool(plan.steady) != problem.steady:
        raise InputError(f"{place}: its plan is {'steady' if plan.steady else 'one step'}; the problem is not")
    form = form_in(plan.graph, problem.graph)
    if form is None:
        raise InputError(
            f"{place}: its graph {quoted(plan.graph.name)} is no form of {quoted(problem.graph.name)}: tiling and fusing that "
            "in the same way gives another graph"
        )
    judgement = check(plan)
    if not judgement.legal:
        raise InputError(f"{place}: an illegal plan: {judgement.error}")
    if not starts_as_asked(plan, problem.transformed(form)):
        raise InputError(f"{place}: its plan starts from other levels than the problem")
    return replace(plan, graph=form, source=None if form is problem.graph else problem.graph)


def finish(search: Search) -> Plan:
    """Return the best plan of a search, with energy, bound, status and proof filled in.

    All four are for what was asked: every tiling and fusion of the graph where these were allowed. A plan that is the best of the
    graph as it is, and of no more, says so in its proof.
    """
    from pebbler.files import int_if_whole
    from pebbler.game.energy_scale import EnergyScale
    from pebbler.solver.assessment import remember_proof
    from pebbler.solver.problem import Impossible

    best, energy, bound, proof = search.snapshot()
    if best is None:
        raise Impossible("no legal plan was found in the time given; a longer time limit may find one")
    status = EnergyScale.of(best.graph, best.machine).status(bound, energy)
    done = status == "optimal"
    bound = energy if done else bound  # one above the energy was refuted when it was stated
    meta = {"cut_off": True} if (search.cut_off or search.interrupted) and not done else {}
    made = replace(
        best,
        energy=int_if_whole(energy),
        bound=int_if_whole(bound),
        status=status,
        proof=proof if done else proof + _known_of_graph(search, best, energy, bound),
        meta=meta,
        covers="graph" if search.as_it_is and best.source is None else "forms",
        certificate=search.certificate,
    )
    remember_proof(made)
    return made


def _known_of_graph(search: Search, best: Plan, energy: float, bound: float) -> str:
    """Return facts proven of the graph as it is beyond those that hold for every form of it, in words to follow the proof."""
    from pebbler.game.amounts import energy_text

    if search.whole is None:
        return ""
    _, _, least, proof = search.whole.snapshot()
    if best.source is None and energy <= least:
        return f"; of the graph as it is the plan is optimal: {proof}"
    words = f"; no plan of the graph as it is costs less than {energy_text(least, best.energy_unit)}: {proof}"
    return words if bound < least < math.inf else ""


def find_least_capacity(
    graph: Graph | str | Path,
    machine: Machine | str | Path | None = None,
    *,
    steady: bool | None = None,
    tile: Tile = "auto",
    time_limit: float = 10.0,
) -> LeastMemory:
    """Return the least capacity of the fastest level for which a plan was found, whatever it costs, and the plan.

    Less than `bound` is proven impossible: for every tiling and fusion of the graph, or with `tile="none"` for the graph as it is.
    Half of the time goes into making the plan cheaper.

    >>> from pebbler import machine, workloads
    >>> find_least_capacity(workloads.note_mlp(), machine("cortex-m"), tile="none", time_limit=1).least
    40000
    >>> found = find_least_capacity("mlp:n=4,hidden=8", "cortex-m", time_limit=2)
    >>> found.least, found.bound, found.reason
    (4, 4, 'fwd_linear1 in the smallest tiles needs 4 units at once')
    """
    from pebbler.solver.case import Case, has_forms
    from pebbler.solver.least_memory import least_memory
    from pebbler.solver.problem import Problem
    from pebbler.solver.warm_up import needed, warm_up

    problem = Problem.of(graph, machine, steady=steady)
    if problem.machine.management != "explicit":
        raise InputError(f"machine {problem.machine.name} has caches: every schedule runs in any amount of them")
    warm_up(needed(Case(problem, tile)))
    began = time.monotonic()
    found = least_memory(problem, forms=problem.plain and has_forms(problem, tile), seconds=0.5 * time_limit)
    left = max(0.0, time_limit - (time.monotonic() - began))
    plan = solve(
        problem.graph, found.plan.machine, steady=problem.steady, tile=tile, time_limit=left, resume=found.plan
    )
    return replace(found, plan=plan)
