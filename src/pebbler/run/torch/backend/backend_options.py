"""The options of the backend: `torch.compile(model, backend="pebbler", options={...})`, or environment variables."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pebbler.errors import InputError, near_matches, quoted
from pebbler.game.byte_sizes import bytes_of

__all__ = ["BackendOptions"]

_KNOWN = ("budget", "cache", "host_budget", "objective", "offload", "reserve", "time_limit")
_OBJECTIVES = ("time", "energy")


@dataclass(frozen=True)
class BackendOptions:
    """Options of the backend: bytes that the step may hold, bytes held by others, seconds to plan a graph.

    It may hold `budget` bytes, or a `share` of the eager peak, or the `least` that is known. With `offload`, saved values may go
    to the host's memory: at most `host_budget` bytes of it, or any number.
    """

    budget: int | None = None
    share: float | None = None
    reserve: int = 0
    time_limit: float = 30.0
    least: bool = False
    cache: str | None = None
    objective: str = "time"
    offload: bool = False
    host_budget: int | None = None

    @property
    def planning(self) -> tuple[Any, ...]:
        """The options that a plan depends on: all but the folder of plans."""
        held = self.budget, self.share, self.reserve, self.least
        return *held, self.time_limit, self.objective, self.offload, self.host_budget

    @property
    def free(self) -> bool:
        """Whether there is no budget at all."""
        return self.budget is None and self.share is None and not self.least

    @classmethod
    def read(cls, options: Mapping[str, Any] | None, environment: Mapping[str, str] = os.environ) -> BackendOptions:
        """Return the options that were given, checked; else from `PEBBLER_BUDGET` and `PEBBLER_PLANS` (the cache's folder).

        >>> told = BackendOptions.read({"budget": "8GiB"}, {})
        >>> told.budget, told.share, told.time_limit, told.objective, told.offload
        (8589934592, None, 30.0, 'time', False)
        >>> told = BackendOptions.read({"reserve": "1MB", "host_budget": "1GiB"}, {"PEBBLER_BUDGET": "0.5"})
        >>> told.share, told.reserve, told.offload, told.host_budget
        (0.5, 1000000, True, 1073741824)
        >>> BackendOptions.read({"time_limt": 1}, {})
        Traceback (most recent call last):
        ...
        pebbler.errors.InputError: unknown option time_limt (did you mean time_limit?)
        """
        given = dict(options or {})
        for name in given:
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
        spare = bytes_of(reserve) if reserve else 0
        told = cls(budget, share, spare, float(seconds), least, folder, objective, *_host(given))
        if told.offload and told.free:
            raise InputError("offload: values go to the host to keep a budget: give budget, too, such as 6GiB or least")
        return told


def _host(given: Mapping[str, Any]) -> tuple[bool, int | None]:
    """Return whether values may go to the host, and how many bytes; a limit alone says that they may."""
    limit = given.get("host_budget")
    offload = given.get("offload", limit is not None)
    if not isinstance(offload, bool):
        raise InputError(f"offload: expected True or False, got {quoted(offload)}")
    if limit is None:
        return offload, None
    if not offload:
        raise InputError("host_budget: nothing goes to the host where offload is False: leave one of them out")
    try:
        return True, bytes_of(limit)
    except InputError as error:
        raise InputError(f"host_{error}") from None


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
