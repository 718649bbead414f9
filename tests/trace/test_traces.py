"""Traces: the value and its granularities."""

from __future__ import annotations

import numpy as np
import pytest

from pebbler.errors import InputError
from pebbler.trace.traces import Trace


def small() -> Trace:
    return Trace(
        np.array([0, 1, 2, 3, 16, 16]),
        np.array([False, False, False, False, True, False]),
        np.array([0, 0, 0, 0, 1, 1]),
        np.array([0, 0, 0, 0, 0, 1]),
        ("W1", "h", "unused"),
        ("fwd", "bwd"),
    )


def test_dtypes_are_those_of_the_format():
    trace = small()
    assert [str(column.dtype) for column in trace.columns()[:4]] == ["int64", "bool", "int32", "int32"]
    with pytest.raises(ValueError, match="read-only"):
        trace.address[0] = 5
    assert (len(trace), trace.distinct) == (6, 5)


def test_granularities():
    trace = small()
    assert trace.lines(16).address.tolist() == [0, 0, 0, 0, 1, 1]
    merged = trace.lines(2, merge=True)
    assert (merged.address.tolist(), merged.write.tolist()) == ([0, 1, 8, 8], [False, False, True, False])
    whole = trace.tensors()
    assert whole.address.tolist() == whole.tensor.tolist() == [0, 1, 1]
    assert whole.op.tolist() == [0, 0, 1]


def test_joining_matches_names():
    one = Trace(np.array([1]), np.array([True]), np.array([0]), np.array([0]), ("a",), ("f",))
    two = Trace(np.array([2, 3]), np.array([False, True]), np.array([0, 1]), np.array([0, 0]), ("b", "a"), ("f",))
    both = Trace.joined([one, two])
    assert [both.tensor_names[i] for i in both.tensor] == ["a", "b", "a"]
    assert both.op_names == ("f",)


# Wrong files


@pytest.mark.parametrize(
    ("addresses", "message"),
    [
        ([], "an empty trace"),
        ([1, -2], r"address\[1\] is -2"),
        ([1.0, 2.0], "dtype float64"),
        ([True], "dtype bool"),
        (["a"], "dtype <U1"),
        ([[1]], "shape"),
        (np.array([2**63], dtype=np.uint64), "9223372036854775808"),
    ],
)
def test_wrong_addresses(addresses, message):
    with pytest.raises(InputError, match=message):
        Trace.of_addresses(addresses)


def test_wrong_values():
    with pytest.raises(InputError, match="write has shape"):
        Trace.of_addresses([1, 2], write=[True])
    with pytest.raises(InputError, match="write has dtype int64"):
        Trace.of_addresses([1], write=[1])
    with pytest.raises(InputError, match="beyond 32 bits"):
        Trace(np.array([1]), np.array([True]), np.array([2**40]), np.array([0]), ("a",), ("f",))
    with pytest.raises(InputError, match="lines of 0"):
        small().lines(0)
    with pytest.raises(InputError, match="no traces"):
        Trace.joined([])
