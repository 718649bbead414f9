"""Values that are computed again late: what Inductor's scheduler is told of the order."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch._inductor.scheduler import ForeachKernelSchedulerNode

from pebbler.run.torch.backend import recompute_order
from pebbler.run.torch.backend.dynamo_backend import pebbler

pytestmark = [
    pytest.mark.usefixtures("graphs"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]


def test_groups_of_nodes_are_known_to_what_depends_on_them(monkeypatch):
    """On GPUs the parts of a concatenation are a group before nodes fuse, and torch's own function ended with a KeyError."""
    note, met = recompute_order.note_ancestors, []

    def note_and_look(nodes, scheduler):
        scheduler.compute_ancestors()
        theirs = {node.get_name(): set(node.ancestors) for node in nodes}
        note(nodes, scheduler)
        assert {node.get_name(): set(node.ancestors) for node in nodes} == theirs
        grouped = group_first_pair(nodes, scheduler)
        if grouped:
            met.append(grouped)
            before, scheduler.nodes = scheduler.nodes, grouped
            with pytest.raises(KeyError):
                scheduler.compute_ancestors()
            note(grouped, scheduler)
            scheduler.nodes = before
            members = {name for node in grouped[:-1] if node.is_foreach() for name in node.get_operation_names()}
            for node in grouped:
                own = set().union(*(theirs[part.get_name()] for part in node.get_nodes()))
                assert own <= set(node.ancestors)
                if own & members:
                    group = next(other for other in grouped if other.is_foreach())
                    assert set(group.ancestors) <= set(node.ancestors)
            note(nodes, scheduler)

    monkeypatch.setattr(recompute_order, "note_ancestors", note_and_look)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32)) for _ in range(4)))
    x = torch.randn(256, 32)
    torch.compile(model, backend=pebbler, options={"budget": "least"})(x).square().mean().backward()
    assert met


def group_first_pair(nodes, scheduler):
    """Return nodes with two in a group that do not depend on one another and that a later one depends on, or nothing."""
    for first, (one, other) in enumerate(pairwise(nodes)):
        kernels = not one.is_extern() and not other.is_extern()
        used = any({one.get_name(), other.get_name()} & set(node.ancestors) for node in nodes[first + 2 :])
        if kernels and used and one.get_name() not in other.ancestors:
            group = ForeachKernelSchedulerNode(scheduler, [one, other], use_custom_partition_algo=False)
            return [*nodes[:first], group, *nodes[first + 2 :]]
    return []
