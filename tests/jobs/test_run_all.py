"""One function on many inputs, here and in processes of their own."""

from __future__ import annotations

import pytest

from pebbler.errors import InputError
from pebbler.jobs.child import echo, read_message
from pebbler.jobs.run_all import JobFailed, run_all
from pebbler.solver.chain import cost_curves
from pebbler.solver.chain.cost_curves import red_curve


def test_answers_are_numbered_whatever_the_order():
    payloads = [bytes([i]) * i for i in range(20)]
    assert dict(run_all(echo, payloads)) == dict(enumerate(payloads))


def test_faults_of_the_input_are_told_from_others():
    with pytest.raises(InputError, match="length"):
        red_curve(0, [3, 4])
    with pytest.raises(JobFailed, match="AttributeError"):
        list(run_all(read_message, [b"1", b"2"], workers=1))


def test_a_curve_is_the_same_in_processes_of_its_own(monkeypatch):
    here = red_curve(50, [3, 5, 9, 51])
    monkeypatch.setattr(cost_curves, "_LONG", 1)
    assert red_curve(50, [3, 5, 9, 51]) == here
    assert [type(point.energy) for point in here] == [int] * 4
    with pytest.raises(InputError):
        red_curve(50, [3, -1])
