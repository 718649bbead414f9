"""Running another program with the energy counters on."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

from pebbler.errors import InputError, quoted
from pebbler.joules.meter import EnergyMeter, meter
from pebbler.joules.power import measure_idle

__all__ = ["MeasuredProgram"]

_SIGNALLED = 128  # a program ended by signal n has the status 128 + n, as in a shell


class MeasuredProgram:
    """A program's joules and seconds, with idle power before and after it; its output goes where it always goes.

    `by_counter`, `joules`, `seconds` and `watts` are those of the window in which it ran, up to now while it runs.
    """

    def __init__(self, command: Sequence[str], *, idle: float = 1.0, meter_: EnergyMeter | None = None) -> None:
        if not 0 <= idle <= 3600:
            raise InputError(f"idle power is measured for 0 to 3600 seconds, got {idle:g}")
        if not command:
            raise InputError("name a program to measure, after --")
        self._command, self._idle = list(command), idle
        self._meter = meter() if meter_ is None else meter_
        self._process: subprocess.Popen[bytes] | None = None
        self.idle_watts: list[float] = []
        self.period = 0.0
        self.status = 0

    def run(self) -> None:
        """Run it to its end; `status` is what it returns."""
        self.period = self._meter.find_period()
        if self._idle:
            self.idle_watts.append(measure_idle(self._meter, self._idle))
        with self._meter:
            try:
                self._process = subprocess.Popen(self._command)
            except OSError as error:
                raise InputError(f"{quoted(self._command[0])} cannot be run: {error.strerror or error}") from None
            except ValueError as error:
                raise InputError(f"{quoted(self._command[0])} cannot be run: {error}") from None
            code = self._process.wait()
        self.status = _SIGNALLED - code if code < 0 else code
        if self._idle:
            self.idle_watts.append(measure_idle(self._meter, self._idle))

    def stop(self) -> None:
        """End it if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    @property
    def has_begun(self) -> bool:
        """Whether it was started."""
        return self._process is not None

    @property
    def title(self) -> str:
        """The program's first word and how it ended."""
        ended = self._process is not None and self._process.returncode is not None
        return f"{quoted(self._command[0])}: {f'exit status {self.status}' if ended else 'interrupted'}"

    @property
    def by_counter(self) -> dict[str, float]:
        """Joules by the name of the counter."""
        return self._meter.by_counter

    @property
    def joules(self) -> float:
        """Joules of all counters, idle power included."""
        return self._meter.joules

    @property
    def seconds(self) -> float:
        """The run time in seconds."""
        return self._meter.seconds

    @property
    def watts(self) -> float:
        """Average power."""
        return self._meter.watts

    @property
    def net_joules(self) -> float | None:
        """Joules beyond what the machine would have drawn idle in that time."""
        if not self.idle_watts:
            return None
        return self.joules - sum(self.idle_watts) / len(self.idle_watts) * self.seconds

    @property
    def uncertain_joules(self) -> float:
        """The error in joules from a counter update that comes too early or too late."""
        return self.watts * self.period

    def figures(self) -> dict[str, Any]:
        """Return all figures, with their units in their names."""
        return {
            "command": self._command, "status": self.status, "joules": self.joules, "seconds": self.seconds, "watts": self.watts,
            "joules_by_counter": self.by_counter, "idle_watts": self.idle_watts, "joules_beyond_idle": self.net_joules,
            "uncertain_joules": self.uncertain_joules, "counter_period_seconds": self.period,
        }  # fmt: skip
