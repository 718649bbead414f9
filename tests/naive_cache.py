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
