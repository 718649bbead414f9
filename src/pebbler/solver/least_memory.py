"""The least fast memory that works: a proven bound for every form of a graph, and the least for which a plan was found.

With a second, endless level beside it, the fastest has to hold what one op needs at once, and that is enough. Smaller tiles need
less. Tiles of one element need the least of all, but may be more pieces than can be built.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import islice

from pebbler.errors import InputError, quoted
from pebbler.game.graph import Graph
from pebbler.game.plan import Covers, Plan
from pebbler.game.transform import tile
from pebbler.referee.judgement import check
from pebbler.solver.capacity import Requirement, narrow, op_requirement, shortage
from pebbler.solver.paging.demand_paging import program_order_plan
from pebbler.solver.problem import Impossible, Problem, Search
from pebbler.solver.recompute.least_capacity import least_capacity
from pebbler.solver.tiling import solve_tiled
from pebbler.solver.tiling.first_tiling import offer_fitting
from pebbler.solver.tiling.small_forms import fusions
from pebbler.solver.tiling.transform_space import TransformSpace

__all__ = ["LeastMemory", "least_memory", "least_need", "require_tiles_that_fit"]

_MOST_FUSIONS = 256
_MOST_OPS = 300  # of a graph whose fusions are gone through
_FIRST = 8  # how many times less than the graph as it is the first tiling may hold: few pieces, so hardly any time


@dataclass(frozen=True)
class LeastMemory:
    """`plan` works with `least` units of the fastest level; no plan within the scope works with less than `bound`."""

    least: int
    bound: int
    reason: str  # why less than `bound` does not work
    covers: Covers
    plan: Plan


def least_memory(problem: Problem, *, forms: bool, seconds: float) -> LeastMemory:
    """Return the least capacity of the fastest level for which a plan is found, and a bound; with `forms` over all tilings.

    >>> from pebbler import machine, workloads
    >>> step = Problem.of(workloads.mlp(n=20, hidden=1000), machine("cortex-m"))
    >>> found = least_memory(step, forms=False, seconds=1.0)
    >>> found.least, found.bound, found.reason
    (40000, 40000, 'upd_W1 needs 40,000 units at once')
    """
    ends = time.monotonic() + seconds
    covers: Covers = "forms" if forms else "graph"
    if len(problem.machine.level) == 1:
        known = least_capacity(problem, 0.5 * seconds if forms else seconds)
        found = LeastMemory(known.upper, known.lower, known.reason, covers, known.plan)
    else:
        need = op_requirement(problem)
        if need is None:
            why = "operands may be anywhere, so no op needs room" if problem.graph.ops else "there is no op"
            need = Requirement(1, f"{why}: a level")
        units = max(1, need.units)  # no level holds less
        found = LeastMemory(units, units, need.reason, covers, _untiled_plan(problem, units))
    if not forms or found.bound <= 1:
        return found
    least = least_need(problem)
    left = seconds if len(problem.machine.level) > 1 else max(0.0, ends - time.monotonic())
    return _with_tiles(problem, replace(found, bound=least.units, reason=least.reason), left)


def least_need(problem: Problem) -> Requirement:
    """Return the room that every form of a graph needs in the fastest level: the need of an op in tiles of one element.

    On a machine of one level, what starts and what ends there needs room as well.

    >>> from pebbler import machine, workloads
    >>> least_need(Problem.of(workloads.mlp(n=20, hidden=1000), machine("cortex-m"))).units
    4
    """
    graph = problem.graph
    found = list(islice(fusions(graph), _MOST_FUSIONS + 1)) if len(graph.ops) <= _MOST_OPS else []
    if 0 < len(found) <= _MOST_FUSIONS:
        need = min((_finest_need(space.graph, _cuttable(space), ()) for _, space in found), key=lambda one: one.units)
    else:  # any temp may be fused away, and any axis cut
        temps = {tensor.name for tensor in graph.tensors if tensor.kind == "temp"}
        need = _finest_need(graph, TransformSpace(graph).axes, temps)
    if len(problem.machine.level) > 1:
        return need
    flow = graph.dataflow
    ends = Requirement(int(flow.value_size[flow.value_must_survive].sum()), "what must be there at the end")
    start = Requirement(int(flow.value_size[flow.value_maker < 0].sum()), "what is there at the start")
    return max(need, start, ends, key=lambda one: one.units)


def require_tiles_that_fit(problem: Problem) -> None:
    """Raise `Impossible` when it can be seen at a glance that no form of the graph has a legal plan.

    >>> from pebbler import machine, workloads
    >>> tiny = machine("cortex-m").in_unit("float32").resized(0, 3)
    >>> require_tiles_that_fit(Problem.of(workloads.mlp(), tiny))
    Traceback (most recent call last):
    pebbler.solver.problem.Impossible: fwd_linear1 in the smallest tiles needs 4 units at once; SRAM holds 3; at least 4 are needed
    """
    level = problem.machine.level[0]
    if level.capacity is None or op_requirement(problem) is None:
        return
    need = least_need(problem)
    if need.units > level.capacity:
        raise Impossible(shortage(need.reason, level.name, level.capacity, f"at least {need.units:,} are needed"))


def _finest_need(graph: Graph, axes: Collection[str], gone: Collection[str]) -> Requirement:
    """Return the largest need of any op with these axes in tiles of 1, not counting the values in `gone`."""
    flow = graph.dataflow
    most = Requirement(0, "no op")
    for number, op in enumerate(graph.ops):
        cut = set(axes) - set(op.whole)

        def units(values: Collection[int], cut: set[str] = cut) -> int:
            tensors = [graph.tensors[flow.value_tensor[value]] for value in values]
            return sum(
                tensor.size // math.prod(extent for axis, extent in tensor.axes or () if axis in cut)
                for tensor in tensors
                if tensor.name not in gone
            )

        reads, writes = set(flow.op_reads.row(number).tolist()), set(flow.op_writes.row(number).tolist())
        after = reads - set(flow.op_destroys.row(number).tolist()) | writes
        need = max(units(reads), units(after))
        if need > most.units:
            most = Requirement(need, f"{quoted(op.name)} in the smallest tiles")
    return most


def _cuttable(space: TransformSpace) -> list[str]:
    """Return the axes that can be cut, each by itself."""
    found = []
    for axis, extent in space.axes.items():
        try:
            tile(space.graph, axis, -(-extent // 2))
        except InputError:
            continue
        found.append(axis)
    return found


def _untiled_plan(problem: Problem, units: int) -> Plan:
    """Return a plan of the graph as it is in a room that is known to suffice."""
    plan = program_order_plan(_resized(problem, units))
    if plan is None:
        raise Impossible(f"no plan was found with {units:,} units")
    return plan


def _with_tiles(problem: Problem, found: LeastMemory, seconds: float) -> LeastMemory:
    """Return the least for which there is a plan in tiles, and what else is known of it.

    Finer tiles are more pieces and take longer. The first attempt is coarse and made whatever the time; the second lies halfway to
    the bound, by factors. Then comes the bound, and then the middle between the last failure and the last success.
    """
    ends = time.monotonic() + seconds

    def attempt(units: int, best: Plan) -> tuple[Plan, int] | None:
        plan = _tiled_plan(_resized(problem, units), max(0.0, ends - time.monotonic()))
        if plan is None:
            return None
        held = check(plan).peak[problem.machine.names[0]]  # perhaps less than what was tried
        return _resized(problem, held).plan(plan.moves, plan.start, plan.graph), held

    def between(failed: int, upper: int) -> int:
        return max(failed + 1, math.isqrt(failed * upper))

    plan, least = found.plan, found.least
    for turn, room in enumerate((least // _FIRST, between(found.bound, least))):
        in_time = plan is found.plan or time.monotonic() < ends
        if in_time and found.bound < room < least and (tiled := attempt(room, plan)) is not None:
            plan, least = tiled
        if turn == 0 and len(problem.machine.level) > 1:  # that took the time of loading kernels, too
            ends = time.monotonic() + seconds
    plan, least = narrow(found.bound, plan, least, attempt, lambda: time.monotonic() >= ends, between)
    return replace(found, least=least, plan=plan)


def _tiled_plan(problem: Problem, seconds: float) -> Plan | None:
    search, space = Search(problem, seconds), problem.space
    search.quick = True
    try:
        if not offer_fitting(search, space) and len(problem.machine.level) == 1:
            solve_tiled(search)
    except Impossible:
        return None
    return search.best


def _resized(problem: Problem, units: int) -> Problem:
    return replace(problem, machine=problem.machine.resized(0, units))
