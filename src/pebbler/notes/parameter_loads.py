"""Parameter floats that a training loop loads from DRAM, under LRU and under the best possible replacement.

Element by element, in lines of 64 bytes (16 floats); every buffer starts on a line of its own. Writing a line puts it into
the cache without loading it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pebbler.notes.step_scripts import PARAMS, batch_step, play, sizes_of, step
from pebbler.notes.tiled_loops import TrainingLoop
from pebbler.trace.buffer_events import Events
from pebbler.trace.caches import opt_hits
from pebbler.trace.distances import reuse_distances

__all__ = ["LINE", "Batched", "Loads", "Singles", "parameter_loads"]

LINE = 16
_REPEATS = 3


@dataclass(frozen=True)
class Singles:
    """A loop of single-sample steps, every one with a gradient, parameters written once at the start."""

    n: int
    hidden: int

    def start(self, events: Events) -> None:
        """Append the initial writes."""
        play(events, "W W1 b1 W2 b2", sizes_of(self.n, self.hidden))

    def loop(self) -> list[Callable[[Events], None]]:
        """Return the one step."""
        return [lambda events: step(events, self.n, self.hidden, fires=True, fresh=False)]


@dataclass(frozen=True)
class Batched:
    """A loop of note 004's mini-batch steps, every sample with a gradient, parameters written once at the start."""

    n: int
    hidden: int
    batch: int

    def start(self, events: Events) -> None:
        """Append the initial writes."""
        play(events, "W W1 b1 W2 b2", sizes_of(self.n, self.hidden))

    def loop(self) -> list[Callable[[Events], None]]:
        """Return the one step."""
        fires = [True] * self.batch
        return [lambda events: batch_step(events, self.n, self.hidden, fires, fresh=False)]


@dataclass(frozen=True)
class Loads:
    """Parameter floats loaded per step in steady state."""

    lru: int
    opt: int


def parameter_loads(schedule: TrainingLoop, cache_floats: Sequence[int]) -> list[Loads]:
    """Return the parameter floats that one step of the loop loads, for each cache size.

    OPT keeps whatever lets the most reads of any line find it (Belady's rule; a line may bypass the cache, and one that is
    written before it is read again is not worth keeping).

    >>> parameter_loads(Singles(20, 1000), [16384, 65536])
    [Loads(lru=44064, opt=14384), Loads(lru=0, opt=0)]
    """
    events = Events()
    schedule.start(events)
    since = 0
    for _ in range(_REPEATS):
        since = len(events)
        for one in schedule.loop():
            one(events)
    words, event = _lines(events)
    writes = events.is_write()[event]
    parameter = np.array([name.partition("_t")[0] in PARAMS for name in events.names])
    counted = (event >= since) & ~writes & parameter[events.buffers()[event]]
    distance = reuse_distances(words)
    result = []
    for floats in cache_floats:
        lines = floats // LINE
        lru = counted & ((distance == 0) | (distance > lines))
        opt = counted & ~opt_hits(words, writes, lines)
        result.append(Loads(LINE * int(lru.sum()), LINE * int(opt.sum())))
    return result


def _lines(events: Events) -> tuple[np.ndarray, np.ndarray]:
    """Return the line of every access and the event it belongs to."""
    buffers, lines = events.buffers(), -(-events.sizes() // LINE)
    most = np.zeros(len(events.names), dtype=np.int64)
    np.maximum.at(most, buffers, lines)
    first = np.cumsum(most) - most
    event = np.repeat(np.arange(len(buffers)), lines)
    start = np.cumsum(lines) - lines
    return first[buffers[event]] + np.arange(len(event)) - start[event], event
