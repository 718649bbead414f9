"""Bounds on the cost of a program's instructions, whatever cells they use: their order, their copies and what they read stay."""

from __future__ import annotations

import math

import numpy as np
from ortools.linear_solver.python.model_builder_helper import ModelBuilderHelper, ModelSolverHelper, SolveStatus

from pebbler.arrays import Ints
from pebbler.extras.cells.cell_program import CellProgram
from pebbler.extras.layout.level_exchange import nested_bound

__all__ = ["least_for_instructions"]

_FEW = 2_000  # instructions up to which single distances are priced; for more, all nearer ones together
_PARTS = 5_040  # prices are whole numbers of these parts of one


def least_for_instructions(program: CellProgram) -> int:
    """Return a lower bound on the cost of the program's instructions in any cells.

    Every result, copy and input is an interval of time with so many reads. For any prices of room at every distance and time,
    each takes its cheapest distance, and what all the room is worth is subtracted. The prices are duals of a linear program,
    rounded to whole numbers of small parts, so nothing hangs on its word. Of long programs, the fewest reads beyond each
    distance are added up.

    >>> least_for_instructions(CellProgram.parse("2,9; mul 3,2,9; 3"))  # 1 and 2 for the operands, 1 for the result
    4
    """
    first, end, reads = _intervals(program)
    far = 1
    while far * far < _crowd(first, end).max(initial=0):
        far += 1
    distances = np.arange(1, far + 2)  # one more than is full at any time, so that there is always room
    room = 2 * distances - 1
    nested = math.ceil(nested_bound(first, end, reads, room, distances.astype(np.float64)) - 1e-6)
    if len(program.instructions) > _FEW:
        return nested
    return max(nested, _priced(first, end, reads, distances))


def _intervals(program: CellProgram) -> tuple[Ints, Ints, Ints]:
    """Return from which instruction to which every value that is read is in its cell, and how often it is read there."""
    held: dict[int, int] = {}
    spans: list[list[int]] = []
    for time, goals, sources in (
        (0, program.inputs, ()),
        *((time, (one.goal,), one.sources) for time, one in enumerate(program.instructions, 1)),
        (len(program.instructions) + 1, (), program.outputs),
    ):
        for cell in sources:
            spans[held[cell]][1] = time
            spans[held[cell]][2] += 1
        for cell in goals:
            held[cell] = len(spans)
            spans.append([time, time, 0])
    first, end, reads = np.array([span for span in spans if span[2]], np.int64).T
    return first, end, reads


def _crowd(first: Ints, end: Ints) -> Ints:
    """Return the number of intervals that hold between any two instructions."""
    slots = int(end.max()) + 1
    crowd: Ints = np.cumsum(np.bincount(first, minlength=slots) - np.bincount(end, minlength=slots))
    return crowd


def _priced(first: Ints, end: Ints, reads: Ints, distances: Ints) -> int:
    """Return the bound that prices of room give: of the least cost by distance and time, in whole numbers."""
    prices = _duals(first, end, reads, distances)
    toll = np.concatenate([np.zeros((len(distances), 1), np.int64), np.cumsum(prices, axis=1)], axis=1)
    paid = _PARTS * reads[:, None] * distances + (toll[:, end] - toll[:, first]).T
    return -int(-(paid.min(axis=1).sum() - (prices.sum(axis=1) * (2 * distances - 1)).sum()) // _PARTS)


def _duals(first: Ints, end: Ints, reads: Ints, distances: Ints) -> Ints:
    """Return prices of room by distance and time, from a linear program of which distance every interval has."""
    crowd, slots = _crowd(first, end), int(end.max())
    model = ModelBuilderHelper()
    one = [model.add_linear_constraint() for _ in reads]
    for row in one:
        model.set_constraint_lower_bound(row, 1.0)
    full: dict[tuple[int, int], int] = {}
    # What is there at another time is also there when something has just begun and something is about to end.
    peaks = sorted(set(first.tolist()) & set((end - 1).tolist()))
    for d, distance in enumerate(distances.tolist()):
        last = d == len(distances) - 1
        tops = [] if last else [time for time in peaks if crowd[time] > 2 * distance - 1]
        for time in tops:
            full[d, time] = model.add_linear_constraint()
            model.set_constraint_upper_bound(full[d, time], 2.0 * distance - 1)
        for value, (begin, till, count) in enumerate(zip(first.tolist(), end.tolist(), reads.tolist(), strict=True)):
            variable = model.add_var()
            model.set_var_lower_bound(variable, 0.0)
            model.set_var_objective_coefficient(variable, float(count * distance))
            model.add_term_to_constraint(one[value], variable, 1.0)
            for time in tops:
                if begin <= time < till:
                    model.add_term_to_constraint(full[d, time], variable, 1.0)
    solver = ModelSolverHelper("glop")
    solver.solve(model)
    prices = np.zeros((len(distances), slots), np.int64)
    if solver.status() == SolveStatus.OPTIMAL:
        duals = solver.dual_values()
        for (d, time), row in full.items():
            prices[d, time] = max(0, round(-_PARTS * float(duals[row])))
    return prices
