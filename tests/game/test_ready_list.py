"""The ready list, by itself and inside list schedulers."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from naive_game import random_game
from pebbler.game.ready_list import ReadyList, schedule_by_key
from pebbler.solver.kernels.ready_nodes import first_ready, run_ready

seeds = st.integers(0, 10**9)


@settings(max_examples=60)
@given(seeds)
def test_a_schedule_by_key_takes_the_least_of_all_that_are_ready(seed: int) -> None:
    rng = random.Random(seed)
    flow = random_game(rng, max_ops=12).graph.dataflow
    keys = [rng.randrange(4) for _ in range(flow.ops)]
    before = flow.before.lists()
    expected: list[int] = []
    while len(expected) < flow.ops:
        ready = [op for op in range(flow.ops) if op not in expected and set(before[op]) <= set(expected)]
        expected.append(min(ready, key=lambda op: (keys[op], op)))
    assert schedule_by_key(ReadyList.of(flow), key=lambda op: keys[op]) == expected


@settings(max_examples=60)
@given(seeds)
def test_the_kernel_frees_what_the_list_frees(seed: int) -> None:
    rng = random.Random(seed)
    flow = random_game(rng, max_ops=12).graph.dataflow
    slow = ReadyList.of(flow)
    choices = set(slow.first)
    waits, ready = np.diff(flow.before.start), np.empty(flow.ops, np.int64)
    count = first_ready(waits, ready)
    while count:
        assert set(ready[:count].tolist()) == choices
        at = rng.randrange(count)
        op = int(ready[at])
        count = run_ready(at, ready, count, waits, flow.after.start, flow.after.items)
        choices = (choices - {op}) | set(slow.run(op))
    assert not choices


def test_what_is_taken_back_waits_again() -> None:
    ready = ReadyList([0, 1], [[1], []])
    assert ready.run(0) == [1]
    ready.take_back(0)
    assert ready.waits == [0, 1]


def test_nodes_in_a_circle_are_left_out() -> None:
    assert schedule_by_key(ReadyList([0, 1, 1], [[], [2], [1]])) == [0]
