"""Reuse distances and miss curves of a schedule, from whole runs of addresses instead of single ones.

All lines of a run are at the same depth of the LRU stack whenever the run is touched, so a run counts as one touch with a weight.
The figures are exactly those of the trace line by line, at a cost that is independent of tensor sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.referee.kernels.lru_stack import depths
from pebbler.referee.touches import Touches, touch
from pebbler.trace.caches import opt_misses

__all__ = ["Knee", "StepReuse", "measure_reuse"]

Ints = npt.NDArray[np.int64]

MOST_DISTANCES = 600  # distinct distances kept apart; more are merged in steps of about 1 %
OPT_SIZES = 28
OPT_WORK = 12_000_000  # accesses times sizes for which OPT is worth waiting
MOST_KNEES = 5


@dataclass(frozen=True)
class Knee:
    """A cache size from which a whole tensor's reuse hits: in lines, with the accesses it saves and who makes most of them."""

    size: int
    saved: int
    tensor: str
    op: str
    write: bool


@dataclass(frozen=True)
class StepReuse:
    """Distances of a step, in lines of `line` units, with how many lines are at each.

    `steady`: of a step that follows another one like it, so that nothing is cold; OPT's misses are then what a second step adds
    to the first. Otherwise the caches start empty.
    """

    steady: bool
    line: int
    accesses: int
    cold: int
    mean: float
    distance: list[int]
    weight: list[int]
    reach: list[int]  # per bounded level: the lines down to its end
    knees: list[Knee]
    opt_size: list[int]
    opt_misses: list[int]


def measure_reuse(graph: Graph, order: Ints, machine: Machine, *, steady: bool = False) -> StepReuse | None:
    """Return the distances of the ops in `order`; None when they touch nothing. The machine is in the graph's unit.

    `steady` measures a step of an endless loop.

    >>> from pebbler import machine, workloads
    >>> found = measure_reuse(workloads.note_mlp(), np.arange(15), machine("notes"))
    >>> found.accesses, found.cold, found.knees[0].tensor
    (122056, 46025, 'W1')
    >>> measure_reuse(workloads.note_mlp(), np.arange(15), machine("notes"), steady=True).cold
    0
    """
    touches = touch(graph, order, machine.allocator, machine.line)
    runs, run, first = touches.in_lines(machine.line)
    if len(first) == 0:
        return None
    lines, rounds = runs.lines, 2 if steady else 1
    every_depth = np.empty(rounds * len(first), np.int64)
    depths(np.tile(runs.item, rounds), np.tile(lines, rounds), every_depth, np.empty(runs.items, np.int64))
    depth = every_depth[-len(first) :]
    reused = depth > 0
    distance, which = np.unique(depth[reused], return_inverse=True)
    weight = np.bincount(which, weights=lines[reused]).astype(np.int64)
    total, cold = int(lines.sum()), int(lines[~reused].sum())
    mean = float((distance * weight).sum() / weight.sum()) if len(weight) else 0.0
    reach = np.cumsum([level.capacity for level in machine.level if level.capacity is not None], dtype=np.int64)
    knees = _knees(graph, order, touches, run[reused], distance, which, lines[reused])
    distinct = int(lines[np.unique(runs.item, return_index=True)[1]].sum())
    sizes = _opt_sizes(rounds * total, distinct, (reach // machine.line).tolist(), [knee.size for knee in knees])
    distance, weight = _merge(distance, weight)
    misses: Ints | list[int] = []
    if sizes:
        single = _single_lines(first, lines)
        misses = opt_misses(np.tile(single, rounds), sizes)
        misses = misses - opt_misses(single, sizes) if steady else misses
    return StepReuse(
        steady=steady,
        line=machine.line,
        accesses=total,
        cold=cold,
        mean=mean,
        distance=distance.tolist(),
        weight=weight.tolist(),
        reach=(reach // machine.line).tolist(),
        knees=knees,
        opt_size=sizes,
        opt_misses=np.asarray(misses).tolist(),
    )


def _knees(
    graph: Graph, order: Ints, touches: Touches, run: Ints, distance: Ints, which: npt.NDArray[np.intp], lines: Ints
) -> list[Knee]:
    """Return the sizes where the LRU curve falls most, each named by the reuse that it begins to hold."""
    saved = np.bincount(which, weights=lines, minlength=len(distance)).astype(np.int64)
    knees: list[Knee] = []
    for i in np.argsort(-saved, kind="stable").tolist():
        if len(knees) == MOST_KNEES or saved[i] * 50 < lines.sum():
            break
        size = int(distance[i])
        if any(abs(size - knee.size) < 0.1 * knee.size for knee in knees):
            continue
        here = np.flatnonzero(which == i)
        dearest = run[here[np.argmax(lines[here])]]
        tensor, op = graph.tensors[touches.tensor[dearest]].name, graph.ops[order[touches.step[dearest]]].name
        knees.append(Knee(size, int(saved[i]), tensor, op, bool(touches.write[dearest])))
    return knees


def _opt_sizes(accesses: int, distinct: int, reach: list[int], knees: list[int]) -> list[int]:
    """Return the sizes at which OPT is computed: the levels, the knees, and a ladder between; none when it takes too long."""
    count = min(OPT_SIZES, OPT_WORK // max(accesses, 1))
    if count < 6 or distinct < 1:
        return []
    ladder = np.unique(np.geomspace(1, max(distinct, 2), count).round().astype(np.int64)).tolist()
    wanted = {size for size in [*ladder, *reach, *knees] if 1 <= size <= 2 * distinct}
    return sorted(wanted)


def _single_lines(first: Ints, lines: Ints) -> Ints:
    """Return the lines that runs consist of, one by one."""
    ends = np.cumsum(lines)
    return np.repeat(first - (ends - lines), lines) + np.arange(int(ends[-1]))


def _merge(distance: Ints, weight: Ints) -> tuple[Ints, Ints]:
    """Return at most some hundred distances, near ones counted at the largest of them."""
    if len(distance) <= MOST_DISTANCES:
        return distance, weight
    step = np.log(float(distance[-1]) / float(distance[0])) / MOST_DISTANCES
    bucket = np.ceil(np.log(distance / distance[0]) / step).astype(np.int64)
    last = np.flatnonzero(np.diff(bucket, append=bucket[-1] + 1))
    return distance[last], np.diff(np.cumsum(weight)[last], prepend=0)
