"""Training loops, untiled or tiled, as event traces, and their cache misses in steady state.

A schedule has a `start`, which writes its parameters, and the steps of its endless loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pebbler.notes.parity import tile_bounds
from pebbler.notes.step_scripts import PARAMS, batch_step, play, sizes_of, step
from pebbler.trace.buffer_events import Events, buffer_lru
from pebbler.trace.caches import opt_hits
from pebbler.trace.distances import reuse_distances

__all__ = [
    "FLOATS_PER_KB", "Loads", "Pipelined", "SteadyMisses", "Tiled", "TrainingLoop", "Untiled", "parameter_loads", "steady_lru",
    "tile_spans",
]  # fmt: skip

FLOATS_PER_KB = 256
_LINE = 16  # floats, 64 bytes
_REPETITIONS = 3

_FORWARD = "R x W1* b1*; W h_pre*; R h_pre*; W h*"
_BACKWARD = "R dh* h_pre*; W dh_pre*; R dh_pre* x W1*; W W1*; R dh_pre* b1*; W b1*"
# dh takes the old W2 before the update destroys it, one tile at a time.
_BACKWARD_W2 = "R W2* dout; W dh*; R dout h*; W dW2*; R dW2* W2*; W W2*"


class TrainingLoop(Protocol):
    """A training loop as events."""

    def start(self, events: Events) -> None:
        """Append the initial writes."""

    def loop(self) -> list[Callable[[Events], None]]:
        """Return the steps that repeat for ever."""


def tile_spans(hidden: int, tile: int) -> list[tuple[str, int]]:
    """Return the suffix and the hidden units of every tile; the last may be smaller.

    >>> tile_spans(1000, 400)
    [('_t0', 400), ('_t1', 400), ('_t2', 200)]
    """
    return [(f"_t{i}", high - low) for i, (low, high) in enumerate(tile_bounds(hidden, tile))]


def _by_tile(events: Events, script: str, n: int, tiles: Iterable[tuple[str, int]], batch: int = 1) -> None:
    for suffix, units in tiles:
        play(events, script, sizes_of(n, units, batch), suffix)


@dataclass(frozen=True)
class Untiled:
    """A loop of single-sample steps or of note 004's mini-batch steps, every sample with a gradient.

    Parameters are written once, at the start.
    """

    n: int
    hidden: int
    batch: int | None = None

    def start(self, events: Events) -> None:
        """Append the initial writes."""
        play(events, "W W1 b1 W2 b2", sizes_of(self.n, self.hidden))

    def loop(self) -> list[Callable[[Events], None]]:
        """Return the one step."""
        if self.batch is None:
            return [lambda events: step(events, self.n, self.hidden, fires=True, fresh=False)]
        fires = [True] * self.batch
        return [lambda events: batch_step(events, self.n, self.hidden, fires, fresh=False)]


@dataclass(frozen=True)
class Tiled:
    """Note 002's step: forward over the tiles of layer 1, layer 2 whole, backward over the tiles of layer 1.

    `reverse` visits the tiles backwards in the backward pass. The note writes dh whole but reads it by tile name, so those
    reads find nothing; `tile_dh` repairs that. `tile_w2` tiles layer 2 as well. With a `batch` every op is a product of
    matrices over all its samples, which sums the gradient by itself.

    >>> events = Events()
    >>> tiled = Tiled(20, 1000, 50)
    >>> tiled.start(events)
    >>> tiled.step(events)
    >>> events.reads, events.writes, events.total_floats
    (251, 151, 102833)
    """

    n: int
    hidden: int
    tile: int
    reverse: bool = False
    tile_dh: bool = False
    tile_w2: bool = False
    batch: int = 1

    def start(self, events: Events) -> None:
        """Append the initial writes: W1 and b1 tile by tile, then W2 and b2."""
        tiles, whole = tile_spans(self.hidden, self.tile), sizes_of(self.n, self.hidden)
        _by_tile(events, "W W1* b1*", self.n, tiles)
        if self.tile_w2:
            _by_tile(events, "W W2*", self.n, tiles)
            play(events, "W b2", whole)
        else:
            play(events, "W W2 b2", whole)

    def loop(self) -> list[Callable[[Events], None]]:
        """Return the one step, on a sample that makes a gradient."""
        return [self.step]

    def step(self, events: Events, fires: bool = True) -> None:
        """Append one step; without `fires` it ends at the loss."""
        whole, tiles = sizes_of(self.n, self.hidden, self.batch), tile_spans(self.hidden, self.tile)
        play(events, "W x y", whole)
        _by_tile(events, _FORWARD, self.n, tiles, self.batch)
        _by_tile(events, "R h* W2*" if self.tile_w2 else "R h*", self.n, tiles, self.batch)
        play(events, "R b2; W out; R out y" if self.tile_w2 else "R W2 b2; W out; R out y", whole)
        if not fires:
            return
        back = tiles[::-1] if self.reverse else tiles
        play(events, "W dout", whole)
        if self.tile_w2:
            _by_tile(events, f"{_BACKWARD_W2}; {_BACKWARD}", self.n, back, self.batch)
            play(events, "R dout; W db2; R db2 b2; W b2", whole)
            return
        play(events, "R dout", whole)
        _by_tile(events, "R h*", self.n, tiles, self.batch)
        play(events, "W dW2 db2; R W2 dout", whole)
        if self.tile_dh:
            _by_tile(events, "W dh*", self.n, tiles, self.batch)
        else:
            play(events, "W dh", whole)
        _by_tile(events, _BACKWARD, self.n, back, self.batch)
        play(events, "R dW2 W2; W W2; R db2 b2; W b2", whole)


@dataclass(frozen=True)
class Pipelined:
    """The fully tiled loop: each tile takes the last sample's update and at once the next sample's forward pass.

    Between an update of a tile and its next forward pass nothing else touches it, so moving the two together changes no
    value, and each tile is visited once per sample instead of twice. `alternate` visits the tiles in turn up and down.
    """

    n: int
    hidden: int
    tile: int
    alternate: bool = False

    def start(self, events: Events) -> None:
        """Append the initial writes and the first sample's forward pass."""
        tiles, whole = tile_spans(self.hidden, self.tile), sizes_of(self.n, self.hidden)
        _by_tile(events, "W W1* b1* W2*", self.n, tiles)
        play(events, "W b2 x x_old y", whole)
        _by_tile(events, f"{_FORWARD}; R h* W2*", self.n, tiles)
        play(events, "R b2; W out; R out y; W dout", whole)

    def loop(self) -> list[Callable[[Events], None]]:
        """Return two steps: the samples take turns in two input buffers."""
        return [lambda events: self._step(events, False), lambda events: self._step(events, True)]

    def _step(self, events: Events, odd: bool) -> None:
        old, new = ("x_old", "x") if odd else ("x", "x_old")
        tiles = tile_spans(self.hidden, self.tile)
        visit = f"{_BACKWARD_W2}; {_BACKWARD.replace('x W1*', f'{old} W1*')}; {_FORWARD.replace('R x', f'R {new}')}; R h* W2*"
        play(events, f"W {new}; R dout; W db2; R db2 b2; W b2", sizes_of(self.n, self.hidden))
        for suffix, units in tiles[::-1] if odd and self.alternate else tiles:
            play(events, visit, sizes_of(self.n, units), suffix)
        play(events, "W y; R b2; W out; R out y; W dout", sizes_of(self.n, self.hidden))


def _repeat(schedule: TrainingLoop) -> tuple[Events, int]:
    """Return the events of a loop that has run often enough to be steady, and where the last repetition begins."""
    events, since = Events(), 0
    schedule.start(events)
    for _ in range(_REPETITIONS):
        since = len(events)
        for one in schedule.loop():
            one(events)
    return events, since


@dataclass(frozen=True)
class SteadyMisses:
    """Per step: floats read, and those of them that had to be loaded."""

    read_floats: float
    missed_floats: float

    @property
    def hit_rate(self) -> float:
        """The share of floats read that were there, in %."""
        return 100 * (1 - self.missed_floats / self.read_floats)


def steady_lru(schedule: TrainingLoop, cache_floats: int) -> SteadyMisses:
    """Return the reads and misses of one step in a buffer-granular LRU cache in steady state.

    >>> steady_lru(Tiled(20, 1000, 20, reverse=True, tile_dh=True), 64 * FLOATS_PER_KB).missed_floats
    23384.0
    """
    events, since = _repeat(schedule)
    steps = len(schedule.loop())
    total = buffer_lru(events, cache_floats, since=since).of(events.names)
    return SteadyMisses(total.floats / steps, total.missed_floats / steps)


@dataclass(frozen=True)
class Loads:
    """Parameter floats loaded per step in steady state."""

    lru: int
    opt: int


def parameter_loads(schedule: TrainingLoop, cache_floats: Sequence[int]) -> list[Loads]:
    """Return the parameter floats that one step of the loop loads from DRAM, for each cache size.

    Element by element, in lines of 64 bytes (16 floats); every buffer starts on a line of its own, and writing a line puts it
    into the cache without loading it.

    OPT keeps whatever lets the most reads of any line find it (Belady's rule; a line may bypass the cache, and one that is
    written before it is read again is not worth keeping).

    >>> parameter_loads(Untiled(20, 1000), [16384, 65536])
    [Loads(lru=44064, opt=14384), Loads(lru=0, opt=0)]
    """
    events, since = _repeat(schedule)
    words, event = _lines(events)
    writes = events.is_write()[event]
    parameter = np.array([name.partition("_t")[0] in PARAMS for name in events.names])
    counted = (event >= since) & ~writes & parameter[events.buffers()[event]]
    distance = reuse_distances(words)
    result = []
    for floats in cache_floats:
        lines = floats // _LINE
        lru = counted & ((distance == 0) | (distance > lines))
        opt = counted & ~opt_hits(words, writes, lines)
        result.append(Loads(_LINE * int(lru.sum()), _LINE * int(opt.sum())))
    return result


def _lines(events: Events) -> tuple[np.ndarray, np.ndarray]:
    """Return the line of every access and the event it belongs to."""
    buffers, lines = events.buffers(), -(-events.sizes() // _LINE)
    most = np.zeros(len(events.names), dtype=np.int64)
    np.maximum.at(most, buffers, lines)
    first = np.cumsum(most) - most
    event = np.repeat(np.arange(len(buffers)), lines)
    start = np.cumsum(lines) - lines
    return first[buffers[event]] + np.arange(len(event)) - start[event], event
