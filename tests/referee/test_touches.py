"""Addresses: both allocators, against a twin with a Python list of free blocks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import naive_allocator
import pebbler as pb
from pebbler.referee.touches import touch
from strategies import generators, programs, random_graph, random_order


@given(programs(), st.integers(1, 4))
def test_reuse_is_its_twin(program: tuple[pb.Graph, list[int]], line: int) -> None:
    graph, order = program
    assert touch(graph, order, "reuse", line).address.tolist() == naive_allocator.reuse(graph, order, line)


@given(generators, st.integers(1, 3))
def test_reuse_is_its_twin_where_tensors_share_storage(rng, line: int) -> None:
    graph = random_graph(rng, 12)
    order = random_order(rng, graph)
    assert touch(graph, order, "reuse", line).address.tolist() == naive_allocator.reuse(graph, order, line)


@given(programs(), st.integers(1, 3))
def test_reuse_never_gives_two_live_values_one_address(program: tuple[pb.Graph, list[int]], line: int) -> None:
    """Run the order on a plain memory of addresses: every read must find what was last written for that tensor."""
    graph, order = program
    flow = graph.dataflow
    touches = touch(graph, order, "reuse", line)
    memory: dict[int, tuple[int, int]] = {}
    stamp = {int(t): 0 for t in range(len(graph.tensors))}
    started = {int(flow.storage[t]) for t in np.flatnonzero(flow.start_value >= 0)}
    for i in range(len(touches.address)):
        root = int(flow.storage[touches.tensor[i]])
        for unit in range(int(touches.address[i]), int(touches.address[i] + touches.units[i])):
            if touches.write[i]:
                memory[unit] = (root, i)
            elif unit in memory or root not in started:
                assert memory[unit] == (root, stamp[root])
        if touches.write[i]:
            stamp[root] = i


def test_reuse_takes_less_memory_than_own_addresses() -> None:
    graph = pb.workloads.mlp(n=20, hidden=100)
    order = np.arange(len(graph.ops))
    extent = {}
    for allocator in ("own", "reuse"):
        touches = touch(graph, order, allocator)
        extent[allocator] = int((touches.address + touches.units).max())
    live = sum(t.size for t in graph.tensors if t.kind != "temp") + graph.tensor_named("dW1").size
    assert live <= extent["reuse"] < extent["own"] == sum(t.size for t in graph.tensors)
