"""Brute-force twins of the distance and cache kernels: literal, slow, and as close to the definitions as can be."""

from __future__ import annotations

import math


def distances(words: list[int]) -> list[int]:
    """1-based depth of every access in a stack of all words, 0 for a first touch."""
    stack: list[int] = []
    out = []
    for word in words:
        out.append(stack.index(word) + 1 if word in stack else 0)
        if word in stack:
            stack.remove(word)
        stack.insert(0, word)
    return out


def lru_misses(words: list[int], size: int) -> int:
    """Misses of a fully associative LRU cache."""
    held: list[int] = []
    misses = 0
    for word in words:
        if word in held:
            held.remove(word)
        else:
            misses += 1
        held.insert(0, word)
        del held[size:]
    return misses


def lru_write_backs(words: list[int], writes: list[bool], size: int) -> tuple[int, int]:
    """Dirty words evicted by a fully associative write-back LRU cache, and dirty words still in it at the end."""
    held: list[int] = []
    dirty: set[int] = set()
    backs = 0
    for word, write in zip(words, writes, strict=True):
        if word in held:
            held.remove(word)
        held.insert(0, word)
        if write:
            dirty.add(word)
        for gone in held[size:]:
            backs += gone in dirty
            dirty.discard(gone)
        del held[size:]
    return backs, len(dirty)


def lru_energy(
    touches: list[tuple[int, bool]],
    capacities: list[int],
    read: list[float],
    write: list[float],
    line: int = 1,
    units: list[int] | None = None,
    steady: bool = False,
) -> tuple[float, float, float]:
    """Read, write and write-back energy of the `lru` rule, by moving lines about.

    A steady step is repeated until its energy repeats.
    """
    cumulative = [sum(capacities[: k + 1]) // line for k in range(len(capacities))] + [math.inf]
    stack: list[int] = []
    fresh: dict[int, int] = {}
    bottom = len(capacities)

    def sink(item: int, depth: float) -> tuple[int, float]:
        level = next(k for k, reach in enumerate(cumulative) if depth <= reach) if depth < math.inf else bottom
        start = fresh.get(item, bottom)
        cost = sum(line * write[k] for k in range(start + 1, level + 1))
        fresh[item] = max(start, level)
        return level, cost

    before: tuple[float, float, float] | None = None
    while True:
        reads = writes = backs = 0.0
        for i, (item, is_write) in enumerate(touches):
            level, cost = sink(item, stack.index(item) + 1 if item in stack else math.inf)
            backs += cost
            amount = line if units is None else units[i]
            if is_write:
                writes += amount * write[0]
                fresh[item] = 0
            else:
                reads += amount * read[level]
            if item in stack:
                stack.remove(item)
            stack.insert(0, item)
        if not steady:
            for depth, item in enumerate(stack, 1):
                backs += sink(item, depth)[1]
            return reads, writes, backs
        if before is not None and sum(before) == reads + writes + backs:
            return reads, writes, backs
        before = (reads, writes, backs)


def opt_misses(words: list[int], size: int, bypass: bool) -> int:
    """Fewest misses of any replacement whatsoever, by trying all victims (and, with `bypass`, keeping nothing)."""
    reached = {frozenset(): 0}
    for word in words:
        after: dict[frozenset[int], int] = {}

        def keep(held: frozenset[int], misses: int, after: dict[frozenset[int], int] = after) -> None:
            after[held] = min(misses, after.get(held, misses))

        for held, misses in reached.items():
            if word in held:
                keep(held, misses)
                continue
            if len(held) < size:
                keep(held | {word}, misses + 1)
            for victim in held:
                keep(held - {victim} | {word}, misses + 1)
            if bypass:
                keep(held, misses + 1)
        reached = after
    return min(reached.values())


def hierarchy(
    words: list[int], writes: list[bool], levels: list[tuple[int, int]], line: int = 1, refresh: bool = True
) -> list[dict[str, int]]:
    """Separate LRU levels (sets, ways), by recursion from level to level.

    `refresh`: a write that hits makes its line the newest, as a read does.
    """
    contents: list[list[list[int]]] = [[[] for _ in range(sets)] for sets, _ in levels]
    dirty: list[set[int]] = [set() for _ in levels]
    counts = [
        dict.fromkeys(("reads", "writes", "read_hits", "write_hits", "evictions", "write_backs"), 0) for _ in levels
    ]

    def request(k: int, number: int, write: bool) -> None:
        if k == len(levels):
            return
        sets, ways = levels[k]
        held = contents[k][number % sets]
        counts[k]["writes" if write else "reads"] += 1
        if number in held:
            counts[k]["write_hits" if write else "read_hits"] += 1
            if refresh or not write:
                held.remove(number)
                held.insert(0, number)
        else:
            request(k + 1, number, False)
            held.insert(0, number)
            for victim in held[ways:]:
                counts[k]["evictions"] += 1
                if victim in dirty[k]:
                    dirty[k].remove(victim)
                    counts[k]["write_backs"] += 1
                    request(k + 1, victim, True)
            del held[ways:]
        if write:
            dirty[k].add(number)

    for word, write in zip(words, writes, strict=True):
        request(0, word // line, write)
    return counts


def most_read_hits(words: list[int], writes: list[bool], capacity: int) -> int:
    """Return the most reads that can find their word, over every choice of what to hold after each access."""
    states = {frozenset(): 0}
    for word, write in zip(words, writes, strict=True):
        after: dict[frozenset, int] = {}
        for held, hits in states.items():
            gained = hits + (not write and word in held)
            options = {held | {word}, held - {word}}
            options |= {(held | {word}) - {other} for other in held}
            for option in options:
                if len(option) <= capacity:
                    after[option] = max(after.get(option, 0), gained)
        states = after
    return max(states.values())
