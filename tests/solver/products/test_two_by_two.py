"""The smallest product, solved completely."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.two_by_two import CHEAPEST, exchanges, prove, starts, still

from naive_cells import product_cost


@pytest.mark.slow
def test_the_record_is_the_optimum() -> None:
    program = (Path(__file__).parents[3] / "examples" / "records" / "2x2x2.ir").read_text()
    assert prove(57)["optimum"] is None
    assert prove(58)["optimum"] == 58 == product_cost(program, 2, 2, 2)


def test_exchanges_are_a_group_of_sixteen() -> None:
    group = {tuple(change) for change in exchanges().tolist()}
    assert len(group) == 16
    assert all(sorted(one) == list(range(20)) for one in group)
    assert all(tuple(np.array(one)[list(other)].tolist()) in group for one in group for other in group)


@pytest.mark.slow
def test_what_must_still_be_paid_of_a_start() -> None:
    # By hand: one element at distance 1, three at 2, four at 3, each needed twice; four additions; four results at the end.
    nearest = np.array([1, 2, 2, 2, 4, 4, 4, 4] + [0] * 12)
    assert still.py_func(nearest, CHEAPEST) == 2 + 3 * 4 + 4 * 5 + 4 * 3 + 7
    assert min(still.py_func(start, CHEAPEST) for start in starts()[:2000]) >= 53
