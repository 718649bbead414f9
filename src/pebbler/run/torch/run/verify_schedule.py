"""The schedule of verification: a planned step is compared with the original step at first, then ever more rarely."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Literal

from pebbler.errors import InputError, quoted

__all__ = ["Verify", "VerifySchedule", "require_verify"]

# "again": the first call of a phase, calls 2, 4, 8, ... and then every so often; a number: the first, and every so many calls.
Verify = Literal["again", "first", "never"] | int

_DOUBLED = 256  # up to this call, every power of two
_SHARE = 128  # from then on, a comparison may take one of so many parts of the time between two


class VerifySchedule:
    """Says of every call after a plan's first whether it is to be compared.

    >>> schedule = VerifySchedule("again", clock=lambda: 0.0)
    >>> [number for number in range(1, 1200) if schedule.due() and schedule.done() is None]
    [2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024]
    """

    def __init__(self, verify: Verify, clock: Callable[[], float] = time.perf_counter) -> None:
        self._verify, self._clock = verify, clock
        self.calls = 0
        self.last = 1  # the call that was compared last
        self._next: float = math.inf
        if verify == "again":
            self._next = 2
        elif not isinstance(verify, str):
            self._next = 1 + verify
        self._began = self._ended = clock()

    def due(self) -> bool:
        """Count a call, and say whether it is to be compared; if so, say `done` after it."""
        self.calls += 1
        if self.calls < self._next:
            return False
        self._began = self._clock()
        return True

    def done(self) -> None:
        """Note that a call was compared, and choose the next one."""
        now = self._clock()
        calls, spent, between = self.calls - self.last, now - self._began, self._began - self._ended
        self.last, self._ended = self.calls, now
        if not isinstance(self._verify, str):
            self._next = self.calls + self._verify
        elif self.calls < _DOUBLED:
            self._next = 2 * self.calls
        else:
            worth = _SHARE * spent / between * calls if between > 0 else 0
            self._next = self.calls + max(_DOUBLED, math.ceil(worth))


def require_verify(verify: Verify) -> None:
    """Refuse unknown values of `verify`."""
    number = isinstance(verify, int) and not isinstance(verify, bool) and verify > 0
    if not number and verify not in ("again", "first", "never"):
        raise InputError(f"verify must be again, first, never or a number of calls, got {quoted(verify)}")
