"""Clock-based reuse distance of whole buffers: the notes' ARD, DMC and buffer-granular LRU.

A clock counts floats. Writing a buffer stamps it with the clock and advances the clock by its size; reading it has the
distance clock - stamp, and advances the clock too, but never restamps. A read of a buffer that was never written has
distance `NEVER_WRITTEN`: it advances the clock and is left out of every count and average.
"""

from __future__ import annotations

import operator
from array import array
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn, SupportsIndex

import numpy as np

from pebbler.arrays import Bools, Ints
from pebbler.errors import InputError, near_matches, quoted

__all__ = ["NEVER_WRITTEN", "BufferCache", "Events", "Traffic", "buffer_lru", "whole_size"]

NEVER_WRITTEN = -1
_LARGEST = 2**62


class Events:
    """Reads and writes of named buffers, in program order.

    >>> events = Events()
    >>> events.write("a", 100)
    >>> events.write("b", 50)
    >>> events.read("a")
    >>> events.distances("a"), events.reads, events.writes, events.total_floats
    ([150], 1, 2, 250)
    """

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._size_of: list[int] = []  # by id; 0 until the first write
        self._buffer = array("q")
        self._size = array("q")
        self._write = array("b")
        self._clock = 0

    def write(self, name: str, size: int) -> None:
        """Write a whole buffer of `size` floats."""
        size = whole_size(size, f"write {quoted(name)}")
        buffer = self._intern(name)
        self._size_of[buffer] = size
        self._append(buffer, size, True)

    def read(self, name: str, size: int | None = None) -> None:
        """Read a buffer: as much as was last written there, unless `size` says otherwise."""
        if size is None:
            buffer = self._ids.get(name, -1)
            size = self._size_of[buffer] if buffer >= 0 else 0
            if not size:
                self._refuse(name, "read")
        else:
            size = whole_size(size, f"read {quoted(name)}")
            buffer = self._intern(name)
        self._append(buffer, size, False)

    def __len__(self) -> int:
        return len(self._buffer)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.reads} reads, {self.writes} writes, {self.total_floats} floats>"

    @property
    def names(self) -> tuple[str, ...]:
        """The buffers in the order of their first event."""
        return tuple(self._ids)

    @property
    def reads(self) -> int:
        """The number of reads, without those of never-written buffers."""
        return int(np.count_nonzero(self.counted()))

    @property
    def writes(self) -> int:
        """The number of writes."""
        return sum(self._write)

    @property
    def total_floats(self) -> int:
        """The final clock: floats of every event, counted or not."""
        return self._clock

    @property
    def floats_read(self) -> int:
        """Floats of the reads that count."""
        return sum(self.sizes()[self.counted()].tolist())

    def buffers(self) -> Ints:
        """Return the index into `names` of each event's buffer."""
        return np.array(self._buffer, dtype=np.int64)

    def sizes(self) -> Ints:
        """Return the size of each event in floats."""
        return np.array(self._size, dtype=np.int64)

    def is_write(self) -> Bools:
        """Return a mask of the events that are writes."""
        return np.array(self._write, dtype=np.bool_)

    def all_distances(self) -> Ints:
        """Return the distance of every event to the last write of its buffer before it.

        Without one it is `NEVER_WRITTEN`. Writes have a distance too, but averages use only reads.

        >>> events = Events()
        >>> events.write("a", 100); events.read("a"); events.read("x", 5); events.write("a", 100)
        >>> events.all_distances().tolist()
        [-1, 100, -1, 205]
        """
        buffers, sizes, writes = self.buffers(), self.sizes(), self.is_write()
        clock = np.cumsum(sizes) - sizes
        # With the events grouped by buffer, the last write before each one is a running maximum inside its group; the
        # group's own start separates it from the group before.
        order = np.argsort(buffers, kind="stable")
        position = np.arange(len(order))
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = buffers[order][1:] != buffers[order][:-1]
        group = np.maximum.accumulate(np.where(first, position, 0))
        last = np.maximum.accumulate(np.where(writes[order], position, -1))
        before = np.empty_like(last)
        before[:1] = -1
        before[1:] = last[:-1]
        known = before >= group
        result = np.full(len(order), NEVER_WRITTEN, dtype=np.int64)
        result[order[known]] = clock[order[known]] - clock[order[before[known]]]
        return result

    def counted(self) -> Bools:
        """Return a mask of the events that are counted reads."""
        known: Bools = self.all_distances() != NEVER_WRITTEN
        return known & ~self.is_write()

    def distances(self, name: str) -> list[int]:
        """Return the distances of one buffer's reads in order, `NEVER_WRITTEN` included."""
        if name not in self._ids:
            raise InputError(f"no event names {quoted(name)}{near_matches(str(name), self._ids)}")
        chosen = (self.buffers() == self._ids[name]) & ~self.is_write()
        return [int(distance) for distance in self.all_distances()[chosen]]

    def weighted_ard(self) -> float:
        """Return the average reuse distance: sum(size x distance) / sum(size) over counted reads, 0 without any."""
        return self._ard(self.counted())

    def dmc(self) -> float:
        """Return the data movement complexity: sum(size x sqrt(distance)) over counted reads.

        >>> events = Events()
        >>> events.write("a", 100); events.read("a")
        >>> events.dmc()
        1000.0
        """
        counted = self.counted()
        terms = self.sizes()[counted] * np.sqrt(self.all_distances()[counted])
        # cumsum adds from left to right, as the notes did; np.sum (pairwise) and, from Python 3.12, sum (compensated)
        # differ in the last digit.
        return float(np.cumsum(terms)[-1]) if len(terms) else 0.0

    def _ard(self, chosen: Bools) -> float:
        sizes = self.sizes()[chosen].tolist()
        # Python's integers: sums of size x distance leave 64 bits at some 3e9 floats.
        moved = sum(map(operator.mul, sizes, self.all_distances()[chosen].tolist()))
        return float(moved / sum(sizes)) if sizes else 0.0

    def _refuse(self, name: str, kind: str) -> NoReturn:
        written = (known for known, buffer in self._ids.items() if self._size_of[buffer])
        raise InputError(
            f"event {len(self) + 1}: {kind} of {quoted(name)}, which was never written"
            f"{near_matches(str(name), written)}; write it first, or give the {kind} a size"
        )

    def _intern(self, name: str) -> int:
        if not isinstance(name, str) or not name:
            raise InputError(f"a buffer's name must be a non-empty string, not {name!r}")
        if name not in self._ids:
            self._ids[name] = len(self._ids)
            self._size_of.append(0)
        return self._ids[name]

    def _append(self, buffer: int, size: int, write: bool) -> None:
        if self._clock + size > _LARGEST:
            raise InputError(f"event {len(self) + 1}: the clock passes {_LARGEST} floats")
        self._buffer.append(buffer)
        self._size.append(size)
        self._write.append(write)
        self._clock += size


@dataclass(frozen=True)
class Traffic:
    """Hits and misses of the reads of one buffer; `floats` are those read, `missed_floats` those it had to load."""

    hits: int = 0
    misses: int = 0
    floats: int = 0
    missed_floats: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.hits + other.hits,
            self.misses + other.misses,
            self.floats + other.floats,
            self.missed_floats + other.missed_floats,
        )


@dataclass(frozen=True)
class BufferCache:
    """Hits and misses of a buffer-granular LRU cache, in total and by buffer."""

    cache_floats: int
    effective_ard: float
    by_name: dict[str, Traffic]

    def of(self, names: Iterable[str]) -> Traffic:
        """Return the traffic of some buffers together, such as the parameters'."""
        return sum((self.by_name.get(name, Traffic()) for name in names), Traffic())

    @property
    def hits(self) -> int:
        """Reads of resident buffers."""
        return self.of(self.by_name).hits

    @property
    def misses(self) -> int:
        """Reads that loaded their buffer, or bypassed the cache."""
        return self.of(self.by_name).misses

    @property
    def missed_floats(self) -> int:
        """Floats of the reads that missed."""
        return self.of(self.by_name).missed_floats


def buffer_lru(events: Events, cache_floats: int, *, since: int = 0) -> BufferCache:
    """Return the hits, misses and traffic of an LRU cache that holds whole buffers.

    A read of a resident buffer is a hit; a miss loads it; a write makes it resident; a buffer larger than the cache
    bypasses it. Reads of never-written buffers load them and count nowhere. Only events from index `since` on are
    counted: take `len(events)` before a step to measure it in the state the steps before it left.

    >>> events = Events()
    >>> events.write("a", 60); events.write("b", 60); events.read("b"); events.read("a")
    >>> cache = buffer_lru(events, 100)
    >>> cache.hits, cache.misses, cache.effective_ard, cache.by_name["a"].missed_floats
    (1, 1, 180.0, 60)
    """
    cache_floats = whole_size(cache_floats, "a cache")
    since = operator.index(since)
    if not 0 <= since <= len(events):
        raise InputError(f"since = {since}: events are numbered 0 to {len(events)}")
    counted = events.counted()
    missed = np.zeros(len(events), dtype=np.bool_)
    resident: OrderedDict[int, int] = OrderedDict()  # buffer -> size, least recently used first
    used = 0
    columns = zip(events.buffers().tolist(), events.sizes().tolist(), events.is_write().tolist(), strict=True)
    for index, (buffer, size, write) in enumerate(columns):
        missed[index] = not write and buffer not in resident
        # A hit keeps the room of the whole buffer, however little of it was read; a write may have another size.
        held = resident.pop(buffer, 0)
        size = size if write else max(size, held)
        used -= held
        if size > cache_floats:
            continue
        while used + size > cache_floats:
            used -= resident.popitem(last=False)[1]
        resident[buffer] = size
        used += size
    counted[:since] = False
    missed &= counted
    return BufferCache(cache_floats, events._ard(missed), _by_name(events, counted, missed))


def _by_name(events: Events, counted: Bools, missed: Bools) -> dict[str, Traffic]:
    buffers, sizes, names = events.buffers(), events.sizes(), events.names

    def totals(chosen: Bools, amounts: Ints) -> list[int]:
        total = np.zeros(len(names), dtype=np.int64)
        np.add.at(total, buffers[chosen], amounts[chosen])
        return [int(value) for value in total]

    ones = np.ones(len(events), dtype=np.int64)
    columns = totals(counted & ~missed, ones), totals(missed, ones), totals(counted, sizes), totals(missed, sizes)
    rows = zip(names, *columns, strict=True)
    return {name: Traffic(*traffic) for name, *traffic in rows if traffic[2]}


def whole_size(size: SupportsIndex, what: str) -> int:
    """Return a size as a positive integer, or say what it is the size of and why it cannot be.

    >>> whole_size(16, "write W1")
    16
    """
    try:
        value = operator.index(size)
    except TypeError:
        raise InputError(f"{what}: size {size!r} is not a whole number of floats") from None
    if not 0 < value <= _LARGEST:
        raise InputError(
            f"{what}: size {value} is not positive" if value <= 0 else f"{what}: size {value} is too large"
        )
    return value
