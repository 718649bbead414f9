"""Machines whose results may take the room of operands, and tensors that start where the plan says."""

from __future__ import annotations

import random

import pytest

from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check

LEVELS = (Level("near", 1, 0, capacity=1), Level("far", 5, 0))
OVER = Machine("over", "element", LEVELS, operands="any", results="over")
APART = Machine("apart", "element", LEVELS, operands="any")


def double() -> Graph:
    graph = Graph("double", unit="element").tensor("a", 1, "input", start="free").tensor("b", 1, "output")
    return graph.op("f", ["a"], ["b"])


def test_a_result_takes_the_room_of_what_is_dropped_right_after() -> None:
    moves = [("compute", "f", "near"), ("drop", "a", "near")]
    judgement = check(Plan(double(), OVER, moves, start={"a": "near"}))
    assert judgement.legal
    assert (judgement.energy, judgement.peak["near"]) == (1, 1)
    apart = check(Plan(double(), APART, moves, start={"a": "near"}))
    assert apart.error == "move 1: near would hold 2 units; its capacity is 1"


@pytest.mark.parametrize(
    ("moves", "error"),
    [
        ([("compute", "f", "near")], "move 1: near would hold 2 units; its capacity is 1"),
        (
            [("compute", "f", "near"), ("copy", "b", "near", "far"), ("drop", "a", "near")],
            "move 1: near would hold 2 units; its capacity is 1",
        ),
        (
            [("copy", "a", "near", "far"), ("compute", "f", "near"), ("drop", "a", "far")],
            "move 3: near would hold 2 units; its capacity is 1",
        ),
    ],
)
def test_nothing_else_may_come_between(moves: list[tuple[str, ...]], error: str) -> None:
    judgement = check(Plan(double(), OVER, moves, start={"a": "near"}))
    assert judgement.error == error


def naive_room(machine: Machine, start: list[int], moves: list[tuple[str, ...]]) -> bool:
    """Return whether no level is ever too full: a compute counts together with the drops that follow it."""
    room = [level.capacity or 10**9 for level in machine.level]
    names = machine.names
    held = [start.count(level) for level in range(len(names))]
    if any(have > most for have, most in zip(held, room, strict=True)):
        return False
    for number, move in enumerate(moves):
        if move[0] == "compute":
            held[names.index(move[2])] += 1
        elif move[0] == "copy":
            held[names.index(move[3])] += 1
        else:
            held[names.index(move[2])] -= 1
        follows = moves[number + 1][0] == "drop" if number + 1 < len(moves) else False
        waits = follows and move[0] in ("compute", "drop") and _after_compute(moves, number)
        if machine.results == "over" and waits:
            continue
        if any(have > most for have, most in zip(held, room, strict=True)):
            return False
    return True


def _after_compute(moves: list[tuple[str, ...]], number: int) -> bool:
    while moves[number][0] == "drop" and number:
        number -= 1
    return moves[number][0] == "compute"


def test_room_against_a_plain_count() -> None:
    legal = 0
    for seed in range(400):
        rng = random.Random(seed)
        graph = Graph("line", unit="element").tensor("x0", 1, "input", start="free")
        count = rng.randint(1, 4)
        for i in range(1, count + 1):
            graph.tensor(f"x{i}", 1, "output" if i == count else "temp").op(f"f{i}", [f"x{i - 1}"], [f"x{i}"])
        levels = tuple(Level(f"l{i}", i + 1, 0, 1) for i in range(rng.randint(1, 2)))
        machine = Machine(
            "m", "element", (*levels, Level("far", 9, 0)), operands="any", results=rng.choice(["over", "apart"])
        )
        names = machine.names
        start = rng.choice(names)
        where, moves = {"x0": {start}}, []
        for i in range(1, count + 1):
            if rng.random() < 0.3:
                source = rng.choice(sorted(where[f"x{i - 1}"]))
                goal = rng.choice([name for name in names if name not in where[f"x{i - 1}"]] or [None])
                if goal:
                    moves.append(("copy", f"x{i - 1}", source, goal))
                    where[f"x{i - 1}"].add(goal)
            goal = rng.choice(names)
            moves.append(("compute", f"f{i}", goal))
            where[f"x{i}"] = {goal}
            if rng.random() < 0.8:
                moves += [("drop", f"x{i - 1}", level) for level in sorted(where.pop(f"x{i - 1}"))]
        judgement = check(Plan(graph, machine, moves, start={"x0": start}))
        assert judgement.legal == naive_room(machine, [names.index(start)], moves), f"seed {seed}: {judgement.error}"
        legal += judgement.legal
    assert 100 < legal < 350


def test_free_inputs_of_a_steady_step_start_anywhere() -> None:
    graph = (
        Graph("step", unit="element")
        .tensor("w", 1, "param")
        .tensor("x", 1, "input")
        .tensor("y", 1, "input", start="free")
    )
    graph.op("upd", ["w", "x", "y"], ["w"])
    start = {"w": "far", "y": "near"}
    assert check(Plan(graph, APART, [("compute", "upd", "far")], start=start)).legal
    judgement = check(Plan(graph, APART, [("compute", "upd", "far")], start={"w": "far", "x": "near"}))
    assert judgement.error == "start: in a steady plan input x arrives in far, and only there"


def test_wrong_machines_and_tensors_are_refused() -> None:
    with pytest.raises(InputError, match="results 'over' is for management 'explicit' and operands 'any'"):
        Machine("m", "element", LEVELS, results="over")
    with pytest.raises(InputError, match="only inputs and params exist at the start, so a temp has no start"):
        Graph("g").tensor("a", 1, "temp", start="free")
    with pytest.raises(InputError, match="near is not one of"):
        Graph("g").tensor("a", 1, "input", start="near")  # type: ignore[arg-type]


def test_a_free_start_survives_a_file() -> None:
    graph = double()
    assert b'"start":"free"' in graph.to_json()
    assert Graph.from_file(graph.to_file()).tensor_named("a").start == "free"
