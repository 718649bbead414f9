"""Training steps that visit the hidden layer tile by tile, as event traces.

A schedule knows how to `start` (write its parameters) and which steps its endless loop consists of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from pebbler.errors import InputError
from pebbler.notes.step_scripts import play, sizes_of
from pebbler.trace.buffer_events import Events, buffer_lru

__all__ = ["FLOATS_PER_KB", "Pipelined", "SteadyMisses", "Tiled", "TrainingLoop", "steady_lru", "tile_spans"]

FLOATS_PER_KB = 256
_WARM_UP = 3

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
    if not 1 <= tile <= hidden:
        raise InputError(f"tile: expected 1 to hidden = {hidden} units, got {tile}")
    return [(f"_t{i}", min(tile, hidden - lo)) for i, lo in enumerate(range(0, hidden, tile))]


def _by_tile(events: Events, script: str, n: int, tiles: Iterable[tuple[str, int]], batch: int = 1) -> None:
    for suffix, units in tiles:
        play(events, script, sizes_of(n, units, batch), suffix)


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
    """Return what one step reads and misses in a buffer-granular LRU cache, once what came before the loop no longer matters.

    >>> steady_lru(Tiled(20, 1000, 20, reverse=True, tile_dh=True), 64 * FLOATS_PER_KB).missed_floats
    23384.0
    """
    events = Events()
    schedule.start(events)
    steps = schedule.loop()
    since = 0
    for _ in range(_WARM_UP):
        since = len(events)
        for step in steps:
            step(events)
    total = buffer_lru(events, cache_floats, since=since).of(events.names)
    return SteadyMisses(total.floats / len(steps), total.missed_floats / len(steps))
