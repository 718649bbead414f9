"""Pricing by recency rank, held against its slow twin and against note 000's table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import naive_recency
from pebbler.game.machine import machine
from pebbler.game.plan import Plan
from pebbler.notes import note_order
from pebbler.referee.judgement import check
from pebbler.referee.pricing import price_recency
from pebbler.workloads import note_mlp
from strategies import generators, random_cache_machine, random_graph, random_order

PUBLISHED = {  # pJ: register, L1, L2, HBM
    "standard": (50, 300_040, 10_704_400, 0),
    "fused": (50, 340_080, 10_504_200, 0),
    "perlayer": (50, 340_080, 10_504_200, 0),
    "optimal": (55, 360_060, 10_404_200, 0),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_note_000_by_level(name):
    graph = note_mlp()
    books = price_recency(graph, machine("notes-recency"), np.array([graph.op_index(op) for op in note_order(name)]))
    assert tuple(books.by_level) == PUBLISHED[name]
    assert naive_recency.price(graph, machine("notes-recency"), note_order(name)) == dict(
        zip(["register", "L1", "L2", "HBM"], PUBLISHED[name], strict=True)
    )


@given(generators)
def test_the_kernel_is_its_twin(rng):
    graph = random_graph(rng, 10)
    small = random_cache_machine(rng, "recency")
    order = [graph.ops[op].name for op in random_order(rng, graph, war=rng.random() < 0.5)]
    for _ in range(rng.randint(0, 2)):  # some ops again, where that is legal
        order.insert(rng.randint(0, len(order)), rng.choice(order))
    judgement = check(Plan.in_order(graph, small, order), ignore_war=True)
    if judgement.legal:
        assert judgement.levels == naive_recency.price(graph, small, order)


def test_bytes_cost_what_floats_cost():
    floats = machine("notes-recency")
    graph = note_mlp()
    order = np.arange(15)
    # A machine given per byte is the same machine: four bytes make a float.
    assert price_recency(graph, floats.in_unit("byte"), order).by_level.sum() == 11_004_490
