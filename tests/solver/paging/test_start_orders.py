"""Orders to start a search from."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from naive_game import random_game
from pebbler.solver.paging.start_orders import start_orders

seeds = st.integers(0, 10**9)


@settings(max_examples=60)
@given(seeds)
def test_starting_orders_respect_every_hazard(seed: int) -> None:
    graph = random_game(random.Random(seed), max_ops=12).graph
    before = graph.dataflow.predecessors()
    for order in start_orders(graph):
        position = {op: i for i, op in enumerate(order.tolist())}
        assert sorted(position) == list(range(len(graph.ops)))
        assert all(position[a] < position[b] for b, earlier in enumerate(before) for a in earlier)
