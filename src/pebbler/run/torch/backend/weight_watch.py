"""Detection of weights that change between forward and backward, which would make recomputed values wrong.

Torch counts the changes of a tensor and refuses a backward that needs one as it was before. Changes through `.data` are not
counted. Eager code and `torch.compile` read saved values instead, so they get such a step right, as long as nothing is
computed again. A sum of all bits is compared, which reads the weights once after forward and once before backward: too long for
every step, so only some steps are checked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from pebbler.errors import PebblerError
from pebbler.run.torch.backend.kernels.step_arrays import VIEW
from pebbler.run.torch.backend.node_kinds import node_kind

__all__ = ["WeightWatch", "WeightsChanged", "inputs_read_again"]

_FIRST = 4  # steps in a row that are checked; then the 8th, the 16th, ...
_LONGEST_GAP = 1024
_WORD = 8  # bytes that are added up as one number


class WeightsChanged(PebblerError, RuntimeError):
    """A weight was changed between forward and backward, and values are to be computed again from it."""


def inputs_read_again(backward: fx.Graph) -> list[int]:
    """Return the places of the inputs that a backward graph computes values of forward from; gradients may read others.

    What depends on no gradient is a value of forward that runs again, views aside.
    """
    late: set[fx.Node] = set()
    places: dict[fx.Node, set[int]] = {}  # of inputs that a node is, or is a view of
    found: set[int] = set()
    for node in backward.nodes:
        if node.op == "placeholder":
            place = getattr(node.meta.get("desc"), "idx", None)
            places[node] = {place} if isinstance(place, int) and "primals" in node.target else set()
            if "tangents" in node.target:
                late.add(node)
        elif node.op == "call_function":
            read = set[int]().union(*(places.get(source, ()) for source in node.all_input_nodes))
            if not late.isdisjoint(node.all_input_nodes):
                late.add(node)
            elif node_kind(node) == VIEW:
                places[node] = read
            else:
                found |= read
    return sorted(found)


class WeightWatch:
    """The weights that the backward of one graph computes values from; `places` are theirs among the graph's arguments."""

    def __init__(self, graph: fx.Graph) -> None:
        self.names = [_input_name(node) for node in graph.find_nodes(op="placeholder")]
        self.places: Sequence[int] = ()
        self._began: int | None = None  # the step from which on these places are watched

    def compiled(self, places: Sequence[int]) -> None:
        """Watch other places from now on."""
        self.places, self._began = places, None

    def due(self, step: int) -> bool:
        """Return whether a step is one of those that are checked."""
        self._began = step if self._began is None else self._began
        count = step - self._began + 1
        return bool(self.places) and (count <= _FIRST or count & (count - 1) == 0 or count % _LONGEST_GAP == 0)

    def check_before(self, node: Any, args: Sequence[Any]) -> None:
        """Have the weights compared, as they are now, before autograd runs a node; raise `WeightsChanged` there if they differ."""
        watched = [(self.names[i], args[i]) for i in self.places if i < len(args) and _can_be_read(args[i])]
        before = _bit_sums([x for _, x in watched])

        def compare(_gradients: Any) -> None:
            there = [(name, x, bits) for (name, x), bits in zip(watched, before, strict=False) if _can_be_read(x)]
            watched.clear()  # so that they are held no longer than autograd holds them
            now = _bit_sums([x for _, x, _ in there])
            changed = [name for (name, _, bits), new in zip(there, now, strict=True) if bits != new]
            if changed:
                more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
                raise WeightsChanged(
                    f"{changed[0]}{more}: changed between forward and backward, for instance through .data. To keep the budget, "
                    "values are computed again from it, and gradients would be wrong. Change weights before forward or after "
                    "backward, or compile without a budget"
                )

        node.register_prehook(compare)


def _can_be_read(x: Any) -> bool:
    """Return whether a tensor is an ordinary one of floats, with its memory there: FSDP frees it between forward and backward."""
    plain = type(x) in (torch.Tensor, torch.nn.Parameter)
    return plain and x.is_floating_point() and x.layout == torch.strided and x.untyped_storage().nbytes() > 0


def _bit_sums(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return the sum of the bits of each tensor, in words; devices are waited for once."""
    with _disable_current_modes(), torch.no_grad():
        sums = [_bit_sum(x.detach()) for x in tensors]
        found: dict[torch.device, list[int]] = {}
        for device in {x.device for x in sums}:
            found[device] = torch.stack([x for x in sums if x.device == device]).tolist()[::-1]
        return [found[x.device].pop() for x in sums]


def _bit_sum(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of a tensor's words; nothing is copied where its numbers lie next to each other, in any order of its axes."""
    flat = x.permute(sorted(range(x.dim()), key=x.stride, reverse=True)).contiguous().view(-1)
    if flat.storage_offset() * flat.element_size() % _WORD:
        flat = flat.clone()
    whole = len(flat) - len(flat) % (_WORD // flat.element_size())
    rest = flat[whole:].to(torch.float64).view(torch.int64)
    return flat[:whole].view(torch.int64).sum() + rest.sum()


def _input_name(node: fx.Node) -> str:
    """Return the name of a graph's input as its user would write it, such as `layers.0.weight`."""
    source = getattr(node.meta.get("grapharg"), "source", None)
    name = source.name if source is not None else ""
    name = str(name() if callable(name) else name)
    parts = re.findall(r"_(?:modules|parameters|buffers)\['([^']+)'\]", name)
    return ".".join(parts) or name or node.name
