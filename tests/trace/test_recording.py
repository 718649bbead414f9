"""The recorder: buffer events and element addresses from one set of calls."""

from __future__ import annotations

import doctest
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pebbler.errors import InputError
from pebbler.trace.buffer_events import NEVER_WRITTEN, Events, buffer_lru
from pebbler.trace.recording import Recorder, current_recorder, record
from pebbler.trace.traces import UNNAMED, Trace


def test_events_and_trace_of_the_same_calls():
    with record() as t:
        t.write("a", 100)
        t.write("b", 50)
        t.read("a")
    assert (t.distances("a"), t.reads, t.writes, t.total_floats) == ([150], 1, 2, 250)
    assert buffer_lru(t, 150).hits == 1
    trace = t.trace()
    assert trace.address.tolist() == [*range(150), *range(100)]
    assert trace.write.tolist() == [True] * 150 + [False] * 100
    assert trace.tensors().address.tolist() == [0, 1, 0]
    assert trace.op_names == (UNNAMED,)


def test_parts_in_their_order():
    t = Recorder()
    t.write("x", 3)
    t.write("W", 10)
    t.read("W", at=slice(8, 2, -3))
    t.read("W", at=range(2))
    t.read("W", at=[7, 7, 0])
    t.write("W", at=np.array([9]))
    assert trace_of(t, "W") == [*range(10), 8, 5, 0, 1, 7, 7, 0, 9]
    # A part written leaves the buffer's size alone, and stamps it.
    assert t.distances("W") == [10, 12, 14]
    t.read("W")
    assert (t.distances("W")[-1], t.total_floats) == (1, 3 + 10 + 2 + 2 + 3 + 1 + 10)


def trace_of(t: Recorder, name: str) -> list[int]:
    trace = t.trace()
    chosen = trace.tensor == trace.tensor_names.index(name)
    return (trace.address[chosen] - min(trace.address[chosen])).tolist()


def test_ops_nest():
    t = Recorder()
    t.write("x", 1)
    with t.op("outer"):
        t.read("x")
        with t.op("inner"):
            t.read("x")
        t.read("x", op="ignored")
    t.read("x", op="given")
    trace = t.trace()
    assert [trace.op_names[i] for i in trace.op] == [UNNAMED, "outer", "inner", "outer", "given"]


def test_an_op_ends_with_its_block_even_on_an_error():
    t = Recorder()
    with pytest.raises(RuntimeError), t.op("f"):
        raise RuntimeError
    t.write("x", 1)
    assert t.trace().op_names == (UNNAMED,)


def test_ranges_make_room_for_the_largest_use():
    t = Recorder()
    t.write("a", 2)
    t.write("b", 2)
    t.read("a", 5)
    assert t.trace().address.tolist() == [0, 1, 5, 6, 0, 1, 2, 3, 4]


def test_what_was_there_before_is_cold():
    t = Recorder()
    t.read("x", 4)
    assert (t.distances("x"), t.reads, len(t.trace())) == ([NEVER_WRITTEN], 0, 4)


def test_the_recorder_in_force_is_the_innermost():
    assert current_recorder() is None
    with record() as outer:
        with record() as inner:
            assert current_recorder() is inner
        assert current_recorder() is outer
        assert (inner.recording, outer.recording) == (False, True)
    assert current_recorder() is None


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.integers(1, 7)), min_size=1), st.integers(1, 20))
def test_pieces_and_clock_agree_with_the_whole(script, size):
    t, events = Recorder(), Events()
    for write, name, count in script:
        (t.write if write else t.read)(name, count)
        (events.write if write else events.read)(name, count)
    assert t.all_distances().tolist() == events.all_distances().tolist()
    pieces = list(t.chunks(size))
    assert Trace.joined(pieces) == t.trace()
    assert sum(map(len, pieces)) == t.total_floats
    assert max(map(len, pieces)) < size + 7
    extents = {name: max(count for _, other, count in script if other == name) for name in t.names}
    for piece in pieces:
        ranges = np.cumsum([0, *extents.values()])
        assert (piece.address >= ranges[piece.tensor]).all()
        assert (piece.address < ranges[piece.tensor + 1]).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.write("a", 0), "write a: size 0 is not positive"),
        (lambda t: t.write("a", -1), "size -1 is not positive"),
        (lambda t: t.write("a", 1.5), r"size 1\.5 is not a whole number"),
        (lambda t: t.write("a"), "write of a, which was never written"),
        (lambda t: t.read("a"), "event 2: read of a, which was never written"),
        (lambda t: t.read("known", at=[5]), "element 5 of known, which has 5"),
        (lambda t: t.read("known", at=[-1]), "element -1 of known"),
        (lambda t: t.read("known", at=range(3, 6)), "element 5 of known"),
        (lambda t: t.read("known", at=[0.5]), "expected a slice, a range or a list"),
        (lambda t: t.read("known", at=[[1]]), "expected a slice, a range or a list"),
        (lambda t: t.read("known", at=slice(3, 3)), "no elements of known"),
        (lambda t: t.read("known", at=[]), "no elements of known"),
        (lambda t: t.write("", 1), "non-empty string"),
        (lambda t: t.op("").__enter__(), "op's name must be a non-empty string"),
    ],
)
def test_wrong_calls_record_nothing(call, message):
    t = Recorder()
    t.write("known", 5)
    before = t.trace()
    with pytest.raises(InputError, match=message):
        call(t)
    assert t.trace() == before


def test_nothing_recorded():
    with pytest.raises(InputError, match="nothing was recorded"):
        Recorder().trace()


def test_the_page_about_traces(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    page = Path(__file__).parents[2] / "docs" / "traces.md"
    failed, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert (failed, tried > 20) == (0, True)
