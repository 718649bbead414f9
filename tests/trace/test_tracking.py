"""Tracked arrays: every access against a plain twin that holds its own element numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pebbler.trace.recording import Recorder, record
from pebbler.trace.tracking import Tracked, tracked


def log(recorder: Recorder) -> list[tuple[str, str, list[int]]]:
    """What was recorded, event by event: R or W, the buffer, its elements."""
    events = zip(recorder.is_write(), recorder.buffers(), recorder._elements, strict=True)
    return [("W" if write else "R", recorder.names[buffer], list(elements)) for write, buffer, elements in events]


def fresh(*shape: int, name: str = "a", recorder: Recorder | None = None) -> tuple[Tracked, np.ndarray]:
    """A tracked array, and the array of its element numbers."""
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    return tracked(numbers * 1.5, name, recorder=recorder), numbers


def ascending(numbers: np.ndarray) -> list[int]:
    return sorted(set(numbers.ravel().tolist()))


# Indexing of every kind, and views of views.

shapes = hnp.array_shapes(min_dims=1, max_dims=3, max_side=5)


@st.composite
def chains(draw):
    """A shape and a chain of basic indices and axis reversals, each valid for the view before it."""
    shape = draw(shapes)
    view, steps = np.zeros(shape), []
    for _ in range(draw(st.integers(0, 3))):
        step = (
            "T" if draw(st.booleans()) else draw(hnp.basic_indices(view.shape, allow_newaxis=True, allow_ellipsis=True))
        )
        found = view.T if step == "T" else view[step]
        if not isinstance(found, np.ndarray):
            break
        view = found
        steps.append(step)
    return shape, steps


def follow(array, steps):
    for step in steps:
        array = array.T if isinstance(step, str) else array[step]
    return array


@given(chains())
def test_views_touch_nothing_and_reads_touch_what_they_hold(case):
    shape, steps = case
    a, numbers = fresh(*shape)
    view, twin = follow(a, steps), follow(numbers, steps)
    assert len(a.recorder) == 0
    assert np.array_equal(view.untracked, twin * 1.5)
    np.negative(view, out=np.empty(twin.shape))
    assert log(a.recorder) == ([("R", "a", ascending(twin))] if twin.size else [])


@given(chains(), st.data())
def test_picking_from_a_view(case, data):
    shape, steps = case
    a, numbers = fresh(*shape)
    view, twin = follow(a, steps), follow(numbers, steps)
    if not twin.size or not twin.ndim:
        return
    length = len(twin)
    key = data.draw(
        st.one_of(
            st.lists(st.integers(-length, length - 1), min_size=1, max_size=6),
            hnp.arrays(bool, twin.shape),
            hnp.arrays(bool, (length,)),
            hnp.integer_array_indices(twin.shape),
        )
    )
    picked = view[key]
    expected = twin[key]
    found = log(a.recorder)
    if not expected.size:
        assert found == []
        return
    assert found[0] == ("R", "a", expected.ravel().tolist())
    if isinstance(picked, Tracked):
        assert np.array_equal(picked.untracked, expected * 1.5)
        assert found[1:] == [("W", picked.name, list(range(expected.size)))]
    else:
        assert picked == expected * 1.5


@given(chains(), st.data())
def test_assigning_to_a_view(case, data):
    shape, steps = case
    a, numbers = fresh(*shape)
    view, twin = follow(a, steps), follow(numbers, steps)
    if not twin.ndim:
        return
    basic = data.draw(st.booleans())
    key = data.draw(hnp.basic_indices(twin.shape) if basic else hnp.arrays(bool, twin.shape))
    view[key] = -1
    touched = twin[key]
    expected = np.arange(numbers.size) * 1.5
    expected[np.ravel(touched)] = -1
    assert np.array_equal(a.untracked.ravel(), expected)
    order = ascending(np.asarray(touched)) if basic else touched.tolist()
    assert log(a.recorder) == ([("W", "a", order)] if order else [])


@given(shapes, st.data())
def test_one_element_is_read_as_a_scalar(shape, data):
    a, numbers = fresh(*shape)
    index = tuple(data.draw(st.integers(-side, side - 1)) for side in shape)
    assert a[index] == numbers[index] * 1.5
    assert not isinstance(a[index], Tracked)
    assert log(a.recorder) == [("R", "a", [numbers[index]])] * 2


def test_examples_by_hand():
    a, _ = fresh(3, 4)
    a[::-1, 1:3].sum()
    a.T[3] * 1
    a[[2, 0], [1, 1]]
    a[a.untracked > 15]
    a[1][::-2][:1] = 7
    assert [(kind, elements) for kind, name, elements in log(a.recorder) if name == "a"] == [
        ("R", [1, 2, 5, 6, 9, 10]),
        ("R", [3, 7, 11]),
        ("R", [9, 1]),
        ("R", [11]),
        ("W", [7]),
    ]


# Operations


def test_ufuncs_read_operands_then_write_the_result():
    with record() as t:
        a, _ = fresh(2, 3)
        b, _ = fresh(3, name="b")
        c = a + b * 2
    assert np.array_equal(c.untracked, a.untracked + b.untracked * 2)
    assert log(t) == [
        ("R", "b", [0, 1, 2]),
        ("W", "temp0", [0, 1, 2]),
        ("R", "a", [0, 1, 2, 3, 4, 5]),
        ("R", "temp0", [0, 1, 2]),
        ("W", "temp1", [0, 1, 2, 3, 4, 5]),
    ]
    trace = t.trace()
    assert [trace.op_names[i] for i in trace.tensors().op] == ["multiply", "multiply", "add", "add", "add"]


def test_in_place_and_out():
    with record() as t:
        a, _ = fresh(4)
        b, _ = fresh(4, name="b")
        same = a
        a += b[::-1]
        np.multiply(a[:2], 2, out=b[2:])
        np.divmod(a, 2, out=(a, b))
    assert same is a
    assert log(t) == [
        ("R", "a", [0, 1, 2, 3]),
        ("R", "b", [0, 1, 2, 3]),
        ("W", "a", [0, 1, 2, 3]),
        ("R", "a", [0, 1]),
        ("W", "b", [2, 3]),
        ("R", "a", [0, 1, 2, 3]),
        ("W", "a", [0, 1, 2, 3]),
        ("W", "b", [0, 1, 2, 3]),
    ]


def test_assignment_reads_the_source():
    with record() as t:
        a, _ = fresh(2, 3)
        b, _ = fresh(3, name="b")
        a[:, 1:] = b[:2]
        a.fill(0)
    assert log(t) == [("R", "b", [0, 1]), ("W", "a", [1, 2, 4, 5]), ("W", "a", [0, 1, 2, 3, 4, 5])]


def test_plain_arrays_meet_tracked_ones():
    a, numbers = fresh(3)
    plain = np.ones(3)
    plain += a
    assert isinstance(plain * a, Tracked)
    assert np.array_equal(plain, 1 + numbers * 1.5)
    assert np.asarray(a).tolist() == [0, 1.5, 3]
    assert [entry[0] for entry in log(a.recorder)] == ["R", "R", "W", "R"]
    copy = np.asarray(a)
    copy[0] = 9
    assert a.untracked[0] == 0


@pytest.mark.parametrize(
    "product",
    [
        lambda a, b: a @ b,
        lambda a, b: a.dot(b),
        lambda a, b: np.dot(a, b),
        lambda a, b: np.einsum("ij,jk->ik", a, b),
        lambda a, b: np.tensordot(a, b, 1),
    ],
)
def test_products_read_each_operand_once(product):
    with record() as t:
        a, x = fresh(2, 3)
        b, y = fresh(4, 3, name="b")
        c = product(a, b[::2].T)
    assert np.allclose(c.untracked, (x * 1.5) @ (y[::2].T * 1.5))
    assert log(t) == [("R", "a", [*range(6)]), ("R", "b", [0, 1, 2, 6, 7, 8]), ("W", "temp0", [*range(4)])]


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "std", "var", "any", "all", "argmax", "argmin"])
def test_reductions(name):
    a, numbers = fresh(3, 4)
    part, twin = a[1:, ::2], numbers[1:, ::2] * 1.5
    assert getattr(part, name)() == getattr(np, name)(part) == getattr(np, name)(twin)
    rows = getattr(part, name)(axis=0)
    assert np.array_equal(rows.untracked, getattr(np, name)(twin, axis=0))
    read = ("R", "a", [4, 6, 8, 10])
    assert log(a.recorder) == [read, read, read, ("W", "temp0", [0, 1])]


def test_masks_choose_what_is_touched():
    with record() as t:
        a, _ = fresh(2, 3)
        b, _ = fresh(3, name="b")
        mask = np.array([[True, False, False], [True, False, True]])
        np.add(a, b, out=a, where=mask)
        assert np.sum(a, where=mask[:1]) == a.untracked[:, 0].sum()
        np.copyto(a, b, where=mask[0])
        picked = np.where(mask, a, b)
    assert np.array_equal(picked.untracked, np.where(mask, a.untracked, b.untracked))
    assert log(t) == [
        ("R", "a", [0, 3, 5]),
        ("R", "b", [0, 2]),
        ("W", "a", [0, 3, 5]),
        ("R", "a", [0, 3]),
        ("R", "b", [0]),
        ("W", "a", [0, 3]),
        ("R", "a", [0, 3, 5]),
        ("R", "b", [1, 2]),
        ("W", "temp0", [*range(6)]),
    ]


def test_tracked_masks_and_indices_are_read():
    with record() as t:
        a, _ = fresh(4)
        where = tracked([1, 3], "where")
        a[where]
        mask = a > 2
        a[mask] = 0
    assert [entry[:2] for entry in log(t)] == [
        ("R", "where"),
        ("R", "a"),
        ("W", "temp0"),
        ("R", "a"),
        ("W", "temp1"),
        ("R", "temp1"),
        ("W", "a"),
    ]
    assert log(t)[-1] == ("W", "a", [2, 3])


def test_gathers_and_scatters():
    with record() as t:
        a, _ = fresh(2, 3)
        assert np.take(a, [2, 0], axis=1).untracked.tolist() == [[3, 0], [7.5, 4.5]]
        np.add.at(a, ([1, 1], [0, 0]), 1)
        assert np.trace(a) == 0 + 6
    assert a.untracked[1, 0] == 6.5
    assert log(t) == [
        ("R", "a", [2, 0, 5, 3]),
        ("W", "temp0", [0, 1, 2, 3]),
        ("R", "a", [3, 3]),
        ("W", "a", [3, 3]),
        ("R", "a", [0, 4]),
    ]


def test_copies_and_joins():
    with record() as t:
        a, numbers = fresh(2, 2)
        b = a.T.reshape(4)  # cannot be a view
        c = np.concatenate([a[0], b[:1]])
        d = np.zeros_like(a)
        e = np.empty_like(a)
    assert b.untracked.tolist() == (numbers.T.ravel() * 1.5).tolist()
    assert c.untracked.tolist() == [0, 1.5, 0]
    assert (d.untracked.tolist(), e.shape) == ([[0, 0], [0, 0]], (2, 2))
    assert log(t) == [
        ("R", "a", [0, 1, 2, 3]),
        ("W", "temp0", [0, 1, 2, 3]),
        ("R", "a", [0, 1]),
        ("R", "temp0", [0]),
        ("W", "temp1", [0, 1, 2]),
        ("W", "temp2", [0, 1, 2, 3]),
    ]


def test_view_functions_touch_nothing():
    a, numbers = fresh(2, 6)
    views = [
        a.ravel(),
        np.swapaxes(a, 0, 1),
        *np.split(a, 3, axis=1),
        np.einsum("ij->ji", a),
        np.flip(a),
        a.reshape(3, 4),
    ]
    twins = [
        numbers.ravel(),
        numbers.T,
        *np.split(numbers, 3, axis=1),
        numbers.T,
        np.flip(numbers),
        numbers.reshape(3, 4),
    ]
    views.append(np.broadcast_to(a[0], (5, 6)))
    twins.append(np.broadcast_to(numbers[0], (5, 6)))
    assert (np.shape(a), np.ndim(a), np.size(a), len(a), a.dtype) == ((2, 6), 2, 12, 2, np.float64)
    assert len(a.recorder) == 0
    for view, twin in zip(views, twins, strict=True):
        assert np.array_equal(view.untracked, twin * 1.5)
        view.sum()
    assert [entry[2] for entry in log(a.recorder)] == [ascending(twin) for twin in twins]


def test_conversions_read():
    a, _ = fresh(2, 2)
    assert (float(a[:1, 1:]), int(a[1:, :1]), a.item(1, 1), bool(a[:1, :1])) == (1.5, 3, 4.5, False)
    assert a[1].tolist() == [3, 4.5]
    assert 1.5 in a[0]
    assert list(range(3))[tracked([1], recorder=a.recorder)[0]] == 1
    assert [entry[2] for entry in log(a.recorder)] == [[1], [2], [3], [0], [2, 3], [0], [1], [0]]


def test_recording_stops_with_the_block():
    with record() as t:
        a, _ = fresh(3)
        a.sum()
    a.sum()
    a[0] = 4
    assert len(t) == 1


def test_operations_have_the_label_of_their_block():
    with record() as t:
        a, _ = fresh(3)
        with t.op("fwd"):
            a.sum()
        a.sum()
    assert t.trace().op_names == ("fwd", "sum")


def test_initial_values_can_be_declared_written():
    with record() as t:
        t.write("W", 4)
        w = tracked(np.ones(4), "W")
        w.sum()
    assert t.distances("W") == [4]


def test_the_original_is_left_alone():
    original = np.zeros(3)
    a = tracked(original)
    a[0] = 1
    assert original.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="read-only"):
        a.untracked[0] = 2


def test_broadcasting_against_nothing_reads_nothing():
    a, _ = fresh(1)
    assert (a + np.empty(0)).shape == (0,)
    assert len(a.recorder) == 0


def test_a_failed_operation_records_nothing():
    a, _ = fresh(3)
    with pytest.raises(ValueError, match="broadcast"):
        a + np.ones(2)
    with pytest.raises(IndexError):
        a[7]
    with pytest.raises(IndexError):
        a[[7]]
    with pytest.raises(IndexError):
        np.take(a, [7])
    assert len(a.recorder) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: np.searchsorted(a, 1.0), "np.searchsorted of tracked arrays is not recorded exactly"),
        (lambda a: np.add.reduceat(a, [0, 1]), "np.add.reduceat of tracked arrays is not recorded exactly"),
        (lambda a: np.sum(a[None], 0, None, a.copy()), "np.sum of tracked arrays takes its output by name"),
        (lambda a: np.clip(a, 0, 1, where=np.array([True, False, True])), "takes no mask"),
        (lambda a: np.dot(a, a, a[0, ...]), "np.dot of tracked arrays takes its output by name"),
        (lambda a: np.take(a, [0], out=a), "has no out"),
        (lambda a: a + tracked([1.0, 2, 3], "other"), "a and other record into different recorders"),
        (lambda a: tracked([1], "a", recorder=a.recorder), "two tracked arrays are named a"),
        (lambda a: tracked(np.array([None])), "dtype object cannot be tracked"),
        (lambda a: tracked([1], ""), "non-empty string"),
    ],
)
def test_what_cannot_be_recorded_exactly_is_refused(call, message):
    a, _ = fresh(3)
    with pytest.raises(ValueError, match=message):
        call(a)


def test_unknown_methods():
    a, _ = fresh(3)
    with pytest.raises(AttributeError, match="tracked arrays have no partition"):
        a.partition(1)
    with pytest.raises(ValueError, match="only as a copy"):
        np.asarray(a, copy=False)
