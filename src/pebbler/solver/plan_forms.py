"""The problem that a plan solves: its source's if its graph is a form of the source whose tiles start together, else its graph's.

A file may say anything of where its graph comes from, so a form is made again from the source and compared.
"""

from __future__ import annotations

from dataclasses import replace

from pebbler.game.graph import Graph
from pebbler.game.plan import Plan
from pebbler.game.sums import Sums
from pebbler.game.tile_meta import origin
from pebbler.solver.problem import Problem, Start
from pebbler.solver.tiling.transform_space import made_again

__all__ = ["form_in", "own_problem", "source_problem", "starts_as_asked"]


def form_in(graph: Graph, source: Graph) -> Graph | None:
    """Return a graph as the source gives it when it is tiled and fused again, or its sums put in order; None if it is no form.

    >>> from pebbler import tile, workloads
    >>> step = workloads.mlp(n=20, hidden=100)
    >>> form_in(tile(step, "hidden", 10), step) is None, form_in(workloads.chain(3), step) is None
    (False, True)
    """
    if graph is source or graph == source:
        return source
    sums = Sums.of(source)
    if sums is not None and sums.order_of(graph) is not None:
        return graph
    return made_again(graph, source)


def own_problem(plan: Plan) -> Problem:
    """Return the problem of a plan's own graph, from the plan's own start."""
    return Problem.of(plan.graph, plan.machine, steady=plan.steady, start=plan.start)


def source_problem(plan: Plan) -> Problem | None:
    """Return the problem of the plan's source; None if its graph is no form of it, or tiles of one tensor start apart.

    >>> from pebbler import machine, tile, workloads
    >>> step = workloads.mlp(n=20, hidden=100)
    >>> halves = tile(step, "hidden", 50)
    >>> start = {"W1[0]": "L1", "W1[1]": "L2"}
    >>> plans = [Plan(halves, machine("notes-explicit"), [], start, steady, source=step) for steady in (True, False)]
    >>> [source_problem(plan) is None for plan in plans]  # params of a steady step start where the plan likes
    [False, True]
    """
    form = None if plan.source is None else form_in(plan.graph, plan.source)
    if plan.source is None or form is None:
        return None
    whole = {origin(tensor): plan.start[tensor.name] for tensor in form.tensors if tensor.name in plan.start}
    problem = replace(own_problem(plan), graph=plan.source, start=whole)
    return problem if starts_as_asked(plan, problem.transformed(form)) else None


def starts_as_asked(plan: Plan, problem: Problem) -> bool:
    """Return whether a plan starts from the levels of a problem of its graph, wherever these are not the plan's to choose."""
    asked, given = problem.start_choices(), replace(problem, start=_known(plan.start, problem.graph)).start_choices()
    return all(levels is None or given[tensor] == levels for tensor, levels in asked.items())


def _known(start: Start, graph: Graph) -> Start:
    """Return the part of a start that is about a graph's own tensors."""
    return {name: where for name, where in start.items() if name in graph.tensor_numbers}
