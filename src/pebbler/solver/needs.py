"""How much fast memory a problem needs at the very least, op by op, and what to say when the machine has less."""

from __future__ import annotations

from dataclasses import dataclass

from pebbler.errors import quoted
from pebbler.game.dataflow import NONE, Dataflow
from pebbler.solver.problem import Problem

__all__ = ["Need", "explain_impossible", "needs"]


@dataclass(frozen=True)
class Need:
    """What one op needs in the fastest level at once; `enough` when a level of that size suffices for the whole graph."""

    op: str
    units: int
    level: str
    enough: bool


def needs(problem: Problem) -> Need | None:
    """Return the op that needs most of the fastest level at once; None when no op needs any (operands "any", an endless level).

    An update in place takes over its old version's room, but old versions that it only reads stay. On a machine of one level,
    values that can neither leave nor be recomputed count as well.

    >>> from pebbler import machine, workloads
    >>> need = needs(Problem.of(workloads.note_mlp(), machine("cortex-m").in_unit("float32")))
    >>> need.op, f"{need.units:,}", need.enough
    ('upd_W1', '40,000', True)
    """
    flow, machine = problem.graph.dataflow, problem.machine
    alone = len(machine.level) == 1
    if flow.ops == 0 or (machine.operands == "any" and not alone) or machine.management != "explicit":
        return None
    pinned = _pinned(flow) if alone else [set() for _ in range(flow.ops)]
    best, units = 0, -1
    for op in range(flow.ops):
        reads, writes = set(flow.op_reads.row(op).tolist()), set(flow.op_writes.row(op).tolist())
        gone = set(flow.op_destroys.row(op).tolist())
        before = reads | pinned[op]
        need = max(_size(flow, before), _size(flow, (before - gone) | writes))
        if need > units:
            best, units = op, need
    return Need(flow.op_names[best], units, machine.level[0].name, enough=not alone)


def explain_impossible(problem: Problem) -> str | None:
    """Return why no legal plan exists, when that can be seen at a glance; None otherwise.

    >>> from pebbler import machine, workloads
    >>> from pebbler.game.machine import Level, Machine
    >>> small = Machine("small", "float32", (Level("fast", 0, 0, capacity=16384), Level("slow", 1, 1)))
    >>> print(explain_impossible(Problem.of(workloads.note_mlp(), small)))
    upd_W1 needs 40,000 units at once; fast holds 16,384; the least that works is 40,000
    """
    crowded = _crowded_start(problem)
    if crowded is not None:
        return crowded
    need = needs(problem)
    capacity = problem.machine.level[0].capacity
    if need is None or capacity is None or need.units <= capacity:
        return None
    least = f"the least that works is {need.units:,}" if need.enough else f"at least {need.units:,} are needed"
    return f"{quoted(need.op)} needs {need.units:,} units at once; {quoted(need.level)} holds {capacity:,}; {least}"


def _size(flow: Dataflow, values: set[int]) -> int:
    return int(flow.value_size[sorted(values)].sum()) if values else 0


def _crowded_start(problem: Problem) -> str | None:
    """Return which level cannot hold what must start there, None when all fits."""
    flow, machine = problem.graph.dataflow, problem.machine
    used = [0] * len(machine.level)
    for tensor, levels in problem.start_choices().items():
        for level in levels or ():
            used[level] += int(flow.value_size[flow.start_value[tensor]])
    for here, units in zip(machine.level, used, strict=True):
        if here.capacity is not None and units > here.capacity:
            held = f"{quoted(here.name)}, which holds {here.capacity:,}"
            return f"{units:,} units start in {held}; at least {units:,} are needed"
    return None


def _pinned(flow: Dataflow) -> list[set[int]]:
    """Return, per op, the values that must be present when it runs first because they can never be made again.

    Such a value is there before the op, and needed after it, in every legal order.
    """
    earlier: list[set[int]] = []
    for direct in flow.predecessors():
        earlier.append(set(direct).union(*(earlier[op] for op in direct)))
    lasting = [
        value
        for value in range(flow.values)
        if flow.value_maker[value] == NONE
        or flow.op_once[flow.value_maker[value]]
        or flow.op_in_place[flow.value_maker[value]]
    ]
    pinned: list[set[int]] = [set() for _ in range(flow.ops)]
    for value in lasting:
        maker = int(flow.value_maker[value])
        readers = flow.value_readers.row(value).tolist()
        for op in range(flow.ops):
            there = maker == NONE or maker in earlier[op]
            wanted = bool(flow.value_must_survive[value]) or any(op in earlier[reader] for reader in readers)
            if there and wanted:
                pinned[op].add(value)
    return pinned
