"""Torch's own choices of saved values at several values of `activation_memory_budget`, as candidates of the search."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any

from torch import fx
from torch._functorch import partitioners

__all__ = ["Choose", "cuts_remembered", "torch_choices"]

_LOG = logging.getLogger(__name__)
_BUDGETS = (0.5, 0.3, 0.1)  # each takes torch one more minimum cut and a knapsack
_ALL = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)  # where there is time for all
_SHARE = 10  # part of the time limit that they may take

Choose = Callable[[float], list[fx.Node]]  # torch's choice for its budget

_CUTS: ContextVar[dict[str, Any] | None] = ContextVar("cuts", default=None)


def torch_choices(choose: Choose, time_limit: float) -> list[list[fx.Node]]:
    """Return the values that torch saves without a budget, then with some budgets; fewer where it takes long or torch fails."""
    deadline = time.monotonic() + time_limit / _SHARE
    found = [choose(1.0)]
    for budget in _ALL if math.isinf(time_limit) else _BUDGETS:
        if time.monotonic() > deadline:
            break
        try:
            found.append(choose(budget))
        except Exception as error:  # its knob is not needed: ours is searched for anyway
            _LOG.info("torch has no choice of its own at activation_memory_budget=%s: %s", budget, error)
            break
    return found


@contextlib.contextmanager
def cuts_remembered() -> Iterator[None]:
    """Have torch compute every minimum cut once while it chooses for one graph: those without a knapsack are always the same."""
    _remember()
    told = _CUTS.set({})
    try:
        yield
    finally:
        _CUTS.reset(told)


@cache
def _remember() -> None:
    solve = partitioners.solve_min_cut

    @wraps(solve)
    def recall(joint_graph: fx.Graph, node_info: Any, *options: Any, **more: Any) -> Any:
        known = _CUTS.get()
        if known is None:
            return solve(joint_graph, node_info, *options, **more)
        key = repr((options, sorted(more.items())))  # nodes are told by their names
        if key not in known:
            known[key] = solve(joint_graph, node_info, *options, **more)
        saved, banned = known[key]
        return list(saved), banned

    partitioners.solve_min_cut = recall
