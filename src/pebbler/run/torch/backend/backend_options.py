"""What a user may tell the backend: `torch.compile(model, backend="pebbler", options={...})`, or the environment."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pebbler.errors import InputError, near_matches, quoted
from pebbler.run.torch.plan.byte_sizes import bytes_of

__all__ = ["BackendOptions"]

_KNOWN = ("budget", "cache", "objective", "reserve", "time_limit")
_LATER = ("host_budget", "offload")
_OBJECTIVES = ("time", "energy")


@dataclass(frozen=True)
class BackendOptions:
    """What the step may hold, bytes held besides, seconds to plan a graph.

    It may hold `budget` bytes, or a `share` of the eager peak, or the `least` that is known.
    """

    budget: int | None = None
    share: float | None = None
    reserve: int = 0
    time_limit: float = 30.0
    least: bool = False
    cache: str | None = None
    objective: str = "time"

    @property
    def planning(self) -> tuple[Any, ...]:
        """What a plan depends on: all but where it is kept."""
        return self.budget, self.share, self.reserve, self.time_limit, self.least, self.objective

    @property
    def free(self) -> bool:
        """Whether there is no budget at all."""
        return self.budget is None and self.share is None and not self.least

    @classmethod
    def read(cls, options: Mapping[str, Any] | None, environment: Mapping[str, str] = os.environ) -> BackendOptions:
        """Return the options that were given, checked; else from `PEBBLER_BUDGET` and `PEBBLER_PLANS` (the cache's folder).

        >>> BackendOptions.read({"budget": "8GiB"}, {})
        BackendOptions(budget=8589934592, share=None, reserve=0, time_limit=30.0, least=False, cache=None, objective='time')
        >>> BackendOptions.read({"reserve": "1MB"}, {"PEBBLER_BUDGET": "0.5"})
        BackendOptions(budget=None, share=0.5, reserve=1000000, time_limit=30.0, least=False, cache=None, objective='time')
        >>> BackendOptions.read({"buget": 1}, {})
        Traceback (most recent call last):
        ...
        pebbler.errors.InputError: unknown option buget (did you mean budget?)
        """
        given = dict(options or {})
        for name in given:
            if name in _LATER:
                raise InputError(f"option {name} is not there yet; known: {', '.join(_KNOWN)}")
            if name not in _KNOWN:
                raise InputError(f"unknown option {quoted(name)}{near_matches(str(name), _KNOWN)}")
        wanted = given.get("budget", environment.get("PEBBLER_BUDGET"))
        least = isinstance(wanted, str) and wanted.strip().lower() == "least"
        budget, share = _budget(None if least else wanted)
        reserve = given.get("reserve", 0)
        seconds = given.get("time_limit", cls.time_limit)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
            raise InputError(f"time_limit: expected seconds above 0, got {quoted(seconds)}")
        objective = given.get("objective", cls.objective)
        if objective not in _OBJECTIVES:
            raise InputError(f"objective: expected {' or '.join(_OBJECTIVES)}, got {quoted(objective)}")
        cache = given.get("cache", environment.get("PEBBLER_PLANS")) or None
        if cache is not None and not isinstance(cache, str | os.PathLike):
            raise InputError(f"cache: expected a folder, got {quoted(cache)}")
        folder = None if cache is None else os.fspath(cache)
        return cls(budget, share, bytes_of(reserve) if reserve else 0, float(seconds), least, folder, objective)


def _budget(given: Any) -> tuple[int | None, float | None]:
    """Return a budget as bytes or as a share: a fraction without a unit, up to 1, is a share of the eager peak."""
    if given is None or given == "":
        return None, None
    value = given
    if isinstance(value, str) and "." in value:
        try:
            value = float(value)
        except ValueError:  # it has a unit
            return bytes_of(value), None
    if isinstance(value, float) and value <= 1:
        if not value > 0:
            raise InputError(
                f"budget: expected bytes such as 6GiB, or a share of the eager peak such as 0.5, got {quoted(given)}"
            )
        return None, value
    return bytes_of(value), None
