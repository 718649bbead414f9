"""ByteDMD by its definition: a list for a stack, one instruction at a time."""

from __future__ import annotations

import math

Instruction = tuple[tuple[int, ...], int]  # the values it reads, the value it makes


def naive_depths(start: list[int], instructions: list[Instruction], returned: set[int]) -> list[int]:
    """Depth of every read; `start` is the stack of arguments, top last."""
    last_read = {value: i for i, (reads, _) in enumerate(instructions) for value in reads}
    last_read |= dict.fromkeys(returned, len(instructions))

    def needed(value: int, after: int) -> bool:
        return last_read.get(value, -1) > after

    stack = [value for value in start if needed(value, -1)]
    depths = []
    for i, (reads, made) in enumerate(instructions):
        depths += [len(stack) - stack.index(value) for value in reads]
        for value in dict.fromkeys(reads):
            stack.remove(value)
            stack.append(value)
        for value in dict.fromkeys(reads):
            if not needed(value, i):
                stack.remove(value)
        if needed(made, i):
            stack.append(made)
    return depths


def naive_cost(depths: list[int], width: int = 1) -> int:
    """Sum of ceil(sqrt(k)) over every byte read."""
    return sum(math.isqrt(k - 1) + 1 for d in depths for k in range((d - 1) * width + 1, d * width + 1))
