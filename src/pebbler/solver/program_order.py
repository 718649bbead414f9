"""Program order with the simplest memory management: the baseline of every plan."""

from __future__ import annotations

from pebbler.game.machine import Machine
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.solver.paging.demand_paging import RUNTIME, program_order_plan
from pebbler.solver.problem import Problem, Search

__all__ = ["offer_program_order", "program_order", "program_order_energy", "program_order_words"]


def program_order(problem: Problem) -> Plan | None:
    """Return the plan in program order, None if it does not fit; `program_order_words` describes its memory management."""
    if problem.machine.management == "explicit":
        return program_order_plan(problem)
    return Plan.in_order(problem.graph, problem.machine, steady=problem.steady)


def offer_program_order(search: Search) -> None:
    """Offer the plan, and keep its cost."""
    if search.offer_plan(program_order(search.problem)):
        search.note_program_order(search.energy)


def program_order_energy(search: Search) -> float | None:
    """Return the energy of program order, judged once per search, or None if it does not fit.

    >>> from pebbler import machine, workloads
    >>> program_order_energy(Search(Problem.of(workloads.note_mlp(), machine("notes-recency"))))
    11004490
    """
    if search.program_order is None and (plan := program_order(search.problem)) is not None:
        search.program_order = check(plan).energy
    return search.program_order


def program_order_words(machine: Machine) -> str:
    """Return a description of program order's memory management on a machine; empty for caches, which leave no choice.

    >>> from pebbler import machine
    >>> program_order_words(machine("notes-explicit")), program_order_words(machine("notes"))
    ('every tensor stays in the fastest level with room for it', '')
    """
    if machine.management != "explicit":
        return ""
    return "every value kept until its last use" if len(machine.level) == 1 else RUNTIME[machine.operands]
