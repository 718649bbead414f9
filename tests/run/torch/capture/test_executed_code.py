"""The functions of code that ran are found again, also those that were made since."""

from __future__ import annotations

import gc

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

from torch._subclasses.fake_tensor import FakeTensorMode

from pebbler.run.torch.capture import executed_code
from pebbler.run.torch.capture.recordings import without_finalizers
from pebbler.run.torch.capture.side_effects import SideEffects
from pebbler.run.torch.capture.surroundings import Surroundings


def adding(amount):
    def add(x):
        return x + amount

    return add


def outside(x):
    return 2 * x


def never_called(x):
    return 3 * x


@pytest.mark.parametrize("collected", [False, True])
def test_functions_are_found_by_the_code_that_ran(collected):
    """All that were made from it, before and since; those that were not called too: they may be called next time."""
    one, other = adding(1), adding(2)
    code = executed_code.ExecutedCode()
    with without_finalizers():
        before = Surroundings(FakeTensorMode())
        with code.watch(SideEffects(code.package)):
            assert outside(one(1)) == 4
        later = adding(3)
        if collected:
            gc.collect()
        found = code.functions(before.functions())
    assert {id(function) for function in (one, other, later, outside)} <= {id(function) for function in found}
    assert {function.__code__ for function in found} == {one.__code__, outside.__code__}
    assert len({id(function) for function in found}) == len(found)


def test_nothing_that_ran_has_no_functions():
    assert executed_code.ExecutedCode().functions([outside]) == []
