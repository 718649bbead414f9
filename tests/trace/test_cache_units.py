"""Traces of elements on machines that count bytes."""

from __future__ import annotations

import numpy as np
import pytest

from pebbler.errors import InputError
from pebbler.game.machine import machine
from pebbler.trace import Trace, analyse, record, tracked


@pytest.mark.parametrize(("dtype", "lines"), [("float64", 512), ("float32", 256), ("uint8", 64)])
def test_elements_of_recorded_arrays_fill_as_many_lines_as_their_bytes(tmp_path, dtype, lines):
    with record() as recorder:
        tracked(np.ones(4096, dtype), "a").sum()
    recorder.trace().save(tmp_path / "t.npz")
    found = analyse(tmp_path / "t.npz", [1], machine=machine("laptop"))
    assert found.distinct == lines
    in_bytes = np.arange(4096 * np.dtype(dtype).itemsize)
    assert found.energy == analyse(Trace.of_addresses(in_bytes, unit_bytes=1), machine=machine("laptop")).energy


def test_elements_of_several_sizes_are_not_placed_in_lines():
    with record() as recorder:
        _ = tracked(np.ones(64), "a") > 0
    assert analyse(recorder.trace()).accesses == 128
    with pytest.raises(InputError, match="elements of several sizes"):
        analyse(recorder.trace(), machine=machine("laptop"))


def test_what_has_no_bytes_is_not_priced_in_bytes():
    with pytest.raises(InputError, match="red-blue counts pebble"):
        analyse(Trace.of_addresses([1], unit_bytes=8), machine=machine("red-blue"))
    with pytest.raises(InputError, match="do not fill the lines"):
        analyse(Trace.of_addresses([1], unit_bytes=24), machine=machine("laptop"))
