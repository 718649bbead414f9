"""A sequence of ops on one level, played forward with sets: the slow twin of the kernel `sequence_memory.measure`."""

from __future__ import annotations

from collections.abc import Sequence

from pebbler.game.graph import Graph


def memory_of(graph: Graph, sequence: Sequence[int]) -> list[int] | None:
    """The units held at every run when each copy is kept exactly as long as it is read; None if some read finds nothing."""
    flow = graph.dataflow
    reads = [set(row.tolist()) for row in flow.op_reads]
    writes = [set(row.tolist()) for row in flow.op_writes]
    destroys = [set(row.tolist()) for row in flow.op_destroys]
    survive = {v for v in range(flow.values) if flow.value_must_survive[v]}
    if set(sequence) != set(range(flow.ops)):
        return None

    def wanted(value: int, after: int) -> bool:
        """Whether the copy that is there after run `after` is read, or must be there at the end."""
        for op in sequence[after + 1 :]:
            if value in reads[op]:
                return True
            if value in writes[op]:
                return False
        return value in survive

    there = {v for v in range(flow.values) if flow.value_maker[v] < 0}
    ran: set[int] = set()
    held = []
    there = {v for v in there if wanted(v, -1)}
    for at, op in enumerate(sequence):
        if op in ran and (flow.op_once[op] or destroys[op]):
            return None
        if any(flow.value_destroyer[w] in ran for w in writes[op]) or not reads[op] <= there:
            return None
        ran.add(op)
        for value in destroys[op]:
            readers = set(flow.value_readers.row(value).tolist())
            if not readers <= ran or (flow.value_maker[value] >= 0 and flow.value_maker[value] not in ran):
                return None
        there = there - destroys[op] | writes[op]
        held.append(sum(int(flow.value_size[v]) for v in there))
        there = {v for v in there if wanted(v, at)}
    return held if survive <= there else None
