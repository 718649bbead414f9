"""The `lru` price rule line by line, straight from the rules: a Python list is the stack."""

from __future__ import annotations

from collections.abc import Sequence


def lru_energy(
    touches: Sequence[tuple[int, int, bool]],
    capacities: Sequence[int | None],
    reads: Sequence[float],
    writes: Sequence[float],
    line: int = 1,
    steady: bool = False,
) -> float:
    """Energy of touching `units` units of a line (line, units, write?) in order; a write-back moves the whole line."""
    stack: list[int] = []  # most recent first
    fresh: dict[int, int] = {}  # line -> deepest level that is up to date
    last = len(capacities) - 1

    def level_of(depth: int) -> int:
        total = 0
        for level, capacity in enumerate(capacities):
            if capacity is None:
                return level
            total += capacity
            if depth <= total // line:
                return level
        return last

    def write_back(where: int, level: int) -> float:
        paid = 0.0
        for below in range(fresh.get(where, last) + 1, level + 1):
            paid += line * writes[below]
            fresh[where] = below
        return paid

    def window() -> float:
        paid = 0.0
        for where, units, write in touches:
            level = level_of(stack.index(where) + 1) if where in stack else last
            paid += write_back(where, level)
            paid += units * (writes[0] if write else reads[level])
            if where in stack:
                stack.remove(where)
            stack.insert(0, where)
            if write:
                fresh[where] = 0
        return paid

    if not steady:
        return window() + sum(write_back(where, level_of(depth)) for depth, where in enumerate(stack, 1))
    before, now = -1.0, window()
    while before != now:
        before, now = now, window()
    return now
