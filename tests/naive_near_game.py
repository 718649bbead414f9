"""The least cost of a small matrix product on a few near cells, by looking at all that can happen: the twin of `near_game`.

Elements and values have their own names here, every product and every addition is one of this very product, and nothing that is
different counts as the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import cache
from itertools import combinations, product

FAR = 3
Cells = tuple[object, ...]
Value = tuple[int, int, frozenset[int]]  # a sum (i, j) and the k that have been added up to it
State = tuple[Cells, frozenset[Value], frozenset[tuple[int, int, int]]]


@cache
def least_cost(box: tuple[int, int, int], cells: int, lower: int = 0) -> int:
    """Return the least cost of all programs of an m x n x k product; reading the results costs nothing.

    A copy of an element costs `lower` twelfths less than its reads; where it does, the cost is in twelfths.
    """
    m, n, depth = box
    elements: list[object] = [("a", i, k) for i, k in product(range(m), range(depth))]
    elements += [("b", k, j) for k, j in product(range(depth), range(n))]
    points = frozenset(product(range(m), range(n), range(depth)))
    spent: dict[State, int] = {}
    waiting: list[tuple[int, int, State]] = []
    number = 0
    for many in range(cells + 1):
        for some in combinations(elements, many):
            for first in (*some, None):
                rest = [one for one in some if one != first]
                if len(rest) < cells:
                    state: State = (_sorted([first, *rest], cells), frozenset(), frozenset())
                    spent[state] = 0
                    waiting.append((0, number, state))
                    number += 1
    heapq.heapify(waiting)
    while waiting:
        cost, _, state = heapq.heappop(waiting)
        if cost > spent[state]:
            continue
        if state[2] == points and not state[1]:
            return cost
        for then, more in _moves(state, box, elements, lower):
            if cost + more < spent.get(then, 10**9):
                spent[then] = cost + more
                number += 1
                heapq.heappush(waiting, (cost + more, number, then))
    raise AssertionError("a product can always be made")


def _sorted(cells: list[object], size: int) -> Cells:
    """Return cells of which those at distance 2 are in a settled order."""
    full = [*cells, *[None] * (size - len(cells))]
    return (full[0], *sorted(full[1:], key=_order))


def _order(one: object) -> tuple[str, str]:
    return (
        ("", "")
        if one is None
        else ("s", str((one[0], one[1], sorted(one[2]))))
        if isinstance(one[0], int)
        else ("e", str(one))
    )  # type: ignore[index]


def _moves(state: State, box: tuple[int, int, int], elements: list[object], lower: int) -> Iterator[tuple[State, int]]:
    parts = 12 if lower else 1
    cells, values, made = state
    size, depth = len(cells), box[2]
    near = {one: 1 + bool(at) for at, one in reversed(list(enumerate(cells))) if one is not None}

    def written(
        left: list[object], result: Value, values: frozenset[Value]
    ) -> Iterator[tuple[Cells, frozenset[Value]]]:
        if len(result[2]) == depth:
            yield _sorted(left, size), values
            return
        yield _sorted(left, size), values | {result}
        for at in range(size):
            if left[at] not in values:
                yield _sorted([*left[:at], result, *left[at + 1 :]], size), values | {result}

    for at, one in enumerate(cells):
        if one is None:
            for source in {*elements, *(value for value in values if value in near)} - {None}:
                left = list(cells)
                if source in values:
                    left[left.index(source)] = None
                left[at] = source
                less = lower if source in elements else 0
                yield (_sorted(left, size), values, made), parts * near.get(source, FAR) - less
        else:  # dropped, or copied away
            cost = near[one] if one in values else 0
            yield (_sorted([*cells[:at], None, *cells[at + 1 :]], size), values, made), parts * cost
    for i, j, k in product(*map(range, box)):
        if (i, j, k) not in made:
            cost = near.get(("a", i, k), FAR) + near.get(("b", k, j), FAR)
            for then, live in written(list(cells), (i, j, frozenset([k])), values):
                yield (then, live, made | {(i, j, k)}), parts * cost
    for one, other in combinations(sorted(values, key=_order), 2):
        if one[:2] == other[:2]:
            left = [None if thing in (one, other) else thing for thing in cells]
            for then, live in written(left, (*one[:2], one[2] | other[2]), values - {one, other}):
                yield (then, live, made), parts * (near.get(one, FAR) + near.get(other, FAR))
