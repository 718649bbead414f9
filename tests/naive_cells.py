"""Programs on numbered cells, run and priced in the plainest way; shares nothing with the package."""

from __future__ import annotations

import math
import random


def run(text: str, values: list[int]) -> tuple[list[int], int]:
    """Return the outputs of a program and what its reads cost; any exception means that it is wrong."""
    lines = [line.strip() for line in text.replace(";", "\n").split("\n") if line.strip()]
    cells = [int(word) for word in lines[0].split(",")]
    assert len(set(cells)) == len(cells) == len(values)
    assert min(cells) >= 1
    memory, cost = dict(zip(cells, values, strict=True)), 0
    for line in lines[1:-1]:
        word, rest = line.split(None, 1)
        numbers = [int(number) for number in rest.split(",")]
        assert min(numbers) >= 1
        if word == "copy":
            goal, *sources = numbers
            assert len(sources) == 1
        else:
            goal, *sources = numbers if len(numbers) == 3 else [numbers[0], *numbers]
        read = [memory[source] for source in sources]
        cost += sum(math.ceil(math.sqrt(source)) for source in sources)
        if word == "add":
            memory[goal] = read[0] + read[1]
        elif word == "sub":
            memory[goal] = read[0] - read[1]
        elif word == "mul":
            memory[goal] = read[0] * read[1]
        else:
            assert word == "copy"
            memory[goal] = read[0]
    last = [int(word) for word in lines[-1].split(",")]
    return [memory[cell] for cell in last], cost + sum(math.ceil(math.sqrt(cell)) for cell in last)


def product_cost(text: str, m: int, n: int, k: int, seed: int = 1) -> int:
    """Return what a program costs, having seen that it multiplies an m x k and a k x n matrix."""
    rng = random.Random(seed)
    cost = 0
    for _ in range(4):
        left = [[rng.randint(-999, 999) for _ in range(k)] for _ in range(m)]
        right = [[rng.randint(-999, 999) for _ in range(n)] for _ in range(k)]
        flat = [one for matrix in (left, right) for row in matrix for one in row]
        found, cost = run(text, flat)
        wanted = []
        for row in left:
            for j in range(n):
                wanted.append(sum(row[inner] * right[inner][j] for inner in range(k)))
        assert found == wanted
    return cost
