"""A summary of a graph in a few numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from pebbler.game.graph import Graph
from pebbler.game.orders import count_orders

__all__ = ["Summary", "summarise"]


@dataclass(frozen=True)
class Summary:
    """Counts of a graph's tensors, ops, hazards and legal orders (None: too many to count)."""

    name: str
    unit: str
    tensors: int
    ops: int
    kinds: dict[str, tuple[int, int]]  # per kind: tensors, units
    hazards: dict[str, int]
    orders: int | None
    orders_without_war: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as `pebbler graph --json` prints it."""
        kinds = {kind: {"tensors": count, "size": units} for kind, (count, units) in self.kinds.items()}
        result = {"name": self.name, "unit": self.unit, "tensors": self.tensors, "ops": self.ops, "kinds": kinds}
        # Python, like most readers of JSON, refuses whole numbers of more than some 4,300 digits.
        written = [
            count if count is not None and count.bit_length() < 14_000 else None
            for count in (self.orders, self.orders_without_war)
        ]
        counts = dict(zip(("legal_orders", "orders_without_war"), written, strict=True))
        return result | {"hazard_counts": self.hazards} | counts


def summarise(graph: Graph) -> Summary:
    """Return the numbers of a graph.

    >>> from pebbler.workloads import note_mlp
    >>> summarise(note_mlp()).orders
    7290
    """
    kinds = {}
    for kind in ("input", "param", "temp", "output"):
        sizes = [tensor.size for tensor in graph.tensors if tensor.kind == kind]
        if sizes:
            kinds[kind] = (len(sizes), sum(sizes))
    found = Counter(hazard.kind for hazard in graph.dataflow.hazards())
    return Summary(
        graph.name, graph.unit, len(graph.tensors), len(graph.ops), kinds,
        {kind: found.get(kind, 0) for kind in ("RAW", "WAR", "WAW")},
        count_orders(graph), count_orders(graph, war=False),
    )  # fmt: skip
