"""A meter: joules and seconds between two moments."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import TracebackType

from pebbler.errors import InputError
from pebbler.joules.energy_counters import EnergyCounter, find_counters

__all__ = ["EnergyMeter", "meter"]

_POLL = 0.001  # seconds between two looks at a counter that has not moved
_PATIENCE = 2.0  # seconds after which a counter that has not moved is broken
_OFTEN = 30.0  # seconds between readings of counters that wrap


def meter(counters: Sequence[EnergyCounter] | None = None) -> EnergyMeter:
    """Return a meter for a `with` block: its `joules`, `seconds` and `watts`.

    Without `counters` those of this machine are added up: every visible NVIDIA GPU, and the CPU where RAPL may be read. Raises
    `NoCounter` where there is none. Work that PyTorch has queued on a GPU is waited for at both ends.

    >>> from pebbler.joules.energy_counters import RecordedCounter
    >>> readings = iter(range(10))
    >>> clock = lambda: next(readings)
    >>> with meter([RecordedCounter("GPU 0", [(t, 100.0 * t) for t in range(10)], clock)]) as m:
    ...     pass  # train
    >>> m.joules
    100.0
    """
    return EnergyMeter(find_counters() if counters is None else counters)


class EnergyMeter:
    """The sum of some counters over a window, or over several: it may be entered again, and then starts from 0.

    `clock` and `sleep` are for meters whose time is not that of the wall.
    """

    def __init__(
        self,
        counters: Sequence[EnergyCounter],
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not counters:
            raise InputError("a meter needs at least one counter")
        self.counters, self.clock, self.sleep = tuple(counters), clock, sleep
        self._began = self._ended = 0.0
        self._first: list[float] = []
        self._last: list[float] = []
        self._inside = False
        self._stop = threading.Event()

    @property
    def is_real(self) -> bool:
        """Whether its time is the wall's, so that a thread can watch it."""
        return self.clock is time.perf_counter

    def read(self) -> float:
        """Return the joules of all counters together, since some moment in the past."""
        return sum(self._read())

    def _read(self) -> list[float]:
        return [counter.read() for counter in self.counters]

    def __enter__(self) -> EnergyMeter:
        if self._inside:
            raise InputError("this meter is running already: a window inside another needs a meter of its own")
        synchronize()
        self._inside = True
        self._first, self._began = self._read(), self.clock()
        if any(getattr(counter, "wraps", False) for counter in self.counters):
            self._stop = threading.Event()
            threading.Thread(target=self._keep_reading, args=(self._stop,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            synchronize()
        finally:
            self._last, self._ended = self._read(), self.clock()
            self._inside = False
            self._stop.set()

    def _keep_reading(self, stop: threading.Event) -> None:
        while not stop.wait(_OFTEN):
            self._read()

    @property
    def by_counter(self) -> dict[str, float]:
        """Joules of every counter by its name: in the window, or until now while it lasts."""
        if not self._first:
            raise InputError("this meter has measured nothing yet: use it in a with statement")
        last = self._read() if self._inside else self._last
        names = (counter.name for counter in self.counters)
        return {name: after - before for name, before, after in zip(names, self._first, last, strict=True)}

    @property
    def joules(self) -> float:
        """Joules of all counters in the window, idle power included."""
        return sum(self.by_counter.values())

    @property
    def seconds(self) -> float:
        """The length of the window so far, in seconds."""
        return (self.clock() if self._inside else self._ended) - self._began

    @property
    def watts(self) -> float:
        """The average power in the window."""
        return self.joules / self.seconds if self.seconds > 0 else 0.0

    def next_update(self) -> tuple[float, float]:
        """Wait until the counters show something else, and return when that was and the joules of all of them."""
        before, ends = self.read(), self.clock() + _PATIENCE
        while True:
            self.sleep(_POLL)
            joules, now = self.read(), self.clock()
            if joules != before:
                return now, joules
            if now > ends:
                names = ", ".join(counter.name for counter in self.counters)
                raise InputError(f"the energy counter of {names} has not moved for {_PATIENCE:g} s: it cannot be used")

    def find_period(self, updates: int = 4) -> float:
        """Return the seconds between two updates of the counters, the longest of a few; shorter windows say nothing."""
        moments = [self.next_update()[0] for _ in range(updates + 1)]
        return max(after - before for before, after in pairwise(moments))


def synchronize() -> None:
    """Wait for what PyTorch has queued on GPUs, if it is there at all and has begun to use them."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        for device in range(torch.cuda.device_count()):
            if torch.cuda.memory_reserved(device):  # to wait for a GPU that is not in use would begin to use it
                torch.cuda.synchronize(device)
