"""Entries of a small room: every move of random plans against the potential, optima of small games, plans that a search finds."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from naive_room import least_outside
from naive_room_plan import in_the_game, random_plan
from pebbler.arrays import Bools, Ints
from pebbler.extras.cells.cell_program import CellProgram, distance
from pebbler.game.machine import Level, Machine
from pebbler.referee.programs import room_game
from pebbler.referee.programs.product_reads import product_bound
from pebbler.referee.programs.room_game import (
    MOST_PLACES,
    RoomMoves,
    least_room_entries,
    room_entries_by_copies,
    room_moves,
    room_potential,
)
from pebbler.solver import solve
from pebbler.solver.problem import Problem
from pebbler.workloads import matmul

Box = tuple[int, int, int]
RECORDS = Path(__file__).parents[3] / "examples" / "records"
DEAREST = {
    (charge, room): price
    for charge, prices in room_game._DEAREST.items()
    for room, price in zip(range(2, MOST_PLACES + 1), prices, strict=True)
}


def check_moves(plans: int, rooms: list[int], seed: int) -> int:
    """Check that no move of random plans lowers the potential for less than it takes; return how many did so to the last part."""
    rng, tight = random.Random(seed), 0
    number = {room: {state: at for at, state in enumerate(room_moves(room).states)} for room in rooms}
    least = {
        (charge, room): room_potential(room_moves(room), DEAREST[charge, room], charge)
        for charge, room in product(room_game._DEAREST, rooms)
    }
    for _ in range(plans):
        room, box = rng.choice(rooms), rng.choice([(2, 2, 2), (2, 3, 2), (3, 3, 2), (1, 3, 3), (4, 2, 2), (3, 3, 3)])
        plan = random_plan(box, room, rng)
        states, entries = in_the_game(plan)
        sums = box[0] * box[1]
        assert sum(plan.element_reads) + sum(plan.value_reads) >= sum(entries) - sums
        for at, charge in product(range(1, len(states)), room_game._DEAREST):
            potential = least[charge, room]
            assert potential is not None
            before, after = (int(potential[number[room][state]]) for state in states[at - 1 : at + 1])
            spent = 72 * entries[at] + charge * plan.copies[at] - DEAREST[charge, room] * (plan.points[at] is not None)
            assert before <= spent + after, (box, room, charge, states[at - 1 : at + 1], entries[at])
            tight += spent < 0 and before == spent + after
    return tight


def test_every_move_of_random_plans_is_a_move_of_the_game() -> None:
    assert check_moves(150, [2, 3, 4, 5, 6], 1) > 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_every_move_of_many_random_plans_is_a_move_of_the_game(seed: int) -> None:
    check_moves(1_000, list(range(2, MOST_PLACES + 1)), seed)


def attributes(moves: RoomMoves) -> tuple[Ints, Ints]:
    """Return by how many sums and by how many elements more are inside after each move."""
    begins = np.repeat(np.arange(len(moves.first)), np.diff([*moves.first, len(moves.ends)]))
    sums = np.array([sums for sums, _ in moves.states])
    elements = np.array([sum(x + y for x, y, _, _ in layers) for _, layers in moves.states])
    return sums[moves.ends] - sums[begins], elements[moves.ends] - elements[begins]


FAULTS: dict[str, Callable[[RoomMoves, Ints, Ints], Bools]] = {
    "a product over an element": lambda moves, sums, elements: (moves.products == 1) & (elements < 0),
    "a product of a sum that is inside": lambda moves, sums, elements: (
        (moves.products == 1) & (moves.cost == 0) & (sums == 0)
    ),
    "a product that begins a sum": lambda moves, sums, elements: (moves.products == 1) & (sums > 0),
    "a product of an element from outside": lambda moves, sums, elements: (
        (moves.products == 1) & (moves.cost == 1) & (sums == 0)
    ),
    "a sum that leaves": lambda moves, sums, elements: sums < 0,
    "an element that comes": lambda moves, sums, elements: (moves.products == 0) & (elements > 0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_attack_on_moves_finds_an_entry_too_many(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = room_moves

    def faulty(room: int) -> RoomMoves:
        moves = right(room)
        return moves._replace(cost=moves.cost + FAULTS[fault](moves, *attributes(moves)))

    monkeypatch.setitem(check_moves.__globals__, "room_moves", faulty)
    with pytest.raises(AssertionError):
        check_moves(400, [3, 4, 5], 2)


def test_the_prices_are_the_dearest_that_have_a_potential() -> None:
    for (charge, room), price in DEAREST.items():
        if room < 7:
            assert room_potential(room_moves(room), price, charge) is not None
            assert room_potential(room_moves(room), price + 1, charge) is None


def test_the_programs_that_there_are_have_more_entries() -> None:
    for path in sorted(RECORDS.glob("*.ir")):
        m, n, k = map(int, path.stem.split("x"))
        program = CellProgram.load(path)
        reads = Counter(map(distance, program.reads()))
        copies = len(re.findall(r"\bcopy\b", path.read_text()))
        for side in (2, 3):
            outside = sum(count for far, count in reads.items() if far > side) - max(0, m * n - side**2)
            entries = room_entries_by_copies(side**2, m * n * k, side**2, np.array([0, copies, 10**6]))
            assert entries[1] - m * n <= outside, (path.stem, side)


def small_boxes() -> Iterator[tuple[Box, int]]:
    yield from product([(1, 1, 3), (2, 2, 1), (1, 2, 2), (1, 3, 1)], range(2, 6))


def test_no_optimum_of_a_small_game_is_below() -> None:
    for box, room in small_boxes():
        m, n, k = box
        found = least_room_entries(room, m * n * k, room) - m * n + max(0, m * n - room)
        assert found <= least_outside(box, room), (box, room)


def test_other_rooms_are_left_alone() -> None:
    assert [least_room_entries(room, 64, room) for room in (0, 1, MOST_PLACES + 1)] == [0, 0, 0]


def no_plan_that_is_found_is_below(seed: int, seconds: float) -> float:
    """Check the bound of one room against a plan of a random box, and return how much of the plan it is."""
    rng = random.Random(seed)
    box: Box = (rng.randint(2, 6), rng.randint(2, 6), rng.randint(2, 6))
    room = rng.randint(2, MOST_PLACES)
    levels = Level("room", 0, 0, capacity=room), Level("far", 1, 0)
    machine = Machine("room", "element", levels, "explicit", "any", results=rng.choice(["apart", "over"]))  # type: ignore[arg-type]
    plan = solve(matmul(*box), machine, time_limit=seconds, seed=seed)
    bound = product_bound(Problem.of(matmul(*box), machine))
    assert bound <= plan.energy, (box, room)
    return bound / plan.energy


def test_no_plan_that_a_short_search_finds_is_below() -> None:
    assert no_plan_that_is_found_is_below(1, 0.3) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_no_plan_that_a_search_finds_is_below(seed: int) -> None:
    no_plan_that_is_found_is_below(seed, 4)
