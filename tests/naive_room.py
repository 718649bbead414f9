"""The least number of reads from outside one room for a small matrix product, by looking at all that can happen.

Everything is outside as well, at no cost; what is inside is an element or a value on the way to a sum. Every result is read at the
end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cache
from itertools import combinations, product

State = tuple[frozenset[object], frozenset[object]]  # what is inside, and the values that are still to be read


@cache
def least_outside(box: tuple[int, int, int], room: int) -> int:
    """Return the least number of reads from outside, over all starts of the elements, orders and copies."""
    m, n, k = box
    elements = [("a", i, q) for i, q in product(range(m), range(k))] + [
        ("b", q, j) for q, j in product(range(k), range(n))
    ]
    spent: dict[State, int] = {}
    waiting: deque[tuple[int, State]] = deque()
    for some in combinations(elements, min(room, len(elements))):
        spent[frozenset(some), frozenset()] = 0
        waiting.append((0, (frozenset(some), frozenset())))
    whole = {(i, j, frozenset(range(k))) for i, j in product(range(m), range(n))}
    best = 10**9
    while waiting:
        cost, state = waiting.popleft()
        if cost > spent[state] or cost >= best:
            continue
        if state[1] == whole:
            best = min(best, cost + len(whole - state[0]))
        for more, then in _moves(state, box, room, elements):
            if cost + more < spent.get(then, best):
                spent[then] = cost + more
                if more:
                    at = len(waiting)
                    while at and waiting[at - 1][0] > cost + more:
                        at -= 1
                    waiting.insert(at, (cost + more, then))
                else:
                    waiting.appendleft((cost, then))
    return best


def _moves(
    state: State, box: tuple[int, int, int], room: int, elements: list[tuple[str, int, int]]
) -> Iterator[tuple[int, State]]:
    inside, values = state
    for thing in inside:
        yield 0, (inside - {thing}, values)
    if len(inside) < room:
        for thing in {*elements, *values} - inside:
            yield 1, (inside | {thing}, values)

    def written(left: frozenset[object], over: list[object], result: object, then: frozenset[object]):  # type: ignore[no-untyped-def]
        yield left, then
        for gone in ([], *([one] for one in over if one in left)):
            if len(left - {*gone}) < room:
                yield (left - {*gone}) | {result}, then

    made = {(i, j, q) for i, j, done in values for q in done}  # type: ignore[attr-defined,misc]
    for i, j, q in product(*map(range, box)):
        if (i, j, q) not in made:
            operands = [("a", i, q), ("b", q, j)]
            result = i, j, frozenset([q])
            for after in written(inside, operands, result, values | {result}):
                yield sum(one not in inside for one in operands), after
    for one, other in combinations(values, 2):
        if one[:2] == other[:2]:  # type: ignore[index]
            result = (*one[:2], one[2] | other[2])  # type: ignore[index]
            for after in written(inside - {one, other}, [], result, values - {one, other} | {result}):
                yield (one not in inside) + (other not in inside), after
