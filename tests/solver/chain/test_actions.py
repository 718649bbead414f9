"""Actions for adjoint code: they compute every gradient, within the checkpoints, at the plan's cost."""

from __future__ import annotations

import math

import pytest

from pebbler import schedule, solve_chain


def run(steps: int, checkpoints: int, io: float) -> tuple[list[int], float]:
    """Run a schedule as its reader would, on states that are numbers; return the order of gradients and what it cost."""
    fast, slow, reversed_, cost = {0: 0}, {}, [], 0.0
    for action in schedule(steps, checkpoints, io=io):
        i = action.index
        if action.kind == "advance":
            fast[i + 1] = fast[i] + 1
        elif action.kind == "reverse":
            assert fast[i] == i
            reversed_.append(i)
        elif action.kind == "store":
            slow[i] = fast[i]
        elif action.kind == "load":
            fast[i] = slow[i]
        else:
            del (slow if action.slow else fast)[i]
        cost += io if action.kind in ("store", "load") else action.kind in ("advance", "reverse")
        assert len(fast) <= checkpoints + 2  # the state that a running step reads, and the one it makes
    return reversed_, cost


@pytest.mark.parametrize("io", [math.inf, 2.0])
@pytest.mark.parametrize(("steps", "checkpoints"), [(1, 1), (2, 2), (7, 2), (12, 3), (40, 4), (100, 10)])
def test_a_schedule_reverses_every_step_at_the_plans_cost(steps: int, checkpoints: int, io: float) -> None:
    order, cost = run(steps, checkpoints, io)
    assert order == list(range(steps - 1, -1, -1))
    assert cost == solve_chain(steps, checkpoints, io=io, adjoint=True).energy
