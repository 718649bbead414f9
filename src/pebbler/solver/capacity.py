"""The least fast memory of a problem, with the reason, and the message for machines that have less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from pebbler.errors import quoted
from pebbler.game.dataflow import NONE, Dataflow, Rows
from pebbler.solver.kernels.kept_values import kept_units
from pebbler.solver.problem import Impossible, Problem

__all__ = [
    "Requirement",
    "explain_crowding",
    "explain_impossible",
    "narrow",
    "op_requirement",
    "require_capacity",
    "shortage",
    "single_level_requirement",
]

Ints = npt.NDArray[np.int64]
Found = TypeVar("Found")


@dataclass(frozen=True)
class Requirement:
    """Units that the fastest level must hold at one moment of every legal plan, and the reason."""

    units: int
    what: str  # the op, or what else takes the room
    kept: bool = False  # values beside the op's own, which can neither leave nor be made again, are part of it
    unit: str = "units"  # what it is counted in, in words

    @property
    def reason(self) -> str:
        """The requirement as a sentence."""
        kept = ", with what must be kept for later," if self.kept else ""
        return f"{self.what}{kept} needs {self.units:,} {self.unit} at once"


def op_requirement(problem: Problem) -> Requirement | None:
    """Return the op that needs most of the fastest level at once; None when no op needs any (operands "any", a cache).

    An update in place takes over its old version's room, but old versions that it only reads stay. With a second, endless level
    that much is also enough. On a machine of one level, values that can neither leave nor be made again count as well; if results
    may go over operands there, only what an op reads has to be there at once.

    >>> from pebbler import machine, workloads
    >>> op_requirement(Problem.of(workloads.note_mlp(), machine("cortex-m").in_unit("float32"))).reason
    'upd_W1 needs 40,000 units at once'
    """
    flow, machine = problem.graph.dataflow, problem.machine
    alone = len(machine.level) == 1
    if flow.ops == 0 or (machine.operands == "any" and not alone) or machine.management != "explicit":
        return None
    kept = _kept_units(flow) if alone else np.zeros(flow.ops, np.int64)
    units = (_units_per_op(flow, _pairs(flow.op_reads, flow)) if machine.results == "over" else _op_units(flow)) + kept
    most = int(np.argmax(units))
    return Requirement(int(units[most]), quoted(flow.op_names[most]), bool(kept[most] > 0))


def single_level_requirement(problem: Problem) -> Requirement:
    """Return the largest need of a machine's one level: of some op, the start or the end.

    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.workloads import chain
    >>> single_level_requirement(Problem.of(chain(6), Machine("one", "pebble", (Level("fast", 0, 0, capacity=9),)))).reason
    'c2, with what must be kept for later, needs 3 units at once'
    """
    flow, op = problem.graph.dataflow, op_requirement(problem)
    start = int(flow.value_size[flow.value_maker == NONE].sum())
    found = [*([] if op is None else [op]), Requirement(start, "what is there at the start"), _end_requirement(flow)]
    most = max(found, key=lambda requirement: requirement.units)
    return replace(most, unit="bytes") if problem.graph.unit == "byte" else most


def _end_requirement(flow: Dataflow) -> Requirement:
    return Requirement(int(flow.value_size[flow.value_must_survive].sum()), "what must be there at the end")


def explain_impossible(problem: Problem) -> str | None:
    """Return the reason why no legal plan exists, if it can be seen at a glance; None otherwise.

    >>> from pebbler import machine, workloads
    >>> from pebbler.game.machine import Level, Machine
    >>> small = Machine("small", "float32", (Level("fast", 0, 0, capacity=16384), Level("slow", 1, 1)))
    >>> print(explain_impossible(Problem.of(workloads.note_mlp(), small)))
    upd_W1 needs 40,000 units at once; fast holds 16,384; the least that works is 40,000
    """
    crowded = explain_crowding(problem)
    if crowded is not None:
        return crowded
    need, levels = op_requirement(problem), problem.machine.level
    if need is None or levels[0].capacity is None or need.units <= levels[0].capacity:
        return None
    least = f"the least that works is {need.units:,}" if len(levels) > 1 else f"at least {need.units:,} are needed"
    return shortage(Requirement(need.units, need.what).reason, levels[0].name, levels[0].capacity, least)


def explain_crowding(problem: Problem) -> str | None:
    """Return the reason why the start or the end of every plan has too little room, None if both fit; linear in the graph."""
    level, crowded = problem.machine.level[0], _crowded_start(problem)
    if crowded is not None or len(problem.machine.level) > 1 or level.capacity is None:
        return crowded
    end = _end_requirement(problem.graph.dataflow)
    fits = end.units <= level.capacity
    return None if fits else shortage(end.reason, level.name, level.capacity, f"at least {end.units:,} are needed")


def require_capacity(problem: Problem) -> None:
    """Raise `Impossible` when it can be seen at a glance that no legal plan exists.

    >>> from pebbler import machine, workloads
    >>> require_capacity(Problem.of(workloads.chain(3), machine("red-blue")))
    """
    reason = explain_impossible(problem)
    if reason is not None:
        raise Impossible(reason)


def narrow(
    lower: int,
    best: Found,
    upper: int,
    attempt: Callable[[int, Found], tuple[Found, int] | None],
    is_over: Callable[[], bool],
    between: Callable[[int, int], int] = lambda failed, upper: (failed + upper) // 2,
) -> tuple[Found, int]:
    """Return the find that needs the least room, and that room; `best`, which needs `upper`, is known before.

    `attempt` gets a capacity and the best so far; it says what it has found and what that needs. `lower`, below which nothing
    works, is tried first; then what lies between the last failure and the last success. A failure proves nothing, it only steers.

    >>> narrow(3, "known", 40, lambda room, best: (f"fits {room}", room) if room >= 17 else None, lambda: False)
    ('fits 17', 17)
    """
    failed = lower - 1
    while failed + 1 < upper and not is_over():
        tried = lower if failed < lower else between(failed, upper)
        found = attempt(tried, best)
        if found is None:
            failed = tried
        else:
            best, upper = found
    return best, upper


def shortage(reason: str, level: str, capacity: int, least: str) -> str:
    """Return the message for a level that is too small: the need, the capacity, and a capacity that suffices."""
    return f"{reason}; {quoted(level)} holds {capacity:,}; {least}"


def _crowded_start(problem: Problem) -> str | None:
    """Return the level that cannot hold the values that must start there, None if all fit."""
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


def _op_units(flow: Dataflow) -> Ints:
    """Return the units that every op needs for itself: its reads before it runs, its results and remaining reads after."""
    reads = _pairs(flow.op_reads, flow)
    after = np.union1d(np.setdiff1d(reads, _pairs(flow.op_destroys, flow)), _pairs(flow.op_writes, flow))
    return np.maximum(_units_per_op(flow, reads), _units_per_op(flow, after))


def _pairs(rows: Rows, flow: Dataflow) -> Ints:
    """Return every (op, value) of some rows as one number, each once."""
    op = np.repeat(np.arange(flow.ops), np.diff(rows.start))
    return np.unique(op * flow.values + rows.items)


def _units_per_op(flow: Dataflow, pairs: Ints) -> Ints:
    units = np.zeros(flow.ops, np.int64)
    np.add.at(units, pairs // max(flow.values, 1), flow.value_size[pairs % max(flow.values, 1)])
    return units


def _kept_units(flow: Dataflow) -> Ints:
    """Return, per op, the units of other values that every legal plan of one level holds at the op's first run.

    Such a value can never be made again, was made before the op and is needed after it, whatever the order.
    """
    held = np.flatnonzero(~flow.value_can_be_remade & (flow.value_size > 0))
    before, reads, writes = flow.before, flow.op_reads, flow.op_writes
    kept: Ints = kept_units(
        before.start, before.items, reads.start, reads.items, writes.start, writes.items,
        held, flow.value_maker == NONE, flow.value_must_survive, flow.value_size,
    )  # fmt: skip
    return kept
