"""ByteDMD: the published examples, and random programs against the list-stack twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive_bytedmd as naive
from pebbler.errors import InputError
from pebbler.trace.scalar_program import ScalarProgram, bytedmd, trace_scalars


def dot(row, column):
    total = row[0] * column[0]
    for a, b in zip(row[1:], column[1:], strict=True):
        total = total + a * b
    return total


def matvec(matrix, x):
    return [dot(row, x) for row in matrix]


def matmul(a, b):
    columns = list(zip(*b, strict=True))
    return [[dot(row, column) for column in columns] for row in a]


def ones(n):
    return [[1.0] * n for _ in range(n)]


@pytest.mark.parametrize(
    ("function", "args", "depths", "cost"),
    [
        (lambda a, b, c: (a + b) + c, (1, 2, 3), [1, 2, 1, 2], 6),
        (lambda a, b: a[0] * b[0] + a[1] * b[1], ([1, 2], [3, 4]), [2, 4, 2, 3, 2, 1], 11),
        (lambda a: a + a, (1,), [1, 1], 2),
    ],
)
def test_published_examples(function, args, depths, cost):
    assert trace_scalars(function, *args).depths().tolist() == depths
    assert bytedmd(function, *args) == cost


def test_two_bytes():
    assert bytedmd(lambda a, b, c: (a + b) + c, 1, 2, 3, bytes=2) == 14


def test_published_matrix_vector_products():
    assert [bytedmd(matvec, ones(n), [1.0] * n) for n in range(2, 9)] == [26, 75, 157, 270, 422, 615, 896]


def test_published_matrix_products():
    costs = {n: bytedmd(matmul, ones(n), ones(n)) for n in (2, 4, 8, 16, 32)}
    assert costs == {2: 57, 4: 720, 8: 8867, 16: 109783, 32: 1505125}
    assert [bytedmd(matmul, ones(4), ones(4), bytes=b) for b in (1, 2, 4, 8)] == [720, 2044, 5493, 15325]


def test_large_matrix_product():
    assert bytedmd(matmul, ones(64), ones(64)) == 21263467


def test_arrays_run_as_lists_do():
    a, b = np.arange(9.0).reshape(3, 3), np.arange(9.0, 18).reshape(3, 3)
    program = trace_scalars(matmul, a, b)
    assert np.array_equal(program.result, a @ b)
    assert program.cost() == bytedmd(matmul, a.tolist(), b.tolist())
    elementwise = trace_scalars(lambda x: 2 * x + x, a)
    assert np.array_equal(elementwise.result, 3 * a)
    assert len(elementwise) == 18


def test_branches_and_indices_are_reads():
    def larger(a, b):
        return a if a > b else b

    program = trace_scalars(larger, 5, 3)
    # The comparison reads a and b and makes a flag, which the branch reads.
    assert (program.depths().tolist(), program.result) == ([1, 2, 1], 5)
    assert trace_scalars(lambda n: [0 for _ in range(n)], 3).depths().tolist() == [1]
    assert trace_scalars(lambda x: float(x) + int(x), 3).depths().tolist() == [1, 1]


def test_unread_arguments_take_no_room():
    assert trace_scalars(lambda unread, x: x + 1, 1, 2).depths().tolist() == [1]
    # ... unless they are returned.
    assert trace_scalars(lambda kept, x: (kept, x + 1), 1, 2).depths().tolist() == [2]


def test_constants_are_free_on_either_side():
    program = trace_scalars(lambda x: (1 - x) * 2 // 3 % 5, 9)
    assert (program.depths().tolist(), program.result) == ([1, 1, 1, 1], (1 - 9) * 2 // 3 % 5)


def test_numpy_constants_are_free_too():
    program = trace_scalars(lambda x: np.float64(2) * x + np.int64(1), 4.0)
    assert (program.depths().tolist(), program.result) == ([1, 1], 9)


def test_divmod_has_two_results():
    program = trace_scalars(lambda a, b: sum(divmod(a, b), start=0), 17, 5)
    # 0 + quotient, then the sum so far + remainder, which went down by one.
    assert (program.depths().tolist(), program.result) == ([1, 2, 2, 1, 2], 5)
    assert trace_scalars(lambda a: divmod(17, a), 5).result == (3, 2)


def test_every_operator_computes():
    def all_of_them(a, b):
        bits = (a & b, a | b, a ^ b, a << b, a >> b, ~a, -a, +a, abs(-a), a**b, a / b)
        return bits, (a < b, a <= b, a > b, a >= b, a == b, a != b), (1 & a, 1 | a, 1 ^ a, 1 << a, 64 >> a, 2**a, 1 / a)

    assert trace_scalars(all_of_them, 6, 3).result == all_of_them(6, 3)


def test_a_function_that_reads_nothing():
    assert bytedmd(lambda x: x, 1) == 0
    assert bytedmd(lambda: None) == 0


# A program: how many arguments, then instructions that read values made so far.
programs = st.integers(1, 6).flatmap(
    lambda arguments: st.tuples(
        st.just(arguments),
        st.lists(st.lists(st.integers(0, 10**6), min_size=1, max_size=2), max_size=60),
        st.lists(st.integers(0, 10**6), max_size=4),
        st.integers(1, 5),
    )
)


@given(programs)
def test_kernel_against_a_list_stack(program):
    arguments, reads, returned, width = program
    recorded = ScalarProgram()
    values = [recorded.argument(0) for _ in range(arguments)]
    instructions = []
    for picks in reads:
        # Half of the picks are among the newest values, so that some values die early and some late.
        chosen = [
            values[-1 - pick // 2 % 3 % len(values)] if pick % 2 else values[pick // 2 % len(values)] for pick in picks
        ]
        values.append(recorded.instruction(0, *(value.id for value in chosen)))
        instructions.append((tuple(value.id for value in chosen), values[-1].id))
    kept = {pick % len(values) for pick in returned}
    recorded.returned = sorted(kept)
    expected = naive.naive_depths(list(range(arguments)), instructions, kept)
    assert recorded.depths().tolist() == expected
    assert recorded.cost(bytes=width) == naive.naive_cost(expected, width)


def test_long_programs_outlive_the_slots():
    """Far more moves than the tree has room for, with a stack that stays small."""
    recorded = ScalarProgram()
    ids = [recorded.argument(0).id for _ in range(5)]
    rng = np.random.default_rng(0)
    instructions = []
    for _ in range(2000):
        a, b = (ids[i] for i in rng.integers(0, len(ids), 2).tolist())
        made = recorded.instruction(0, a, b).id
        instructions.append(((a, b), made))
        ids[int(rng.integers(0, len(ids)))] = made
    assert recorded.depths().tolist() == naive.naive_depths(list(range(5)), instructions, set())


@pytest.mark.parametrize("width", [0, -1, 1.5, 2**21])
def test_wrong_widths(width):
    with pytest.raises(InputError, match="whole number of bytes"):
        bytedmd(lambda a: a, 1, bytes=width)


def test_values_of_two_programs_do_not_mix():
    kept = []
    trace_scalars(kept.append, 1)
    with pytest.raises(InputError, match="different ByteDMD programs"):
        bytedmd(lambda a: a + kept[0], 1)
    with pytest.raises(TypeError):
        bytedmd(lambda a: a + "text", 1)
