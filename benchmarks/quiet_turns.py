"""Processes that prepare side by side, and stand still while one of them is timed.

The parent starts the processes, each in a group of its own with the compilers that it starts. One that is ready to be timed asks
for its turn; the parent stops the groups of all others (SIGSTOP), and lets them go on (SIGCONT) when the turn is over, when its
process has died, or when it takes too long. Whoever stood still is told for how long, so that it can leave that out of its times.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

__all__ = ["QuietTurns", "Turn"]

_LOOK = 0.01  # seconds between two looks at a file
_CALM = 0.1  # seconds that a device gets to finish what the others had asked of it


class QuietTurns:
    """The parent's side: which processes run, and whose turn it is."""

    def __init__(self, folder: Path, at_once: int, longest_turn: float = 60.0) -> None:
        self.folder, self.at_once, self.longest_turn = folder, at_once, longest_turn
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._waiting: dict[str, tuple[Sequence[str], Mapping[str, str]]] = {}
        self._paused: dict[str, float] = {}

    def __enter__(self) -> QuietTurns:
        # `timeout` and job queues end a process this way: the processes that stand still must end too.
        self._before = signal.signal(signal.SIGTERM, _leave)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        signal.signal(signal.SIGTERM, self._before)
        for name, process in self.processes.items():
            if process.poll() is None:
                self._signal(name, signal.SIGKILL)
                process.wait()

    def add(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Have a process started as soon as fewer than `at_once` run."""
        self._waiting[name] = (command, environment)

    def serve(self, until: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Start processes and give turns until all have ended, or until this time; what still runs then is ended on leaving."""
        while time.time() < until:
            running = self._running()
            while self._waiting and len(running) < self.at_once:
                self._start(next(iter(self._waiting)))
                running = self._running()
            if not running:
                return
            asking = [name for name in running if self._asks(name).exists()]
            if asking:
                self._give_turn(min(asking, key=self._asked_at), until)
            meanwhile()
            time.sleep(_LOOK)

    def _running(self) -> list[str]:
        return [name for name, process in self.processes.items() if process.poll() is None]

    def _start(self, name: str) -> None:
        command, environment = self._waiting.pop(name)
        self.processes[name] = subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True)

    def _asks(self, name: str) -> Path:
        return self.folder / f"{name}.asks"

    def _asked_at(self, name: str) -> float:
        try:
            return self._asks(name).stat().st_mtime
        except FileNotFoundError:
            return float("inf")

    def _give_turn(self, name: str, until: float) -> None:
        others = [other for other in self._running() if other != name]
        began = time.monotonic()
        for other in others:
            self._signal(other, signal.SIGSTOP)
        time.sleep(_CALM)
        turn = self.folder / f"{name}.turn"
        turn.touch()
        while self._asks(name).exists() and self.processes[name].poll() is None and time.time() < until:
            if time.monotonic() - began > self.longest_turn:
                self._asks(name).unlink(missing_ok=True)
            time.sleep(_LOOK)
        turn.unlink(missing_ok=True)
        self._asks(name).unlink(missing_ok=True)
        stood = time.monotonic() - began
        for other in others:
            self._paused[other] = self._paused.get(other, 0.0) + stood
            aside = self.folder / f"{other}.paused.new"
            aside.write_text(str(self._paused[other]))
            aside.rename(self.folder / f"{other}.paused")
            self._signal(other, signal.SIGCONT)

    def _signal(self, name: str, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.killpg(self.processes[name].pid, number)


class Turn:
    """A process's own side: ask to be alone, and know for how long one stood still. Without a folder, one is alone anyway."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self.folder, self.name = folder, name
        self._parent = os.getppid()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Wait for one's turn, and have it for the length of a block."""
        if self.folder is None:
            yield
            return
        asks, turn = self.folder / f"{self.name}.asks", self.folder / f"{self.name}.turn"
        asks.touch()
        while not turn.exists():
            if os.getppid() != self._parent:
                raise RuntimeError("the process that gives turns has ended")
            time.sleep(_LOOK)
        try:
            yield
        finally:
            asks.unlink(missing_ok=True)
            while (
                turn.exists() and os.getppid() == self._parent
            ):  # else the next question would be answered by this turn
                time.sleep(_LOOK)

    def taken_away(self) -> bool:
        """Return whether the turn took too long, so that the others go on."""
        return self.folder is not None and not (self.folder / f"{self.name}.asks").exists()

    def paused(self) -> float:
        """Return for how many seconds this process has stood still so far."""
        if self.folder is None:
            return 0.0
        try:
            return float((self.folder / f"{self.name}.paused").read_text())
        except FileNotFoundError:
            return 0.0


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
