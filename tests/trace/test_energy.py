"""The `lru` price rule against moving lines about, and the two figures of the design."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_cache as naive
from pebbler.errors import InputError
from pebbler.trace import energy
from pebbler.trace.energy import lru_energy

NOTES = {"capacities": [64, 16384, 65536, None], "read_prices": [5, 20, 100, 640], "write_prices": [5, 20, 100, 640]}

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
@given(touch_lists, machines(), st.booleans(), st.integers(1, 3), st.booleans())
def test_energy_is_that_of_moving_lines_about(touches, machine, steady, line, one_unit):
    items, writes = zip(*touches, strict=True)
    wrote = np.array(writes)
    units = [1] * len(items) if one_unit else None
    options = {"line": line, "steady": steady, "units": units}
    got = lru_energy(items, wrote, **machine, **options, detail=True)
    prices = (machine["read_prices"], machine["write_prices"])
    want = naive.lru_energy(touches, machine["capacities"][:-1], *prices, line, units, steady)
    assert (got.read_energy, got.write_energy, got.write_back_energy) == want
    assert got.energy == sum(want) == lru_energy(items, wrote, **machine, **options).energy
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(energy, "FEW_TOUCHES", 0)
        assert lru_energy(items, wrote, **machine, **options).energy == got.energy
    each = got.touches
    assert each.read.sum() == want[0]
    assert each.write.sum() == want[1]
    assert each.owned_write_back.sum() == want[2]
    assert (each.write_back.sum() == want[2]) if steady else (each.write_back.sum() <= want[2])
    assert not each.owned_write_back[~wrote].any()


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
    options = {"sizes": [sizes[r] for r in runs], "steady": steady}
    got = lru_energy(runs, np.array(writes), **machine, **options, detail=True)
    assert lru_energy(runs, np.array(writes), **machine, **options).write_back_units == got.write_back_units
    if not lines:
        assert got.energy == 0
        return
    whole = lru_energy([i for i, _ in lines], np.array([w for _, w in lines]), **machine, steady=steady, detail=True)
    assert (got.read_units, got.write_units) == (whole.read_units, whole.write_units)
    assert got.write_back_units == whole.write_back_units
    assert got.touches.owned_write_back.sum() == whole.touches.owned_write_back.sum()


HIDDEN, BITS = 1000, 20
# The notes' ops in program order, reads in the order of their code; an update writes the parameter itself.
OPS = [
    ("W1 x b1", "h_pre"),
    ("h_pre", "h"),
    ("W2 h b2", "y_hat"),
    ("y_hat y", "loss"),
    ("loss y_hat y", "dy"),
    ("dy h", "dW2"),
    ("dy", "db2"),
    ("W2 dy", "dh"),
    ("dh h_pre", "dh_pre"),
    ("dh_pre x", "dW1"),
    ("dh_pre", "db1"),
    ("W1 dW1", "W1"),
    ("b1 db1", "b1"),
    ("W2 dW2", "W2"),
    ("b2 db2", "b2"),
]
SCALARS = ("y", "b2", "y_hat", "loss", "dy", "db2")


def size_of(name: str, hidden: int = HIDDEN) -> int:
    if name in SCALARS:
        return 1
    return {"x": BITS, "W1": BITS * hidden, "dW1": BITS * hidden}.get(name, hidden)


def price(touches: list[tuple[str, bool, int]], **options) -> energy.LruEnergy:
    """Energy of (name, write, size) touches on the notes' levels."""
    names = sorted({name for name, _, _ in touches})
    items = [names.index(name) for name, _, _ in touches]
    sizes = [size for _, _, size in touches]
    return lru_energy(items, np.array([write for _, write, _ in touches]), **NOTES, sizes=sizes, **options)


def program_order() -> list[tuple[str, bool, int]]:
    return [(name, place == 1, size_of(name)) for op in OPS for place, names in enumerate(op) for name in names.split()]


def test_program_order_costs_12_843_uj():
    result = price(program_order(), steady=True)
    assert result.energy == 12_843_490
    assert (result.read_energy, result.write_energy, result.write_back_energy) == (6_842_865, 240_025, 5_760_600)


def test_program_order_by_units_is_the_same():
    touches = program_order()
    start = dict(zip(sorted({t[0] for t in touches}), range(0, 10**6, 40_000), strict=False))
    units = np.concatenate([start[name] + np.arange(size) for name, _, size in touches])
    writes = np.concatenate([np.full(size, write) for _, write, size in touches])
    assert lru_energy(units, writes, **NOTES, steady=True).energy == 12_843_490
    assert lru_energy(units, writes, **NOTES).energy == price(touches).energy


def hand_made(tile: int = 10) -> list[tuple[str, bool, int]]:
    """The design's hand-made schedule, in one of the op orders that give its figure (docs/caches.md says how it was found)."""
    touches = []

    def op(reads: str, writes: str, at: int = 0) -> None:
        for place, names in enumerate((reads, writes)):
            for name in names.split():
                # The temps of a backward tile live in one buffer each; all else has its own addresses for every tile.
                shared = name in ("x", "dh", "dh_pre", "dW2", "db1", *SCALARS)
                touches.append((name if shared else f"{name}.{at}", place == 1, size_of(name, tile)))

    tiles = range(HIDDEN // tile)
    for at in tiles:
        op("W1 x b1", "h_pre", at)
        op("h_pre", "h", at)
        op("W2 h y_hat" if at else "W2 h b2", "y_hat", at)
    op("y_hat y", "loss")
    op("loss y_hat y", "dy")
    op("dy", "db2")
    for at in reversed(tiles):
        op("dy h", "dW2", at)
        op("W2 dy", "dh", at)
        op("W2 dW2", "W2", at)
        op("dh h_pre", "dh_pre", at)
        op("dh_pre", "db1", at)
        op("b1 db1", "b1", at)
        op("dh_pre x W1", "W1", at)
    op("b2 db2", "b2")
    return touches


def test_hand_made_schedule_costs_4_458_uj():
    assert round(price(hand_made(), steady=True).energy / 1e6, 3) == 4.458


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"items": []}, "no touches"),
        ({"items": [-1, 0]}, "must not be negative"),
        ({"items": [0.0, 1.0]}, "whole numbers"),
        ({"writes": [True]}, "expected 2"),
        ({"writes": [1, 0]}, "true or false"),
        ({"sizes": [1, 2], "items": [4, 4]}, "touch 0 has 1 lines, another touch of its item 2"),
        ({"sizes": [-1, 2]}, "sizes must not be negative"),
        ({"capacities": [0, None]}, "level 0: capacity must be a whole number of at least 1, got 0"),
        ({"capacities": [None, None]}, "level 0: capacity"),
        ({"capacities": [1]}, "one entry per level, got 1, 2 and 2"),
        ({"read_prices": [1, -2]}, "not negative"),
        ({"write_prices": [1, float("nan")]}, "finite"),
        ({"line": 0}, "line must be at least 1"),
    ],
)
def test_wrong_input_is_named(change, message):
    right = {
        "items": [1, 2],
        "writes": [True, False],
        "capacities": [1, None],
        "read_prices": [1, 2],
        "write_prices": [1, 2],
    }
    with pytest.raises(InputError, match=message):
        lru_energy(**{**right, **change})
