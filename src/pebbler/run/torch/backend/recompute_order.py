"""The place of recomputed values: where torch's partitioner has put them, just before the gradient that needs them.

They depend on saved values alone, so Inductor may fuse and run those of all layers at the start of backward, where they are held
for long. A pass before fusion tells its scheduler that such a node comes after the last product of gradients that stands before
it: torch's own fake dependencies say so, which order nodes and hold no memory.

Private in torch, the same in 2.11 and 2.13: `config._pre_fusion_custom_pass`, `add_fake_dep`, `WeakDep`, `unmet_dependencies`,
`name_to_buf`, `ancestors`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

__all__ = ["recompute_late"]

_TANGENTS = "tangents"  # the beginning of the names of backward's gradients, as AOTAutograd calls them


@contextmanager
def recompute_late(wanted: bool) -> Iterator[None]:
    """Have graphs that are compiled meanwhile compute values again as late as they are written."""
    from torch._inductor import config

    with config.patch({"_pre_fusion_custom_pass": _order_pass()} if wanted else {}):
        yield


@cache
def _order_pass() -> Any:
    from torch._inductor import custom_graph_pass

    base: Any = getattr(custom_graph_pass, "CustomSchedulerPass", custom_graph_pass.CustomGraphPass)  # before 2.13

    class OrderPass(base):  # type: ignore[misc]
        """Calls `order_nodes`; Inductor's caches ask for its key."""

        def __call__(self, nodes: list[Any]) -> list[Any]:
            return order_nodes(nodes)

        def uuid(self) -> str:
            return "pebbler computes again late 1"

    return OrderPass()


def order_nodes(nodes: list[Any]) -> list[Any]:
    """Let recomputed nodes wait for the last product of gradients that stands before them."""
    from torch._inductor.dependencies import WeakDep
    from torch._inductor.virtualized import V

    late: set[str] = {name for name in V.graph.graph_inputs if name.startswith(_TANGENTS)}
    anchor: str | None = None
    waits = False
    for node in nodes:
        if any(dep.name in late for dep in node.read_writes.reads):
            late.update(node.get_buffer_names())
            outputs = [buf.get_name() for buf in node.get_outputs()]
            if node.is_extern() and outputs:
                anchor = outputs[0]
        elif anchor is not None and not node.is_foreach():
            node.add_fake_dep(WeakDep(anchor, node.get_name(), is_fake=True))  # as torch's control dependencies do
            waits = True
    if waits:
        note_ancestors(nodes, V.graph.scheduler)
    return nodes


def note_ancestors(nodes: Sequence[Any], scheduler: Any) -> None:
    """Have every node know what must run before it, as the scheduler's own `compute_ancestors` does.

    Its own knows no groups of nodes, and on GPUs the parts of a concatenation are one by the time of this pass.
    """
    from torch.utils._ordered_set import OrderedSet

    known: dict[str, Any] = {}
    for node in nodes:
        parts = node.get_nodes()
        for part in parts:
            part.ancestors = OrderedSet()
            for dep in part.unmet_dependencies:
                op = scheduler.name_to_buf[dep.name].defining_op_name()
                part.ancestors |= OrderedSet([op, *known.get(op, ())])
        node.ancestors = OrderedSet(op for part in parts for op in part.ancestors)
        known |= {part.get_name(): node.ancestors for part in parts}
