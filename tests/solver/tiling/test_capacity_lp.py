"""What the linear program says is added up exactly, whatever room prices it is given."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np

from pebbler.game.machine import Level, Machine
from pebbler.solver.tiling.capacity_lp import CapacityLP
from pebbler.solver.tiling.element_pairs import ElementClass


def test_no_room_prices_give_more_than_exact_arithmetic_does():
    rng = random.Random(0)
    two = Machine("two", "pebble", (Level("near", 1, 1, capacity=3), Level("far", 100, 100)), "explicit", "any")
    positive = 0
    for _ in range(200):
        program = CapacityLP(two, steady=False)
        grain = program._rounded(1.0) / 2.0**33
        most = rng.choice([2**40, 2**52, 2**53, 2**53])  # sums with these do not fit into doubles
        room = [(rng.randrange(most - 2**30, most) | 1) * grain for _ in program.limits]
        program.known["here"] = [np.array(room)]
        classes = []
        for _ in range(rng.randint(1, 3)):
            table = np.array([[float(rng.randrange(100)), np.inf, float(rng.randrange(5000))]])  # always near
            classes.append(ElementClass(rng.randint(4, 1000), table, takes_barrier=np.ones(3, np.bool_)))
        exact = -sum(
            (limit.units * Fraction(price) for limit, price in zip(program.limits, room, strict=True)), Fraction()
        )
        for one in classes:
            ways = program._ways(one, program.limits)
            exact += one.count * min(
                Fraction(price) + sum((Fraction(mark) * Fraction(of) for mark, of in zip(row, room, strict=True)), Fraction())
                for price, row in zip(ways.prices.tolist(), ways.marks.tolist(), strict=True)
            )  # fmt: skip
        without_room = sum(one.count * Fraction(float(one.prices.min())) for one in classes)
        found = program.least(classes, "here", solve=False)
        assert found <= max(exact, without_room)
        positive += exact > without_room
    assert positive > 20
