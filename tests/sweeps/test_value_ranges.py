"""Amounts and ranges, against a plain reading of the same text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pebbler.errors import InputError
from pebbler.sweeps.value_ranges import Amount, amounts_of, whole_numbers_of


@given(st.integers(1, 500), st.integers(0, 200), st.integers(1, 50))
def test_steps_are_those_of_range(low, more, step):
    found = amounts_of(f"{low}..{low + more}+{step}", "c")
    assert [amount.value for amount in found] == list(range(low, low + more + 1, step))


@given(st.integers(1, 500), st.integers(0, 100_000), st.integers(2, 10))
def test_factors_multiply(low, more, factor):
    wanted = []
    while low * factor ** len(wanted) <= low + more:
        wanted.append(low * factor ** len(wanted))
    assert whole_numbers_of(f"{low}..{low + more}x{factor}", "c") == wanted


@given(st.lists(st.integers(1, 10**9), min_size=1))
def test_lists_keep_their_order_and_lose_what_comes_twice(numbers):
    text = ",".join(map(str, numbers))
    assert [int(amount.value) for amount in amounts_of(text, "c")] == list(dict.fromkeys(numbers))
    assert amounts_of(numbers, "c") == amounts_of(text, "c")


def test_bytes_shares_and_units():
    assert amounts_of("64KiB, 1kB,25%", "c") == [Amount(65536, "bytes"), Amount(1000, "bytes"), Amount(0.25, "share")]
    assert [amount.value for amount in amounts_of("1MiB..4MiBx2", "c")] == [2**20, 2**21, 2**22]
    assert [amount.value for amount in amounts_of("10%..30%+10%", "c")] == [0.1, 0.2, 0.3]
    assert Amount(0.1, "share").units("pebble", 30) == 3  # not 4: 0.1 x 30 is a hair above 3
    assert Amount(0.001, "share").units("pebble", 30) == 1
    with pytest.raises(InputError, match="no bytes"):
        Amount(64, "bytes").units("pebble", 30)


@pytest.mark.parametrize(
    "text",
    ["", ",", "x", "0", "-3", "1..", "..4", "4..1", "1..8x1", "1..8x0.5", "1..8+0", "1..8+-1", "10%..20", "1..8x2x2", "1.5",
     "1..10000000", "1e5", "nan", "inf", "١", "5%..50%", "1KiB..4KiB+1", "1..1e999x2", True, None, 3.5, [], [[None]], {}],
)  # fmt: skip
def test_anything_else_is_refused_by_name(text):
    with pytest.raises(InputError, match=r"^capacity of L1: "):
        amounts_of(text, "capacity of L1")
