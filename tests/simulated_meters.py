"""Meters whose joules are known: a simulated device with a clock of its own, and a counter that follows the real one."""

from __future__ import annotations

import time
from collections.abc import Callable

from pebbler.joules.meter import EnergyMeter


class SimulatedDevice:
    """A device that draws `idle` watts, and more while work is queued on it; its counter is updated every `period`.

    `noise` is how many joules too much or too little an update shows, by its number.
    """

    def __init__(
        self, idle: float = 80.0, period: float = 0.02, noise: Callable[[int], float] = lambda update: 0.0
    ) -> None:
        self.now, self.idle, self.period, self.noise = 0.0, idle, period, noise
        self.queue: list[
            tuple[float, float, float]
        ] = []  # begin, end, watts of what may not have ended at the last update
        self.ended = 0.0  # joules above idle of what has
        self.name = "simulated GPU"

    def clock(self) -> float:
        self.now += 1e-5  # looking takes time too
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def read(self) -> float:
        update = int(self.now / self.period)
        until = update * self.period
        while self.queue and self.queue[0][1] <= until:
            begin, end, watts = self.queue.pop(0)
            self.ended += (end - begin) * (watts - self.idle)
        running = sum((until - begin) * (watts - self.idle) for begin, end, watts in self.queue if begin < until)
        return round(until * self.idle + self.ended + running + self.noise(update), 3)

    def meter(self) -> EnergyMeter:
        return EnergyMeter([self], self.clock, self.sleep)


class SimulatedWork:
    """Work of known seconds and watts, queued behind what still runs."""

    def __init__(self, device: SimulatedDevice, seconds: float, watts: float, runs: int = 1) -> None:
        self.device, self.seconds, self.watts, self.runs = device, seconds, watts, runs
        self.ends: list[float] = []

    def launch(self) -> None:
        begin = max([self.device.now, *self.ends[-1:]])
        end = begin + self.seconds * self.runs
        self.device.queue.append((begin, end, self.watts))
        self.ends = [*self.ends[-2:], end]

    def pending(self) -> int:
        return sum(end > self.device.now for end in self.ends)

    def wait(self) -> None:
        self.device.now = max([self.device.now, *self.ends])


class WallCounter:
    """A counter of a device that draws `watts` all the time, by the real clock."""

    def __init__(self, watts: float = 100.0, period: float = 0.004, name: str = "CPU 0") -> None:
        self.watts, self.period, self.name = watts, period, name
        self.began = time.perf_counter()

    def read(self) -> float:
        return self.watts * self.period * int((time.perf_counter() - self.began) / self.period)
