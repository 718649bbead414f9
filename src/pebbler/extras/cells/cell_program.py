"""Programs on numbered cells: three-address instructions as text, parsed, run, and priced by the distance of their reads.

The first line holds the cells of the inputs, the last one those of the outputs, and between them are instructions: `add
d,s,t`, `sub d,s,t`, `mul d,s,t` (`add d,s` is `add d,d,s`) and `copy d,s`. Lines end at a newline or a semicolon. Reading
cell `a` costs ceil(sqrt(a)); every operand is read, a copy reads once, and every output is read once at the end. Writing
costs nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pebbler.errors import InputError, one_line, quoted
from pebbler.files import read_bytes

__all__ = ["CellProgram", "Instruction", "WrongProgram", "distance", "product_sizes"]

_KINDS = ("add", "sub", "mul", "copy")
_MOST_CELL = 10**9
_MOST_BITS = 4096  # of a number; sums of products of small numbers stay far below
_TRIALS = 3
_LARGEST = 10**6  # random matrix elements are up to this


class WrongProgram(Exception):
    """A program that cannot run or computes something else; `line` is where, counted from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


@dataclass(frozen=True)
class Instruction:
    """One instruction: what it does, where to, from which cells; and the line it stands on."""

    kind: str
    goal: int
    sources: tuple[int, ...]
    line: int


@dataclass(frozen=True)
class CellProgram:
    """A program: the cells of its inputs, its instructions, the cells of its outputs."""

    inputs: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]
    last_line: int

    @classmethod
    def parse(cls, text: str) -> CellProgram:
        """Return the program in a text; refuse other texts with the line.

        >>> program = CellProgram.parse("1,2; mul 1,2; copy 5,1; 5")
        >>> program.inputs, program.instructions[0].sources, program.outputs
        ((1, 2), (1, 2), (5,))
        >>> program.cost()
        7
        """
        lines: list[tuple[int, str]] = []
        for number, line in enumerate(text.splitlines(), 1):
            lines += [(number, part.strip()) for part in line.partition("#")[0].split(";") if part.strip()]
        if len(lines) < 2:
            raise InputError("expected at least two lines: the cells of the inputs and those of the outputs")
        inputs = _cells(*lines[0], "the cells of the inputs, such as 1,2,3")
        seen: set[int] = set()
        for cell in inputs:
            if cell in seen:
                raise InputError(f"line {lines[0][0]}: inputs must be in different cells; {cell} is there twice")
            seen.add(cell)
        outputs = _cells(*lines[-1], "the cells of the outputs, such as 1,2,3")
        return cls(inputs, tuple(_instruction(*line) for line in lines[1:-1]), outputs, lines[-1][0])

    @classmethod
    def load(cls, path: str | Path) -> CellProgram:
        """Return the program in a file."""
        data = read_bytes(path, "program")
        try:
            return cls.parse(data.decode("utf-8"))
        except UnicodeDecodeError:
            raise InputError(f"{path}: not a text file (UTF-8)") from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def text(self) -> str:
        """Return the program as it stands in a file."""
        body = [f"{one.kind} {','.join(map(str, (one.goal, *one.sources)))}" for one in self.instructions]
        return "\n".join([",".join(map(str, self.inputs)), *body, ",".join(map(str, self.outputs))]) + "\n"

    def reads(self) -> list[int]:
        """Return the cells that are read, in order, those of the outputs last."""
        return [cell for one in self.instructions for cell in one.sources] + list(self.outputs)

    def cost(self) -> int:
        """Return the cost of all reads."""
        return sum(map(distance, self.reads()))

    def run(self, values: Sequence[int]) -> list[int]:
        """Return the outputs for these inputs, in exact integers; raises `WrongProgram` where a cell holds nothing."""
        held = dict(zip(self.inputs, values, strict=True))
        for one in self.instructions:
            operands = [_held(held, cell, one.line) for cell in one.sources]
            match one.kind:
                case "add":
                    result = operands[0] + operands[1]
                case "sub":
                    result = operands[0] - operands[1]
                case "mul":
                    result = operands[0] * operands[1]
                case _:
                    result = operands[0]
            if result.bit_length() > _MOST_BITS:
                raise WrongProgram(
                    one.line, f"the result has more than {_MOST_BITS} bits; no matrix product needs that"
                )
            held[one.goal] = result
        return [_held(held, cell, self.last_line) for cell in self.outputs]

    def matching_sizes(self, sizes: tuple[int, int, int] | None = None) -> tuple[int, int, int]:
        """Return the sizes m, n, k of the product that the program computes; raises `WrongProgram` where it computes none.

        Inputs are the first matrix row by row, then the second one; outputs the product row by row. They are random, some times.
        Without `sizes` they are found from the numbers of inputs and outputs; where several fit, the one that is right.
        """
        given, made = len(self.inputs), len(self.outputs)
        fitting = product_sizes(given, made)
        if sizes is not None:
            if sizes not in fitting:
                m, n, k = sizes
                wanted = f"{m * k + k * n} inputs and {m * n} outputs"
                raise InputError(
                    f"a product of {m} x {k} and {k} x {n} has {wanted}; the program has {given} and {made}"
                )
            fitting = [sizes]
        if not fitting:
            raise InputError(f"no matrix product has {given} inputs and {made} outputs")
        return self._first_product(fitting)

    def _first_product(self, fitting: Sequence[tuple[int, int, int]]) -> tuple[int, int, int]:
        """Return the first of some sizes whose product the program returns every time.

        What it returns does not depend on the sizes, so that it runs once per trial however many fit.
        """
        rng = random.Random(0)
        wrong: WrongProgram | None = None
        for _ in range(_TRIALS):
            values = [rng.randint(-_LARGEST, _LARGEST) for _ in self.inputs]
            found = self.run(values)
            left = []
            for sizes in fitting:
                try:
                    self._compare(sizes, values, found)
                    left.append(sizes)
                except WrongProgram as error:
                    wrong = wrong or error
            fitting = left
        if not fitting:
            assert wrong is not None
            raise wrong
        return fitting[0]

    def _compare(self, sizes: tuple[int, int, int], values: Sequence[int], found: Sequence[int]) -> None:
        """Raise `WrongProgram` at the first output that is not that of the product."""
        m, n, k = sizes
        for place, cell in enumerate(self.outputs):
            i, j = divmod(place, n)
            row, column = values[i * k : (i + 1) * k], values[m * k + j :: n]
            if found[place] != sum(a * b for a, b in zip(row, column, strict=True)):
                what = f"element [{i}, {j}] of the product, in cell {cell}, is wrong"
                raise WrongProgram(self.last_line, f"{what} for random matrices of {m} x {k} and {k} x {n}")


def distance(cell: int) -> int:
    """Return the cost of reading a cell: ceil(sqrt(cell)).

    >>> [distance(cell) for cell in (1, 2, 4, 5, 9, 10)]
    [1, 2, 2, 3, 3, 4]
    """
    return math.isqrt(cell - 1) + 1


def product_sizes(inputs: int, outputs: int) -> list[tuple[int, int, int]]:
    """Return the sizes m, n, k of products with so many inputs and outputs, those nearest to a square first.

    >>> product_sizes(32, 16)
    [(4, 4, 4)]
    """
    found = []
    for m in range(1, outputs + 1):
        n, rest = divmod(outputs, m)
        if not rest and inputs and inputs % (m + n) == 0:
            found.append((m, n, inputs // (m + n)))
    return sorted(found, key=lambda sizes: (max(sizes) - min(sizes), sizes))


def _held(held: dict[int, int], cell: int, line: int) -> int:
    if cell not in held:
        raise WrongProgram(line, f"reads cell {cell}, which holds nothing")
    return held[cell]


def _cells(line: int, text: str, expected: str) -> tuple[int, ...]:
    return tuple(_cell(line, word, text, expected) for word in text.split(","))


def _cell(line: int, word: str, text: str, expected: str) -> int:
    word = word.strip()
    if not (word.isascii() and word.isdigit()) or len(word) > 10 or not 1 <= int(word) <= _MOST_CELL:
        raise InputError(f"line {line}: expected {expected}; got {quoted(one_line(text)[:60])}")
    return int(word)


def _instruction(line: int, text: str) -> Instruction:
    expected = "add d,s,t, sub d,s,t, mul d,s,t or copy d,s with cells from 1 on"
    kind, _, rest = text.replace("\t", " ").partition(" ")
    cells = tuple(_cell(line, word, text, expected) for word in rest.split(","))
    wanted = (2,) if kind == "copy" else (2, 3)
    if kind not in _KINDS or len(cells) not in wanted:
        raise InputError(f"line {line}: expected {expected}; got {quoted(one_line(text)[:60])}")
    if kind != "copy" and len(cells) == 2:
        cells = (cells[0], *cells)
    return Instruction(kind, cells[0], cells[1:], line)
