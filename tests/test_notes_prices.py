"""README's ladder on several machines: every row for each, and a plan carried from one to the others."""

from __future__ import annotations

import pytest
from benchmarks import notes_prices

import pebbler as pb


def test_the_ladder_is_the_same_on_every_machine_and_a_plan_can_be_carried_over():
    names = ("notes", "notes-h200", "h200-measured")
    found = {name: notes_prices.ladder(name, 2.0, n=4, hidden=64) for name in names}
    titles = [[row.name for row in rows] for rows, _ in found.values()]
    assert titles[0] == titles[1] == titles[2]
    _, plan = found["notes"]
    assert notes_prices.carried_over(plan, "notes") == pytest.approx(pb.check(plan).energy)
    for name, (rows, _) in found.items():
        assert notes_prices.carried_over(plan, name) >= rows[-1].energy * (1 - 1e-9)  # the bound
    text = notes_prices.markdown(found)
    assert text.count("refused") == 6
    assert len(text.splitlines()) == len(titles[0]) + 3


def test_the_notes_machine_at_measured_prices_has_the_measured_prices():
    measured = {level.name: 4 * level.read for level in pb.machine("h200-measured").level}
    priced = {level.name: level.read for level in pb.machine("notes-h200").level}
    for name in ("L1", "L2", "HBM"):
        assert priced[name] == pytest.approx(measured[name], rel=0.01)
    assert [level.capacity for level in pb.machine("notes-h200").level] == [
        level.capacity for level in pb.machine("notes").level
    ]
