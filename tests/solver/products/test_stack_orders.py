"""ByteDMD of products in other orders: the instructions against recorded ones, the bound against random orders."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from benchmarks.bytedmd import matrix_product
from benchmarks.bytedmd_orders import product_program, search, stack_bound

from pebbler.trace.scalar_program import trace_scalars


def box(n: int) -> np.ndarray:
    return np.array(list(product(range(n), repeat=3)))


@pytest.mark.parametrize(("n", "cost"), [(2, 57), (4, 720), (8, 8867), (16, 109_783)])
def test_the_naive_order_is_the_metrics_own(n: int, cost: int) -> None:
    assert product_program(np.arange(n**3), box(n)).cost() == cost


def test_instructions_are_those_of_a_recording() -> None:
    matrix = [[1.0] * 3 for _ in range(3)]
    recorded = trace_scalars(matrix_product, matrix, matrix)
    made = product_program(np.arange(27), box(3))
    assert (list(made.left), list(made.right)) == (list(recorded.left), list(recorded.right))
    assert sorted(made.returned) == sorted(recorded.returned)


def test_no_order_is_below_the_bound() -> None:
    for n, count in ((2, 300), (3, 300), (5, 40)):
        least = stack_bound(n)
        for seed in range(count):
            order = np.array(random.Random(seed).sample(range(n**3), n**3))
            forms = bool(seed % 2), bool(seed // 2 % 2)
            assert product_program(order, box(n), forms).cost() >= least


def test_the_search_finds_better_orders() -> None:
    found = search(6, 0.0)
    assert found["bound"] <= found["best"] < found["naive"]
