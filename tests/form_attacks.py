"""Attacks on what is claimed of every form of a graph: all tilings and fusions of small graphs, each played as cheaply as can be.

A form is what `fuse` and then `tile` make of a graph: any temps in any order, each axis cut at most once, axes in any order, every
sum forwards or backwards along each of them. Nothing here knows how the solver goes through forms.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, combinations, permutations, product
from math import prod

import msgspec

from attacks import random_levels, random_tilable
from naive_game import NaiveGame, TooBig
from odd_graphs import odd_graph, odd_machine
from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.game.transform import fusable, fuse, tile
from pebbler.referee.judgement import check
from pebbler.solver import find_least_capacity, solve
from pebbler.solver.capacity import op_requirement
from pebbler.solver.exact import solve_exact
from pebbler.solver.paging.demand_paging import program_order_plan
from pebbler.solver.problem import Impossible, Problem, Search

__all__ = ["all_forms", "attack_forms", "attack_least_memory", "least_energy"]

MOST_FORMS, MOST_OPS = 60, 24


def all_forms(graph: Graph) -> Iterator[Graph]:
    """Yield the graph in every form."""
    seen: set[tuple[str, ...]] = set()
    waiting = [graph]
    while waiting:
        fused = waiting.pop()
        if fused.op_names in seen:
            continue
        seen.add(tuple(fused.op_names))
        yield from _tilings(fused)
        for temp in fusable(fused):
            try:
                waiting.append(fuse(fused, temp))
            except InputError:
                continue


def _tilings(graph: Graph) -> Iterator[Graph]:
    extents = {axis: extent for tensor in graph.tensors for axis, extent in tensor.axes or () if extent > 1}
    for sizes in product(*(range(extent, 0, -1) for extent in extents.values())):
        cut = [(axis, size) for axis, size in zip(extents, sizes, strict=True) if size < extents[axis]]
        for order in permutations(cut):
            yield from _cuts(graph, list(order))


def _cuts(graph: Graph, cuts: list[tuple[str, int]]) -> Iterator[Graph]:
    if not cuts:
        yield graph
        return
    (axis, size), rest = cuts[0], cuts[1:]
    has = {tensor.name: axis in dict(tensor.axes or ()) for tensor in graph.tensors}
    touched = [op for op in graph.ops if any(has[name] for name in (*op.reads, *op.writes))]
    sums = [op.name for op in touched if axis not in op.whole and not all(has[name] for name in op.writes)]
    for backwards in chain.from_iterable(combinations(sums, count) for count in range(len(sums) + 1)):
        try:
            made = tile(graph, axis, size, reverse=backwards)
            _ = made.dataflow
        except InputError:
            return  # in no direction
        yield from _cuts(made, rest)


def least_energy(graph: Graph, machine: Machine, steady: bool, states: int) -> float:
    """Return the least energy of a graph as it is, by brute force where it is small; else that of a plan."""
    game, reads = NaiveGame(graph, machine, steady), [level.read for level in machine.level]
    if not (steady and len(game.params) > 2):  # it begins with every placement of the params
        try:
            found = game.solve(states) if reads == sorted(reads) else game.solve_plain(states)
            return float("inf") if found is None else found
        except TooBig:
            pass
    search = Search(Problem.of(graph, machine, steady=steady), 1.0)
    try:
        search.offer_plan(program_order_plan(search.problem))
        solve_exact(search, 20_000)
    except Impossible:
        return float("inf")
    return search.energy


def few_forms(rng: random.Random) -> tuple[list[Graph], Machine] | None:
    """Return all forms of a small graph, itself first, and an explicit machine; None where they are many, or one alone."""
    if rng.random() < 0.6:
        graph = random_tilable(rng, most_ops=3, most_extent=4)
        machine = random_levels(rng, graph, "explicit")
    else:
        graph = odd_graph(rng)
        machine = odd_machine(rng, graph)
    if machine.management != "explicit" or machine.results != "apart":
        return None
    extents = {axis: extent for tensor in graph.tensors for axis, extent in tensor.axes or ()}
    if prod(extents.values()) > 16:
        return None
    forms = []
    for form in all_forms(graph):
        forms.append(form)
        if len(forms) > MOST_FORMS or len(form.ops) > MOST_OPS:
            return None
    return (forms, machine) if len(forms) > 1 else None


def attack_forms(seed: int, *, seconds: float = 2.0, states: int = 300) -> str | None:
    """Solve a small graph with all forms allowed, and look for a form that costs less than the bound.

    Return the plan's status, and whether a form costs less than the plan; None where there are too many forms, or one alone.
    """
    rng = random.Random(seed)
    found = few_forms(rng)
    if found is None:
        return None
    forms, machine = found
    steady = rng.random() < 0.4
    least = min(least_energy(form, machine, steady, states) for form in forms)
    plan = None
    with suppress(Impossible):
        plan = solve(forms[0], machine, steady=steady, time_limit=seconds, threads=1)
    if plan is None:
        assert least == float("inf"), f"seed {seed}: said to be impossible, but a form costs {least}"
        return "impossible"
    bound = plan.bound or 0.0
    assert least >= bound * (1 - 1e-12), f"seed {seed}: {least} is less than the bound of {bound}: {plan.proof}"
    assert plan.covers == "forms", f"seed {seed}"
    return f"{plan.status}, missed" if plan.energy > least * (1 + 1e-12) else plan.status


def attack_least_memory(seed: int) -> str | None:
    """Compare the least memory stated for all forms with what each of them needs, op by op."""
    rng = random.Random(seed)
    found = few_forms(rng)
    if found is None:
        return None
    forms, machine = found
    machine = msgspec.structs.replace(machine, operands="fastest")
    needs = [op_requirement(Problem.of(form, machine)) for form in forms]
    least = min(0 if need is None else need.units for need in needs)
    stated = find_least_capacity(forms[0], machine, time_limit=0.5)
    assert stated.bound <= max(1, least), (
        f"seed {seed}: a form needs {least}, less than {stated.bound} is said not to do"
    )
    assert stated.least >= least, f"seed {seed}"
    assert check(stated.plan).legal, f"seed {seed}"
    assert stated.plan.machine.level[0].capacity == stated.least, f"seed {seed}"
    return "exact" if stated.least == stated.bound else "found the least" if stated.least == least else "between"
