"""A problem as the flat arrays that the paging kernels work on."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt

from pebbler.game.dataflow import NONE
from pebbler.referee import pricing
from pebbler.solver.paging.kernels.residency import INFINITE, PagingArrays
from pebbler.solver.problem import Problem

__all__ = ["arrays_of", "copies_are_direct"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def arrays_of(problem: Problem) -> PagingArrays:
    """Return the arrays of a problem; storages are numbered by the tensor that they are named after.

    >>> from pebbler import machine, workloads
    >>> arrays = arrays_of(Problem.of(workloads.chain(2), machine("red-blue")))
    >>> arrays.masks.tolist(), arrays.copy_price[2].tolist()  # from slow only: to be in fast as well costs a load
    ([0, 1, 2, 3], [0.0, 100.0, 0.0, 100.0])
    """
    machine, flow = problem.machine, problem.graph.dataflow
    levels = range(len(machine.level))
    storage_of_value = flow.storage[flow.value_tensor]
    starts = _start_masks(problem)
    masks = _states(len(levels), set(starts.values()))
    read, write = pricing.prices(machine, "read"), pricing.prices(machine, "write")
    fastest = [min((at for at in levels if mask >> at & 1), default=0) for mask in masks]
    operands = [_operands(problem, storage_of_value, op) for op in range(flow.ops)]
    return PagingArrays(
        fastest=machine.operands == "fastest",
        capacity=pricing.capacities(machine),
        write=write,
        masks=np.array(masks, np.int64),
        copy_price=np.array([[_copy_price(a, b, read, write) for b in masks] for a in masks]),
        state_read=read[fastest],
        join=np.array(
            [[masks.index(mask | 1 << at) if mask | 1 << at in masks else -1 for at in levels] for mask in masks],
            np.int64,
        ),
        size=flow.value_size,
        operand_start=np.cumsum([0, *(len(row) for row in operands)], dtype=np.int64),
        operand=np.array([one for row in operands for one in row], np.int64).reshape(-1, 5),
        op_cost=flow.op_cost,
        op_makes=np.diff(flow.op_writes.start),
        storage=_storage_rows(problem, storage_of_value, {c: masks.index(mask) for c, mask in starts.items()}),
        step_price=1e-8 * float(max(read.max(), write.max(), 1e-9)) / (2 * flow.ops + 2),
    )


def _start_masks(problem: Problem) -> dict[int, int]:
    """Return, per storage with a start value, the levels where it starts as bits; the slowest where the solver may choose."""
    slowest = len(problem.machine.level) - 1
    return {
        int(problem.graph.dataflow.storage[tensor]): sum(1 << level for level in where or [slowest])
        for tensor, where in problem.start_choices().items()
    }


def _storage_rows(problem: Problem, storage_of_value: Ints, start_state: dict[int, int]) -> Ints:
    """Return, per storage: its state at the start, whether it must end so too, its start value, whether a value survives."""
    flow = problem.graph.dataflow
    rows = np.zeros((len(problem.graph.tensors), 4), np.int64)
    for storage, state in start_state.items():
        rows[storage, 0] = state
    rows[flow.storage[problem.looped_params], 1] = 1
    rows[:, 2] = NONE
    for value in flow.start_value[flow.start_value != NONE].tolist():
        rows[storage_of_value[value], 2] = value
    rows[storage_of_value[flow.value_must_survive], 3] = 1
    return rows


def _states(levels: int, wanted: set[int]) -> list[int]:
    """Return the states a storage may be in: every set of levels while they are few, else one or two levels and what starts so."""
    if levels <= 4:
        return list(range(1 << levels))
    few = {1 << at for at in range(levels)}
    few |= {1 << a | 1 << b for a, b in combinations(range(levels), 2) if levels <= 6 or a == 0 or b == levels - 1}
    return [0, *sorted(few | wanted)]


def _copy_price(old: int, new: int, read: Floats, write: Floats) -> float:
    """Return the price per unit of the copies that lead from one set of levels to another, each from its cheapest source."""
    added = [at for at in range(len(read)) if new >> at & 1 and not old >> at & 1]
    if added and old == 0:
        return INFINITE
    total, held = 0.0, [at for at in range(len(read)) if old >> at & 1]
    for at in sorted(added, key=lambda at: (read[at], at)):
        total += min(read[source] for source in held) + write[at]
        held.append(at)
    return float(total)


def copies_are_direct(arrays: PagingArrays) -> bool:
    """Whether no detour through a further level makes copies cheaper, so that the copy prices are the least there are.

    >>> from pebbler import machine, workloads
    >>> copies_are_direct(arrays_of(Problem.of(workloads.chain(2), machine("red-blue"))))
    True
    """
    detour = (arrays.copy_price[:, :, None] + arrays.copy_price[None, :, :]).min(axis=1)
    return bool((arrays.copy_price <= detour * (1 + 1e-12)).all())


def _operands(problem: Problem, storage_of_value: Ints, op: int) -> list[list[int]]:
    """Return, per storage that an op uses: its number, reads, value before, value made, whether the old one is destroyed."""
    flow = problem.graph.dataflow
    found: dict[int, list[int]] = {}

    def operand(value: int) -> list[int]:
        storage = int(storage_of_value[value])
        return found.setdefault(storage, [storage, 0, value, NONE, 0])

    for value in flow.op_reads.row(op).tolist():
        operand(value)[1] += 1
    for value in flow.op_destroys.row(op).tolist():
        operand(value)[4] = 1
    for value in flow.op_writes.row(op).tolist():
        operand(value)[3] = value
    return list(found.values())
