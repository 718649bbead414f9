"""Random plans of a matrix product in one room: what is inside between moves, and what each move reads from outside.

Everything is outside as well, at no cost, as in `naive_room`. Elements and values on the way to sums have names here, and only in
hindsight is it known which sums had a point made while they were inside.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import combinations, product

Point = tuple[int, int, int]
Element = tuple[str, int, int]  # of the first matrix with row and layer, of the second with column and layer
Value = tuple[int, int, frozenset[int]]  # a sum, and the layers that have been added up
State = tuple[int, tuple[tuple[int, int, int, int], ...]]


@dataclass
class Plan:
    """What is inside between moves, and what the moves did."""

    box: tuple[int, int, int]
    room: int
    inside: list[frozenset[object]] = field(default_factory=list)
    values: list[frozenset[Value]] = field(default_factory=list)
    element_reads: list[int] = field(default_factory=list)
    value_reads: list[int] = field(default_factory=list)
    points: list[Point | None] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)  # of elements, from outside

    def note(self, inside: set[object], values: set[Value], elements: int, read: int, point: Point | None) -> None:
        """Add a move: what is inside after it, and what it read from outside."""
        assert len(inside) <= self.room
        self.inside.append(frozenset(inside))
        self.values.append(frozenset(values))
        self.element_reads.append(elements)
        self.value_reads.append(read)
        self.points.append(point)
        self.copies.append(elements if point is None else 0)


def random_plan(box: tuple[int, int, int], room: int, rng: random.Random) -> Plan:
    """Return a plan that makes everything, of moves drawn at random: some draws like what is at hand, some do not."""
    m, n, k = box
    elements: list[Element] = [("a", i, q) for i, q in product(range(m), range(k))]
    elements += [("b", j, q) for j, q in product(range(n), range(k))]
    inside: set[object] = set(rng.sample(elements, rng.randint(0, min(room, len(elements)))))
    values: set[Value] = set()
    left = set(product(range(m), range(n), range(k)))
    whole = {(i, j, frozenset(range(k))) for i, j in product(range(m), range(n))}
    plan, keen = Plan(box, room), rng.random()
    plan.note(inside, values, 0, 0, None)
    while values != whole:
        kind = rng.choices(["bring", "drop", "multiply", "add"], [3, 1, 6, 4])[0]
        at_hand = rng.random() < keen
        if kind == "drop" and inside:
            inside = inside - {rng.choice(sorted(inside, key=str))}
            plan.note(inside, values, 0, 0, None)
        elif kind == "bring" and len(inside) < room:
            wanted = [e for e in elements if e not in inside and any(_needs(e, point) for point in left)]
            missing: list[object] = [*wanted, *sorted((value for value in values if value not in inside), key=str)]
            if missing:
                thing = rng.choice(missing)
                inside = inside | {thing}
                plan.note(inside, values, thing in elements, thing not in elements, None)
        elif kind == "multiply" and left:
            near = [point for point in left if all(operand in inside for operand in _operands(point))]
            point = rng.choice(sorted(near if near and at_hand else left))
            operands = _operands(point)
            made = (point[0], point[1], frozenset([point[2]]))
            gone = {operand for operand in operands if rng.random() < 0.3}
            outside = sum(operand not in inside for operand in operands)
            then = inside - gone
            inside = then | {made} if len(then) < room and rng.random() < 0.85 else then
            values, left = values | {made}, left - {point}
            plan.note(inside, values, outside, 0, point)
        elif kind == "add":
            pairs = [pair for pair in combinations(sorted(values, key=str), 2) if pair[0][:2] == pair[1][:2]]
            near_pairs = [pair for pair in pairs if any(one in inside for one in pair)]
            if pairs and (near_pairs or rng.random() < 0.1):
                one, other = rng.choice(near_pairs or pairs)
                total = (*one[:2], one[2] | other[2])
                read = (one not in inside) + (other not in inside)
                then = inside - {one, other}
                inside = then | {total} if len(then) < room and rng.random() < 0.95 else then
                values = values - {one, other} | {total}
                plan.note(inside, values, 0, read, None)
    return plan


def _operands(point: Point) -> tuple[Element, Element]:
    return ("a", point[0], point[2]), ("b", point[1], point[2])


def _needs(element: Element, point: Point) -> bool:
    return element in _operands(point)


def in_the_game(plan: Plan) -> tuple[list[State], list[int]]:
    """Return the states of the game of counts between the moves, and the entries of each move: the first is where it begins."""
    m, n, k = plan.box
    moves = len(plan.inside)
    present: list[set[tuple[int, int]]] = [set() for _ in range(moves)]
    entries = list(plan.element_reads)
    for i, j in product(range(m), range(n)):
        held = [
            any(thing in values for thing in inside if thing[:2] == (i, j))
            for inside, values in zip(plan.inside, plan.values, strict=True)
        ]  # type: ignore[index]
        made = [point is not None and point[:2] == (i, j) for point in plan.points]
        at = 0
        while at < moves:
            if not held[at]:
                if made[at] and not (at and held[at - 1]):
                    entries[at] += 1  # made and written outside: an episode of one move
                at += 1
                continue
            end = at
            while end + 1 < moves and held[end + 1]:
                end += 1
            # A point whose move ends the episode was made in it as well.
            if any(made[at : end + 1]) or (end + 1 < moves and made[end + 1]):
                entries[at] += 1
                for when in range(at, end + 1):
                    present[when].add((i, j))
            at = end + 1
    undone = set(product(range(m), range(n), range(k)))
    states = []
    for at in range(moves):
        point = plan.points[at]
        if point is not None:
            undone.discard(point)
            i, j, q = point
            result = (i, j, frozenset([q]))
            older = any(
                thing in plan.values[at] and thing != result and thing[:2] == (i, j) for thing in plan.inside[at]
            )  # type: ignore[index]
            if (i, j) in present[at - 1] and not (result in plan.inside[at] and older):
                entries[at] += 1  # a stray
        layers = []
        for q in range(k):
            rows = [i for i in range(m) if ("a", i, q) in plan.inside[at]]
            columns = [j for j in range(n) if ("b", j, q) in plan.inside[at]]
            if rows or columns:
                missing = sum((i, j, q) in undone for i, j in product(rows, columns))
                lack = sum((i, j, q) in undone for i, j in present[at])
                layers.append((max(len(rows), len(columns)), min(len(rows), len(columns)), missing, lack))
        states.append((len(present[at]), tuple(sorted(layers))))
    return states, entries
