"""The trace of an order, unit by unit and in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pebbler as pb
from pebbler.errors import InputError
from pebbler.referee.touches import touch
from pebbler.trace.plan_trace import trace_of
from strategies import programs


@given(programs(), st.integers(1, 3), st.integers(1, 9))
def test_a_trace_in_pieces_lists_every_unit_of_every_run(
    program: tuple[pb.Graph, list[int]], line: int, chunk: int
) -> None:
    graph, order = program
    runs = touch(graph, order, "own", line)
    expected = [
        (unit, write, tensor, order[step])
        for begin, units, write, tensor, step in zip(
            *(getattr(runs, f).tolist() for f in runs.__dataclass_fields__), strict=True
        )
        for unit in range(begin, begin + units)
    ]
    pieces = list(trace_of(graph, order, "own", line, chunk=chunk))
    found = [
        row for p in pieces for row in zip(*(c.tolist() for c in (p.address, p.write, p.tensor, p.op)), strict=True)
    ]
    assert found == expected
    assert all(len(piece) == chunk for piece in pieces[:-1])


def test_a_trace_that_no_disk_holds_is_refused() -> None:
    graph = pb.Graph("huge")
    for i in range(3):
        graph.tensor(f"x{i}", 2**48, kind="input")
        graph.op(f"o{i}", reads=[f"x{i}"] * 2**14)
    with pytest.raises(InputError, match=f"huge: touches {3 * 2**62:,} units one by one"):
        next(trace_of(graph, range(3)))
