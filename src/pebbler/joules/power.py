"""Power and time of repeated work, measured between counter updates until the standard error is small.

A counter shows a new value every 20 to 100 ms, so a window of fixed length has an error of that size at both ends. Instead, work
runs continuously while the counter is watched, and every interval between two updates is one measurement of the power. The
interval before the first update is discarded, because it began before the work.
"""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from pebbler.errors import InputError
from pebbler.joules.meter import EnergyMeter

__all__ = ["CallWork", "PowerReading", "UpdateWatch", "Work", "measure_idle", "measure_power", "time_work"]

_POLL = 0.001
_ERROR = 0.02  # standard error, as a fraction, at which a measurement ends
_LEAST = 2  # stretches between updates
_SHORTEST = 0.015  # seconds of a stretch
_PATIENCE = 5  # times the longest window, for work so long that the counter is hardly looked at


class Work(Protocol):
    """Something to run again and again."""

    runs: int  # how often one launch runs it

    def launch(self) -> None:
        """Start it, at once or behind what still runs; may return before it has ended."""

    def pending(self) -> int:
        """Return the number of launches that have not ended yet."""

    def wait(self) -> None:
        """Wait until all have ended."""


class CallWork:
    """Work that has ended when its function returns.

    >>> work = CallWork(list, runs=5)
    >>> work.launch(), work.pending(), work.runs
    (None, 0, 5)
    """

    def __init__(self, call: Callable[[], object], runs: int = 1) -> None:
        self.runs, self._call = runs, call

    def launch(self) -> None:
        """Run it `runs` times."""
        for _ in range(self.runs):
            self._call()

    def pending(self) -> int:
        """Return 0: nothing is left running."""
        return 0

    def wait(self) -> None:
        """Return at once."""


@dataclass(frozen=True)
class PowerReading:
    """A measurement of repeated work: average watts, seconds of one run, and the standard error of the watts.

    `error` is the standard error of the watts as a fraction, `stretches` between how many updates of the counter it was measured.
    """

    watts: float
    seconds: float
    error: float
    stretches: int

    @property
    def joules(self) -> float:
        """Joules of one run, idle power included."""
        return self.watts * self.seconds


def measure_power(
    work: Work,
    meter: EnergyMeter,
    *,
    seconds: float = 0.5,
    most_seconds: float | None = None,
    settle: float = 0.1,
    error: float = _ERROR,
) -> PowerReading:
    """Return watts and time of work that is kept running for at least `seconds`, and until its standard error is below `error`.

    It ends after `most_seconds` (five times `seconds` by default) in any case, and `error` of the result says how sure it is. For
    `settle` seconds it runs unmeasured first: the first runs compile and allocate, and clocks follow the load.
    """
    most = 5 * seconds if most_seconds is None else most_seconds
    began = meter.clock()
    while True:
        work.launch()
        work.wait()
        if meter.clock() - began >= settle:
            break
    with UpdateWatch(meter) as watch:
        began, launches = meter.clock(), 0
        while True:
            work.launch()
            launches += 1
            while True:  # the next launch comes before this one has ended, so that there is always something to do
                watch.look()
                if work.pending() <= 1:
                    break
                meter.sleep(_POLL)
            spent, updates = meter.clock() - began, watch.seen()
            if spent >= seconds and len(updates) > _LEAST and _spread(updates)[1] < error:
                break
            if spent >= max(most, seconds) * (1 if len(updates) > 1 else _PATIENCE):
                break
    work.wait()
    each = (meter.clock() - began) / (launches * work.runs)
    if len(updates) < 2:
        raise InputError(
            f"the energy counter moved {len(updates)} times in {spent:.3g} s: too slow for a window of {most:g} s"
        )
    watts, uncertain = _spread(updates)
    return PowerReading(watts, each, uncertain, len(updates) - 1)


class UpdateWatch:
    """Notes when a meter's counters are updated, and what they show then: in a thread of its own where time is the wall's.

    A loop that queues work looks at the counter when it gets to it, tens of milliseconds late; a thread that does nothing else is
    late by one reading (some 4 ms with NVML).
    """

    def __init__(self, meter: EnergyMeter) -> None:
        self._meter, self._updates, self._last = meter, list[tuple[float, float]](), meter.read()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, daemon=True) if meter.is_real else None

    def __enter__(self) -> UpdateWatch:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def seen(self) -> list[tuple[float, float]]:
        """Return moments and joules of all updates so far."""
        return list(self._updates)

    def look(self) -> None:
        """Look now, unless a thread does."""
        if self._thread is None:
            self._note()

    def _keep_looking(self) -> None:
        while not self._stop.wait(_POLL):
            self._note()

    def _note(self) -> None:
        before, joules, after = self._meter.clock(), self._meter.read(), self._meter.clock()
        if joules != self._last:
            self._updates.append(((before + after) / 2, joules))
            self._last = joules


def _spread(updates: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the average power from the first update to the last, and its standard error as a fraction."""
    (begin, low), (end, high) = updates[0], updates[-1]
    watts = (high - low) / (end - begin)
    moments = _apart(updates)
    if len(moments) < 3 or watts <= 0:
        return watts, math.inf
    each = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(moments)]
    return watts, statistics.stdev(each) / math.sqrt(len(each)) / watts


def _apart(updates: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return updates that are some way apart: when exactly one came is known no better than how often the counter is looked at.

    >>> _apart([(0.0, 1.0), (0.001, 2.0), (0.02, 3.0), (0.021, 4.0), (0.05, 5.0)])
    [(0.0, 1.0), (0.02, 3.0), (0.05, 5.0)]
    """
    kept = updates[:1]
    for update in updates[1:]:
        if update[0] - kept[-1][0] >= _SHORTEST:
            kept.append(update)
    return kept


def measure_idle(meter: EnergyMeter, seconds: float = 1.0) -> float:
    """Return the watts that are drawn while nothing is asked of the device: from update to update over about `seconds`."""
    begin, low = meter.next_update()
    end, high = begin, low
    while end - begin < seconds:
        end, high = meter.next_update()
    return (high - low) / (end - begin)


def time_work(work: Work, clock: Callable[[], float], seconds: float = 0.2) -> float:
    """Return the least seconds of one run among launches that go on for `seconds`: what is known without a counter.

    The least, because whatever else runs on the machine only ever makes it slower.

    >>> moments = iter([0, 3, 4, 6, 10, 11, 20, 21])
    >>> time_work(CallWork(list, runs=2), lambda: next(moments), seconds=10)
    0.5
    """
    work.launch()
    work.wait()
    began = now = clock()
    best = math.inf
    while now - began < seconds:
        before = now
        work.launch()
        work.wait()
        now = clock()
        best = min(best, now - before)
    return best / work.runs
