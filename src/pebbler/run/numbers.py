"""Run a plan on real numbers, storage by storage, and compare with program order.

The replay of a plan has levels of storage and follows all moves, legal or not. A plan that overwrites a parameter too early
therefore computes with the new value, as a real machine would. Graphs without numpy kernels run on fingerprints: every op hashes
all its operands into a 64-bit number, so that any stale value changes the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pebbler.arrays import Floats
from pebbler.errors import InputError, quoted
from pebbler.game.graph import Graph, Op, Tensor
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import Compute, Copy
from pebbler.game.plan import Plan
from pebbler.game.tile_meta import TileMeta, tile_of
from pebbler.workloads import arithmetic

__all__ = ["Comparison", "execute", "verify"]

Values = dict[str, Any]
_MOST_NUMBERS = 2**29  # 4 GiB of doubles
Interpreter = Callable[[Op, Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True)
class Comparison:
    """Differences between the results of a plan and those of program order."""

    identical: bool  # bit for bit
    largest_difference: float  # relative; 0 when identical
    compared: tuple[str, ...]
    numbers: bool  # False: the graph has no kernels, so fingerprints were compared


def execute(plan: Plan, values: Mapping[str, npt.ArrayLike] | None = None, *, seed: int = 0) -> Values:
    """Return the final value of every param and output after running the plan's moves.

    `values` gives inputs and params; without it they are drawn from `seed`. A plan with a source takes and returns the source's
    tensors, whatever tiles it works on. Illegal plans run too, as far as data allows.

    >>> from pebbler import workloads, machine, Plan
    >>> plan = Plan.in_order(workloads.mlp(n=3, hidden=4), machine("notes"))
    >>> sorted(execute(plan))
    ['W1', 'W2', 'b1', 'b2']
    """
    graph, flow = plan.graph, plan.graph.dataflow
    interpret, start = _interpreter(plan, values, seed)
    replay = plan.replay()
    # By value and level: in an illegal plan two copies of a value may differ, computed from other operands.
    contents: dict[tuple[int, int], Any] = {}
    for value, level in replay.start:
        contents[value, level] = start[flow.tensor_names[flow.value_tensor[value]]]
    for step in replay:
        operands = [contents.get(held) for held in step.reads]
        match step.move:
            case Compute(name):
                op = graph.op_named(name)
                for read, operand in zip(op.reads, operands, strict=True):
                    _require(operand, f"op {quoted(name)}: {quoted(read)} is in no level")
                results = interpret(op, operands)
            case Copy(name, source):
                results = [
                    _require(operand, f"copy: {quoted(name)} is not in {quoted(source)}") for operand in operands
                ]
            case _:
                results = []
        for held in step.removed:
            del contents[held]
        contents.update(zip(step.writes, results, strict=True))
    final = {}
    for number, tensor in enumerate(graph.tensors):
        if tensor.kind in ("param", "output"):
            found = contents.get(replay.find(number))
            final[tensor.name] = _require(found, f"the end: {quoted(tensor.name)} is in no level")
    return final if plan.source is None else _assembled(graph, plan.source, final)


def _require(content: Any, message: str) -> Any:
    if content is None:
        raise InputError(message)
    return content


def verify(plan: Plan, *, seed: int = 0) -> Comparison:
    """Return the comparison of the plan's params and outputs with those of program order, from the same start.

    >>> from pebbler import workloads, machine, Plan
    >>> step = workloads.note_mlp()
    >>> order = [op.name for op in step.ops]
    >>> order.insert(6, order.pop(order.index("upd_W2")))
    >>> verify(Plan.in_order(step, machine("notes"), order)).identical
    False
    """
    program = plan.graph if plan.source is None else plan.source
    # Program order is run as on a machine that holds everything, whatever the plan's levels are.
    memory = Machine("memory", program.unit, (Level("memory", 0, 0),), operands="any")
    reference = execute(Plan.in_order(program, memory), seed=seed)
    result = execute(plan, seed=seed)
    numbers = arithmetic.has_kernels(plan.graph)
    worst, identical = 0.0, True
    for name, expected in reference.items():
        if name not in result:
            raise InputError(f"no tile of the plan's graph holds {quoted(name)} of its source")
        got, expected = np.asarray(result[name]), np.asarray(expected)
        if got.tobytes() != expected.tobytes():
            identical = False
            worst = max(worst, _difference(got, expected) if numbers else 1.0)
    return Comparison(identical, worst, tuple(reference), numbers)


def _difference(got: Floats, expected: Floats) -> float:
    """Return the difference of `got` and `expected`, relative to the largest number in it; 1 where either is no number."""
    scale = float(np.max(np.abs(expected), initial=0.0)) or 1.0
    difference = float(np.max(np.abs(got - expected), initial=0.0)) / scale
    return difference if np.isfinite(difference) else 1.0


def _interpreter(
    plan: Plan, values: Mapping[str, npt.ArrayLike] | None, seed: int
) -> tuple[Interpreter, dict[str, Any]]:
    """Return a function that runs an op, and the start values: arrays where there are kernels, else fingerprints."""
    graph, program = plan.graph, plan.graph if plan.source is None else plan.source
    if not arithmetic.has_kernels(graph):
        if values is not None or plan.source is not None:
            raise InputError(f"graph {quoted(graph.name)} has no numpy kernels, so it cannot run on numbers")
        names = [tensor.name for tensor in graph.tensors if tensor.kind in ("input", "param")]
        return _fingerprint, {name: _mix(str(seed), name) for name in names}
    if sum(tensor.size for tensor in (*graph.tensors, *program.tensors)) > _MOST_NUMBERS:
        raise InputError(f"graph {quoted(graph.name)} has more than {_MOST_NUMBERS:,} numbers: too many to run here")
    start: dict[str, Any] = arithmetic.initial_values(program, seed)
    for name, value in (values or {}).items():
        if name not in start:
            raise InputError(f"{quoted(name)} is no input or param of graph {quoted(program.name)}")
        array = np.asarray(value, np.float64)
        if array.shape != start[name].shape:
            raise InputError(f"{quoted(name)} must have shape {start[name].shape}, got {array.shape}")
        start[name] = array
    if plan.source is not None:
        pieces = [(tensor, *_part(tensor, program)) for tensor in graph.tensors if tensor.kind in ("input", "param")]
        if stranger := next((whole for _, whole, _ in pieces if whole not in start), None):
            raise InputError(f"source: {quoted(stranger)} is neither input nor param, but a tile of it is")
        start = {tensor.name: start[whole][part] for tensor, whole, part in pieces}
    return lambda op, reads: arithmetic.run_op(graph, op, reads), start


def _part(tensor: Tensor, source: Graph) -> tuple[str, tuple[slice, ...]]:
    """Return the source tensor of this tile, and the part that the tile covers."""
    tile = tile_of(tensor) or TileMeta(tensor.name)
    whole = source.tensor_named(tile.of)
    return whole.name, tuple(slice(*tile.at.get(axis, (0, extent))) for axis, extent in whole.axes or ())


def _assembled(graph: Graph, source: Graph, results: Values) -> Values:
    assembled: Values = {}
    for name, result in results.items():
        tensor = graph.tensor_named(name)
        goal, part = _part(tensor, source)
        shape = tuple(extent for _, extent in source.tensor_named(goal).axes or ())
        try:
            assembled.setdefault(goal, np.full(shape, np.nan))[part] = result
        except ValueError as error:
            raise InputError(f"tensor {quoted(name)}: does not fit as a tile of {quoted(goal)}: {error}") from None
    return assembled


def _fingerprint(op: Op, reads: Sequence[Any]) -> list[Any]:
    return [_mix(op.name, name, *(str(int(read)) for read in reads)) for name in op.writes]


def _mix(*words: str) -> np.uint64:
    digest = hashlib.blake2b("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest))
