"""Note 000's orders, and the names under which commands pass them on."""

from __future__ import annotations

import pytest

from pebbler.errors import InputError
from pebbler.notes.reference_orders import NOTE_ORDERS, compared_orders, marked_orders, note_order
from pebbler.workloads import note_mlp


def test_the_notes_orders_are_orders_of_all_ops():
    names = sorted(op.name for op in note_mlp().ops)
    for name in NOTE_ORDERS:
        assert sorted(note_order(name)) == names
    assert note_order("standard") == [op.name for op in note_mlp().ops]
    with pytest.raises(InputError, match="did you mean optimal"):
        note_order("optimall")


def test_every_order_is_passed_on_and_no_two_are_alike():
    assert sorted(map(tuple, marked_orders().values())) == sorted(NOTE_ORDERS.values())
    standard = NOTE_ORDERS["standard"]
    assert {tuple(order) for order in compared_orders().values()} == set(NOTE_ORDERS.values()) - {standard}
    assert len(set(NOTE_ORDERS.values())) == 4
