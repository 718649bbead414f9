"""The least fast memory over all tilings: what is proven against what each form needs, and plans that work with what is found."""

from __future__ import annotations

from collections import Counter

import pytest

from form_attacks import attack_least_memory
from pebbler import check, machine, solve
from pebbler.solver import find_least_capacity
from pebbler.solver.problem import Impossible


def test_the_notes_step_needs_less_in_tiles() -> None:
    whole = find_least_capacity("mlp:n=20,hidden=1000", "cortex-m", tile="none", time_limit=0.5)
    assert (whole.least, whole.bound, whole.covers) == (40_000, 40_000, "graph")
    tiled = find_least_capacity("mlp:n=20,hidden=100", "cortex-m", time_limit=4)
    assert tiled.bound == 4
    assert tiled.least <= 1_000  # 4,096 bytes
    assert tiled.covers == "forms"
    assert tiled.plan.machine.level[0].capacity == tiled.least
    judged = check(tiled.plan)
    assert judged.legal
    assert judged.peak["SRAM"] <= tiled.least


def test_less_than_every_form_needs_is_impossible() -> None:
    three = machine("cortex-m").resized(0, 12)
    with pytest.raises(
        Impossible, match="in the smallest tiles needs 4 units at once; SRAM holds 3; at least 4 are needed"
    ):
        solve("mlp:n=3,hidden=4", three, time_limit=2)
    assert check(solve("mlp:n=3,hidden=4", machine("cortex-m").resized(0, 16), time_limit=2)).legal


@pytest.mark.slow
def test_what_is_stated_against_every_form() -> None:
    found = Counter(attack_least_memory(seed) for seed in range(40))
    assert found["exact"] >= 8


@pytest.mark.slow
def test_what_is_stated_against_every_form_of_many() -> None:
    found = Counter(attack_least_memory(seed) for seed in range(2000))
    assert found["exact"] > 500
