"""Matrix products element by element."""

from __future__ import annotations

import numpy as np
import pytest

from pebbler.errors import InputError
from pebbler.game.machine import machine
from pebbler.game.plan import Plan
from pebbler.run.numbers import execute
from pebbler.workloads import get, matmul


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 3, 1), (2, 3, 4), (3, 1, 2)])
def test_it_is_the_product(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    graph = matmul(*sizes)
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (m, k)), rng.integers(-9, 9, (k, n))
    values = {f"A_{i}_{x}": a[i, x] for i in range(m) for x in range(k)}
    values |= {f"B_{x}_{j}": b[x, j] for x in range(k) for j in range(n)}
    found = execute(Plan.in_order(graph, machine("bytedmd")), values)
    assert [[int(found[f"C_{i}_{j}"]) for j in range(n)] for i in range(m)] == (a @ b).tolist()
    assert len(graph.ops) == m * n * k + m * n * (k - 1) + 1


def test_it_has_a_spec_and_limits() -> None:
    assert len(get("matmul:m=2,n=3,k=4").ops) == 24 + 18 + 1
    with pytest.raises(InputError, match="at most 100,000"):
        matmul(100, 100, 100)
    with pytest.raises(InputError, match="m must be a whole number"):
        matmul(0, 1, 1)
