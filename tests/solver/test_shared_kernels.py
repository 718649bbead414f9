"""The kernels that several searches share, beside lists, dictionaries and `heapq` of Python."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from pebbler.compiled import kernel
from pebbler.solver.kernels.open_list import OpenList, least_open, push, remove_first
from pebbler.solver.kernels.sequence_edits import assign, delete_at, insert_at, move_block
from pebbler.solver.kernels.state_table import StatesMet, is_cheapest, mix, slot_of
from pebbler.solver.tiling.kernels.order_walk import begin_walk, go_on, next_op


@kernel
def enter(entries, estimate, paid, node):  # type: ignore[no-untyped-def]
    push(entries, estimate, paid, node)


@kernel
def take_first(entries):  # type: ignore[no-untyped-def]
    found = entries.estimate[0], entries.paid[0], entries.node[0]
    remove_first(entries)
    return found


@kernel
def numbered(table, rows, low):  # type: ignore[no-untyped-def]
    """Return, per row, the number of the first row like it, from `low` on."""
    found = np.empty(len(rows), np.int64)
    for i in range(low, len(rows)):
        slot = slot_of(table, len(table) - 1, low, rows, rows[i])
        if table[slot] < low:
            table[slot] = i
        # The same words as a tuple.
        found[i] = table[slot_of(table, len(table) - 1, low, rows, (rows[i, 0], rows[i, 1]))]
    return found


@kernel
def meet(met, words, paid):  # type: ignore[no-untyped-def]
    key = np.zeros(2, np.uint64)
    for word in words:
        mix(key, word)
    return is_cheapest(met, key, paid)


@kernel
def edit(kind, sequence, length, at, count, to):  # type: ignore[no-untyped-def]
    if kind == 0:
        insert_at(sequence, length, at, np.int64(99))
    elif kind == 1:
        delete_at(sequence, length, at)
    elif kind == 2:
        move_block(sequence, at, count, to)
    else:
        assign(sequence, sequence[at : at + count].copy())


@kernel
def all_orders_of(walk, found):  # type: ignore[no-untyped-def]
    """Write every order down; return how many there are."""
    count = 0
    while next_op(walk) >= 0:
        if walk.depth[0] + 1 == len(walk.waits):
            found[count] = walk.prefix
            count += 1
        else:
            go_on(walk)
    return count


def test_the_open_list_is_sorted_by_estimate_then_by_what_is_paid() -> None:
    draw, entries, twin = random.Random(0), OpenList.room(500), []
    for node in range(500):
        estimate, paid = float(draw.randrange(30)), float(draw.randrange(30)) + node / 1000
        enter(entries, estimate, paid, node)
        twin.append((estimate, -paid, node))
        if draw.random() < 0.4:
            estimate, paid, node = take_first(entries)
            assert (estimate, -paid, node) == min(twin)
            twin.remove(min(twin))
    assert least_open(entries, -1.0) == min(twin)[0]
    larger = OpenList.room(900)
    entries.copy_to(larger)
    for estimate, paid, node in sorted(twin):
        assert take_first(larger) == (estimate, -paid, node)
    assert least_open(larger, -1.0) == -1.0


@pytest.mark.parametrize("low", [0, 100])
def test_equal_rows_have_one_slot(low: int) -> None:
    rows = np.random.default_rng(low).integers(-3, 4, (400, 2)) * np.array([1 << 40, 1])
    found = numbered(np.full(1024, -1, np.int32), rows, low)
    for i in range(low, 400):
        assert found[i] == next(j for j in range(low, 400) if (rows[j] == rows[i]).all())


def test_a_state_is_met_again_only_where_the_way_is_cheaper() -> None:
    draw, met, twin = random.Random(1), StatesMet.room(10), {}
    for _ in range(3000):
        words, paid = (draw.randrange(20), draw.randrange(20)), float(draw.randrange(50))
        assert meet(met, np.array(words), paid) == (paid < twin.get(words, float("inf")))
        twin[words] = min(paid, twin.get(words, float("inf")))
    assert met.used[0] == len(twin)


def test_full_tables_remember_no_more_and_forget_nothing() -> None:
    met = StatesMet.room(4)
    new = [meet(met, np.array([word]), 1.0) for word in range(40)]
    again = [meet(met, np.array([word]), 1.0) for word in range(40)]
    assert all(new)
    assert again.count(False) == met.used[0] == 8


def test_edits_do_what_they_do_to_lists() -> None:
    draw = random.Random(2)
    for _ in range(300):
        length, kind = draw.randint(1, 12), draw.randrange(4)
        count = draw.randint(1, length)
        at, to = draw.randint(0, length - count), draw.randint(0, length - count)
        sequence, twin = np.arange(length + 1), list(range(length))
        edit(kind, sequence, length, at, count, to)
        if kind == 0:
            twin.insert(at, 99)
        elif kind == 1:
            del twin[at]
        elif kind == 2:
            block = twin[at : at + count]
            del twin[at : at + count]
            twin[to:to] = block
        else:
            twin[:count] = twin[at : at + count]
        assert sequence[: len(twin)].tolist() == twin


def test_a_walk_finds_every_order_once() -> None:
    waits_for = {0: (), 1: (0,), 2: (), 3: (1, 2), 4: (2,)}
    after = [[b for b, others in waits_for.items() if a in others] for a in waits_for]
    start, items = np.cumsum([0, *map(len, after)]), np.array([b for row in after for b in row])
    floor = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    walk = begin_walk(np.array([len(others) for others in waits_for.values()]), start, items, floor)
    found = np.empty((120, 5), np.int64)
    count = all_orders_of(walk, found)
    legal = [
        order
        for order in itertools.permutations(range(5))
        if all(order.index(a) < order.index(b) for b, others in waits_for.items() for a in others)
    ]
    assert [tuple(order) for order in found[:count].tolist()] == legal
    assert walk.rest[0] == floor.sum()
