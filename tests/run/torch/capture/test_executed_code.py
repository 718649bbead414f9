"""The functions of code that ran are found again, however many pieces of code there are."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

from pebbler.run.torch.capture import executed_code
from pebbler.run.torch.capture.side_effects import SideEffects


def adding(amount):
    def add(x):
        return x + amount

    return add


def outside(x):
    return 2 * x


def never_called(x):
    return 3 * x


@pytest.mark.parametrize("few", [0, 64])
def test_functions_are_found_by_the_code_that_ran(few, monkeypatch):
    """All that were made from it, those that were not called too: they may be called next time."""
    monkeypatch.setattr(executed_code, "_FEW", few)
    one, other = adding(1), adding(2)
    code = executed_code.ExecutedCode()
    with code.watch(SideEffects(code.package)):
        assert outside(one(1)) == 4
    found = code.functions()
    assert {id(function) for function in (one, other, outside)} <= {id(function) for function in found}
    assert {function.__code__ for function in found} == {one.__code__, outside.__code__}


def test_nothing_that_ran_has_no_functions():
    assert executed_code.ExecutedCode().functions() == []
