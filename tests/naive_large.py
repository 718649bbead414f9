"""Slow twins of the kernels for large graphs, straight from what they say they return."""

from __future__ import annotations

from pebbler.game.bit_sets import members
from pebbler.game.graph import Graph


def kept_units_of(graph: Graph) -> list[int]:
    """Per op: the units of values that cannot be made again, exist before it in every order and are needed after it."""
    flow = graph.dataflow
    found = []
    for op in range(flow.ops):
        units = 0
        earlier, later = set(members(flow.ancestors[op])), set(members(flow.descendants[op]))
        for value in range(flow.values):
            maker, readers = int(flow.value_maker[value]), set(flow.value_readers.row(value).tolist())
            there = maker < 0 or maker in earlier
            needed = bool(flow.value_must_survive[value]) or bool(readers & later)
            if there and needed and op not in readers and not flow.value_can_be_remade[value]:
                units += int(flow.value_size[value])
        found.append(units)
    return found


def moves_of(graph: Graph, sequence: list[int]) -> list[tuple[str, ...]]:
    """The moves of a legal sequence on one level `fast`: each value is dropped once no run reads it before it is made again."""
    flow = graph.dataflow

    def wanted(value: int, after: int) -> bool:
        for op in sequence[after + 1 :]:
            if value in flow.op_reads.row(op):
                return True
            if value in flow.op_writes.row(op):
                return False
        return bool(flow.value_must_survive[value])

    def name(value: int) -> str:
        return flow.tensor_names[flow.value_tensor[value]]

    there = {v for v in range(flow.values) if flow.value_maker[v] < 0}
    moves: list[tuple[str, ...]] = []
    for at in range(-1, len(sequence)):
        touched = sorted(there)
        if at >= 0:
            op = sequence[at]
            moves.append(("compute", flow.op_names[op]))
            there -= set(flow.op_destroys.row(op).tolist())
            there |= set(flow.op_writes.row(op).tolist())
            touched = sorted(there)
        for value in touched:
            if not wanted(value, at):
                moves.append(("drop", name(value), "fast"))
                there.remove(value)
    return moves
