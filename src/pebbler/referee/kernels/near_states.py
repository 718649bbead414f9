"""Moves of products and additions on a few near cells, from states that are single numbers.

A cell's byte is 0 when it is empty, else its kind and two indices: `LEFT` an element (i, k) of the left matrix, `RIGHT` one (k, j)
of the right matrix, `SUM` a value on the way to the sum (i, j). Two things of different kinds that share an index belong to one
product (i, j, k). A bit for each pair of cells says whether that product is made.
"""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Ints
from pebbler.compiled import inner_kernel, kernel

__all__ = ["FAR", "LEFT", "MOST_CELLS", "RIGHT", "SUM", "moves_from"]

LEFT, RIGHT, SUM = 1, 2, 3
FAR = 3
MOST_CELLS = 4
_BITS = 8 * MOST_CELLS  # where the bits of pairs begin


@inner_kernel
def _kind(thing: int) -> int:
    """Return the kind of a cell's byte; 0 if it is empty."""
    return thing >> 6


@inner_kernel
def _thing(kind: int, first: int, second: int) -> int:
    return kind << 6 | first << 3 | second


@inner_kernel
def _distance(cell: int) -> int:
    return 2 if cell else 1


@inner_kernel
def _point(one: int, other: int) -> int:
    """Return the product that two things belong to, -1 if there is none."""
    if _kind(one) > _kind(other):
        one, other = other, one
    first, second, third, fourth = one >> 3 & 7, one & 7, other >> 3 & 7, other & 7
    kinds = _kind(one) * 4 + _kind(other)
    if kinds == LEFT * 4 + RIGHT and second == third:
        return first << 6 | fourth << 3 | second
    if kinds == LEFT * 4 + SUM and first == third:
        return first << 6 | fourth << 3 | second
    if kinds == RIGHT * 4 + SUM and second == fourth:
        return third << 6 | second << 3 | first
    return -1


@inner_kernel
def _has(made: Ints, count: int, point: int) -> bool:
    for at in range(count):
        if made[at] == point:
            return True
    return False


@inner_kernel(forceinline=False)
def _code(cells: Ints, made: Ints, count: int, names: Ints) -> int:
    """Return a state's number: the least over orders of the cells beyond the first, indices numbered as they come."""
    best = -1
    size = len(cells)
    for turn in range(6):
        one = 1 + turn // 2
        two = 1 + (one + turn % 2) % 3
        order = (0, one, two, 6 - one - two)
        if (size < MOST_CELLS and order[3] != 3) or (size < 3 and two != 2):
            continue
        names[:] = -1
        names[:, 7] = 0  # how many names of i, j and k there are
        code = 0
        for place in range(size):
            thing = cells[order[place]]
            kind = _kind(thing)
            if kind == 0:
                continue
            which = (2 if kind == RIGHT else 0, 2 if kind == LEFT else 1)
            for number in range(2):
                index = thing >> 3 & 7 if number == 0 else thing & 7
                if names[which[number], index] < 0:
                    names[which[number], index] = names[which[number], 7]
                    names[which[number], 7] += 1
            named = _thing(kind, names[which[0], thing >> 3 & 7], names[which[1], thing & 7])
            code |= named << (8 * place)
        bit = _BITS
        for place in range(size):
            for later in range(place + 1, size):
                point = _point(cells[order[place]], cells[order[later]])
                if point >= 0 and _has(made, count, point):
                    code |= 1 << bit
                bit += 1
        if best < 0 or code < best:
            best = code
    return best


@inner_kernel
def _note(
    rows: Ints, found: int, begin: int, end: int, cost: int, products: int, additions: int, copied: int, used: int
) -> int:
    """Add a move to the rows, if there is room; return how many there are."""
    if found < len(rows):
        rows[found, 0], rows[found, 1], rows[found, 2], rows[found, 3] = begin, end, cost, products
        rows[found, 4], rows[found, 5], rows[found, 6] = additions, copied, used
    return found + 1


@inner_kernel(forceinline=False)
def _place(
    rows: Ints,
    found: int,
    begin: int,
    cells: Ints,
    result: int,
    made: Ints,
    count: int,
    names: Ints,
    cost: int,
    products: int,
    additions: int,
    used: int,
) -> int:
    """Add the moves that write a result: far, into an empty cell, or over an element."""
    found = _note(rows, found, begin, _code(cells, made, count, names), cost, products, additions, 0, used)
    for cell in range(len(cells)):
        before = cells[cell]
        if _kind(before) != SUM:
            cells[cell] = result
            found = _note(rows, found, begin, _code(cells, made, count, names), cost, products, additions, 0, used)
            cells[cell] = before
    return found


@inner_kernel(forceinline=False)
def _operands(cells: Ints, kind: int, firsts: int, seconds: int, found: Ints) -> int:
    """Fill in a matrix's elements that a product may read, near or far: distance and indices; return how many there are."""
    count = 0
    for cell in range(len(cells)):
        if _kind(cells[cell]) == kind:
            found[count, 0], found[count, 1], found[count, 2] = _distance(cell), cells[cell] >> 3 & 7, cells[cell] & 7
            count += 1
    for first in range(firsts):
        for second in range(seconds):
            found[count, 0], found[count, 1], found[count, 2] = FAR, first, second
            count += 1
    return count


@inner_kernel(forceinline=False)
def _unpacked(code: int, cells: Ints, made: Ints, indices: Ints) -> int:
    """Fill in a state: its cells, the products made, how many i, j and k there are with one more; return how many are made."""
    indices[:] = 1
    for cell in range(len(cells)):
        thing = code >> 8 * cell & 255
        cells[cell] = thing
        kind = _kind(thing)
        if kind:
            one = 2 if kind == RIGHT else 0
            other = 2 if kind == LEFT else 1
            indices[one] = max(indices[one], (thing >> 3 & 7) + 2)
            indices[other] = max(indices[other], (thing & 7) + 2)
    count, bit = 0, _BITS
    for cell in range(len(cells)):
        for later in range(cell + 1, len(cells)):
            if code >> bit & 1:
                made[count] = _point(cells[cell], cells[later])
                count += 1
            bit += 1
    return count


@inner_kernel(forceinline=False)
def _leave(rows: Ints, found: int, begin: int, cells: Ints, made: Ints, count: int, names: Ints) -> int:
    """Add the moves that empty a cell: an element goes for nothing, a value on the way to a sum by a copy."""
    for cell in range(len(cells)):
        thing = cells[cell]
        if thing:
            cells[cell] = 0
            cost = _distance(cell) if _kind(thing) == SUM else 0
            found = _note(rows, found, begin, _code(cells, made, count, names), cost, 0, 0, 0, 0)
            cells[cell] = thing
    return found


@inner_kernel(forceinline=False)
def _copy(rows: Ints, found: int, begin: int, cells: Ints, made: Ints, count: int, names: Ints, indices: Ints) -> int:
    """Add the copies into empty cells."""
    many_i, many_j, many_k = indices[0], indices[1], indices[2]
    for cell in range(len(cells)):
        if cells[cell]:
            continue
        for source in range(len(cells)):
            thing = cells[source]
            if thing and _distance(source) != _distance(cell):
                cells[cell] = thing
                if _kind(thing) == SUM:
                    cells[source] = 0
                found = _note(rows, found, begin, _code(cells, made, count, names), _distance(source), 0, 0, 0, 0)
                cells[source], cells[cell] = thing, 0
        for k in range(many_k):
            for i in range(many_i):
                cells[cell] = _thing(LEFT, i, k)
                found = _note(rows, found, begin, _code(cells, made, count, names), FAR, 0, 0, 1, 0)
            for j in range(many_j):
                cells[cell] = _thing(RIGHT, k, j)
                found = _note(rows, found, begin, _code(cells, made, count, names), FAR, 0, 0, 1, 0)
        cells[cell] = 0
    return found


@inner_kernel(forceinline=False)
def _multiply(
    rows: Ints,
    found: int,
    begin: int,
    cells: Ints,
    made: Ints,
    count: int,
    names: Ints,
    indices: Ints,
    left: Ints,
    right: Ints,
) -> int:
    """Add the products that are not made yet."""
    lefts = _operands(cells, LEFT, indices[0], indices[2], left)
    rights = _operands(cells, RIGHT, indices[2], indices[1], right)
    for a in range(lefts):
        for b in range(rights):
            i, k, j = left[a, 1], left[a, 2], right[b, 2]
            point = i << 6 | j << 3 | k
            if right[b, 1] != k or _has(made, count, point):
                continue
            made[count] = point
            used = (left[a, 0] < FAR) + (right[b, 0] < FAR)
            cost = left[a, 0] + right[b, 0]
            found = _place(rows, found, begin, cells, _thing(SUM, i, j), made, count + 1, names, cost, 1, 0, used)
    return found


@inner_kernel(forceinline=False)
def _add(rows: Ints, found: int, begin: int, cells: Ints, made: Ints, count: int, names: Ints, indices: Ints) -> int:
    """Add the additions of two values of one sum, each of them near or far."""
    for cell in range(len(cells)):
        thing = cells[cell]
        if _kind(thing) != SUM:
            continue
        cells[cell] = 0
        found = _place(rows, found, begin, cells, thing, made, count, names, _distance(cell) + FAR, 0, 1, 0)
        for other in range(cell + 1, len(cells)):
            if cells[other] == thing:
                cells[other] = 0
                cost = _distance(cell) + _distance(other)
                found = _place(rows, found, begin, cells, thing, made, count, names, cost, 0, 1, 0)
                cells[other] = thing
        cells[cell] = thing
    for i in range(indices[0]):
        for j in range(indices[1]):
            found = _place(rows, found, begin, cells, _thing(SUM, i, j), made, count, names, 2 * FAR, 0, 1, 0)
    return found


@kernel
def moves_from(codes: Ints, size: int, rows: Ints) -> int:
    """Fill in the moves of some states and return how many there are; no more are filled in than there are rows.

    A row holds the number of the state in `codes`, the state that the move leads to, cost, products, additions, elements copied
    from far, and near elements that a product reads.
    """
    found = 0
    cells, made = np.zeros(size, np.int64), np.zeros(8, np.int64)
    indices, names = np.zeros(3, np.int64), np.zeros((3, 8), np.int64)
    left, right = np.zeros((MOST_CELLS + 36, 3), np.int64), np.zeros((MOST_CELLS + 36, 3), np.int64)
    for begin in range(len(codes)):
        count = _unpacked(codes[begin], cells, made, indices)
        found = _leave(rows, found, begin, cells, made, count, names)
        found = _copy(rows, found, begin, cells, made, count, names, indices)
        found = _multiply(rows, found, begin, cells, made, count, names, indices, left, right)
        found = _add(rows, found, begin, cells, made, count, names, indices)
    return found
