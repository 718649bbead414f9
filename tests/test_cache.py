"""Caches against brute-force twins, the notes' figures and their own laws."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import naive_cache as naive

from pebbler.cache import lru_energy

LEVELS = {"capacities": [64, 16384, 65536, None], "read_prices": [5, 20, 100, 640], "write_prices": [5, 20, 100, 640]}

touch_lists = st.integers(1, 12).flatmap(
    lambda m: st.lists(st.tuples(st.integers(0, m), st.booleans()), min_size=1, max_size=60)
)


@st.composite
def machines(draw: st.DrawFn) -> dict[str, list]:
    """One to four levels with whole prices, so that sums are exact."""
    bounded = draw(st.lists(st.integers(1, 6), max_size=3))
    prices = st.lists(st.integers(0, 50), min_size=len(bounded) + 1, max_size=len(bounded) + 1)
    return {"capacities": [*bounded, None], "read_prices": draw(prices), "write_prices": draw(prices)}


@settings(max_examples=200, deadline=None)
@given(touch_lists, machines(), st.booleans(), st.integers(1, 3))
def test_lru_energy_is_that_of_moving_lines_about(touches, machine, steady, line):
    items, writes = zip(*touches, strict=True)
    got = lru_energy(items, np.array(writes), **machine, line=line, steady=steady, detail=True)
    want = naive.lru_energy(
        touches, machine["capacities"][:-1], machine["read_prices"], machine["write_prices"], line, steady=steady
    )
    assert (got.read_energy, got.write_energy, got.write_back_energy) == want
    assert got.energy == sum(want)
    assert lru_energy(items, np.array(writes), **machine, line=line, steady=steady).energy == got.energy
    each = got.touches
    assert each.read.sum() == want[0]
    assert each.write.sum() == want[1]
    assert each.owned_write_back.sum() == want[2]
    assert (each.write_back.sum() == want[2]) if steady else (each.write_back.sum() <= want[2])
    assert not each.owned_write_back[~np.array(writes)].any()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=5, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=25),
    machines(),
    st.booleans(),
)
def test_runs_cost_what_their_lines_cost(sizes, touches, machine, steady):
    runs, writes = zip(*touches, strict=True)
    start = np.concatenate([[0], np.cumsum(sizes)])
    lines = [(int(start[r]) + k, w) for r, w in touches for k in range(sizes[r])]
    got = lru_energy(runs, np.array(writes), **machine, sizes=[sizes[r] for r in runs], steady=steady, detail=True)
    if not lines:
        assert got.energy == 0
        return
    whole = lru_energy([i for i, _ in lines], np.array([w for _, w in lines]), **machine, steady=steady, detail=True)
    assert (got.read_units, got.write_units) == (whole.read_units, whole.write_units)
    assert got.write_back_units == whole.write_back_units
    assert got.touches.owned_write_back.sum() == whole.touches.owned_write_back.sum()
