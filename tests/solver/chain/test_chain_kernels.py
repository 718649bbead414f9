"""The chain kernels against the recurrences written out plainly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive_chain import naive_blue_chain, naive_levels, naive_segments
from pebbler.solver.chain.kernels import general_table as general
from pebbler.solver.chain.kernels import uniform_table as uniform
from pebbler.solver.chain.kernels.general_table import stored_bases


def far(values):
    return [np.inf if value >= uniform.FAR else value for value in values.tolist()]


@settings(max_examples=40)
@given(st.integers(1, 16), st.integers(0, 7), st.booleans())
def test_uniform_levels(n, red, adjoint):
    red += 0 if adjoint else 2
    wanted = naive_levels([0] + [1] * n, red, adjoint)
    drop, keep, _, _ = uniform.uniform_levels(n, red, adjoint)
    assert far(keep) == [wanted.get(("keep", red, 0, t), np.inf) for t in range(n)]
    assert far(drop) == [wanted.get(("drop", red, 0, t), np.inf) for t in range(n)]


@settings(max_examples=60)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=14), st.integers(0, 6), st.booleans(), st.booleans())
def test_general_levels_with_equal_sizes(steps, red, adjoint, thorough):
    red += 0 if adjoint else 2
    n = len(steps)
    wanted = naive_levels([0, *steps], red, adjoint)
    prefix = np.concatenate([[0.0], np.cumsum(steps)])
    sizes = np.ones(n + 1, np.int64)
    leaves = general.plain_leaves(sizes, prefix, red, adjoint)
    drop, keep, _, _ = general.general_levels(sizes, prefix, leaves, red, adjoint, True, thorough, 1e-9, True)
    for name, found in (("drop", drop), ("keep", keep)):
        assert found.tolist() == [wanted.get((name, red, s, t), np.inf) for t in range(n) for s in range(t + 1)]


@settings(max_examples=60)
@given(
    st.integers(1, 60),
    st.integers(0, 6),
    st.booleans(),
    st.integers(0, 4),
    st.sampled_from([0.5, 1, 3, 10, 33]),
    st.integers(0, 40),
)
def test_blue_segments_and_chains(n, red, adjoint, compute, load, store):
    red += 0 if adjoint else 2
    drop, keep, _, _ = uniform.uniform_levels(n, red, adjoint)
    sweep_keeps = adjoint or red >= 3
    segment, _ = uniform.blue_segments(float(compute), float(load), drop, keep, sweep_keeps)
    # 0 x infinity has no meaning: where steps are free, out of reach is still out of reach.
    unit = compute or 1e-12
    wanted = naive_segments(unit, load, far(drop), far(keep), sweep_keeps)
    assert segment.tolist() == pytest.approx(wanted, abs=1e-6)
    total, top = uniform.blue_chain(float(store), segment)
    assert total.tolist() == pytest.approx(naive_blue_chain(store, segment.tolist()))
    assert all(1 <= top[t] <= t for t in range(1, n + 1))


@settings(max_examples=30)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.integers(2, 6), st.integers(0, 20), st.integers(0, 20))
def test_stored_bases_agree_with_uniform_chains(steps, red, store, load):
    """On a uniform chain the general kernel and the uniform ones must find the same cost of every stored prefix."""
    n, step = len(steps), float(steps[0])
    prefix = step * np.arange(n + 1.0)
    sizes = np.ones(n + 1, np.int64)
    leaves = general.plain_leaves(sizes, prefix, red, False)
    drop, keep, _, _ = general.general_levels(sizes, prefix, leaves, red, False, True, True, 1e-9, True)
    found, _, _ = stored_bases(
        sizes,
        prefix,
        leaves.width,
        red,
        False,
        np.full(n + 1, float(store)),
        np.full(n + 1, float(load)),
        drop,
        keep,
        True,
    )
    uniform_drop, uniform_keep, _, _ = uniform.uniform_levels(n, red, False)
    segment, _ = uniform.blue_segments(step, float(load), uniform_drop, uniform_keep, red >= 3)
    total, _ = uniform.blue_chain(float(store), segment)
    assert found.tolist() == pytest.approx(total.tolist())


@given(st.lists(st.integers(1, 4), min_size=2, max_size=8), st.integers(0, 14), st.booleans())
def test_reach_table(sizes, memory, with_base):
    size = np.array(sizes, np.int64)
    width = size[:-1] + size[1:]
    table = general.reach_table(size, width, width, memory, with_base)
    for s, m in np.ndindex(table.shape):
        z = s
        while z + 1 < len(sizes):
            held = {s, z, z + 1} if with_base else {z, z + 1}
            if sum(sizes[k] for k in held) > m:
                break
            z += 1
        assert table[s, m] == z
