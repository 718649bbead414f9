"""Machines on which results may go over what is dropped right after: every method agrees with the referee."""

from __future__ import annotations

import numpy as np
import pytest

import pebbler as pb
from pebbler.extras.layout.layout_search import Layout
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Plan
from pebbler.solver import find_least_capacity
from pebbler.solver.problem import Impossible, Problem


def over(*levels: Level) -> Machine:
    return Machine("over", "float32", levels, operands="any", results="over")


def test_a_result_larger_than_its_level_is_dropped_at_once() -> None:
    machine = over(Level("near", 1, 1, capacity=2), Level("far", 5, 5))
    graph = Graph("g").tensor("x", 1, "input").tensor("t", 3).tensor("y", 1, "output")
    graph.op("a", ["x"], ["t"]).op("b", ["x"], ["y"])
    plan = pb.solve(graph, machine, start={"x": "near"}, time_limit=5, threads=1)
    assert (plan.energy, plan.bound, plan.status) == (6, 6, "optimal")
    moves = [("compute", "a", "near"), ("drop", "t", "near"), ("compute", "b", "near")]
    assert pb.check(Plan(graph, machine, moves, {"x": "near"})).energy == 6


def test_one_level_holds_a_result_in_the_room_of_its_operands() -> None:
    machine = over(Level("all", 1, 1, capacity=2))
    graph = (
        Graph("g").tensor("p", 1, "input").tensor("q", 1, "input").tensor("t", 1, "output").op("a", ["p", "q"], ["t"])
    )
    plan = pb.solve(graph, machine, time_limit=5, threads=1)
    assert (plan.energy, plan.status) == (3, "optimal")
    least = find_least_capacity(graph, machine)
    assert (least.least, least.bound) == (2, 2)
    with pytest.raises(Impossible, match="2 units start in all, which holds 1; at least 2 are needed"):
        pb.solve(graph, machine.resized(0, 1), time_limit=5, threads=1)


def test_a_long_line_on_one_level_takes_no_more_than_its_largest_value() -> None:
    graph = Graph("line").tensor("x0", 1, "input")
    for i in range(40):  # too many for the exact search
        graph.tensor(f"x{i + 1}", 1 + (i % 3), "output" if i == 39 else "temp").op(f"f{i}", [f"x{i}"], [f"x{i + 1}"])
    machine = over(Level("all", 1, 1, capacity=3))
    plan = pb.solve(graph, machine, time_limit=2, threads=1)
    assert plan.status == "optimal"
    assert find_least_capacity(graph, machine).least == 3


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_start_that_does_not_fit_is_impossible(levels: int) -> None:
    near = [Level(f"l{i}", 1 + i, 1 + i, capacity=2) for i in range(levels)]
    machine = over(*near) if levels == 1 else over(*near[:-1], Level("far", 9, 9))
    graph = Graph("g").tensor("x", 3, "input").tensor("y", 1, "output").op("f", ["x"], ["y"])
    with pytest.raises(Impossible, match="3 units start in l0, which holds 2; at least 3 are needed"):
        pb.solve(graph, machine, start={"x": "l0"}, time_limit=2, threads=1)


def test_what_nobody_needs_and_spare_copies_leave_their_room_at_the_start() -> None:
    machine = over(Level("near", 1, 1, capacity=2), Level("far", 5, 5))
    graph = Graph("g").tensor("idle", 1, "input").tensor("x", 1, "input").tensor("y", 2, "output").op("f", ["x"], ["y"])
    start = {"idle": "near", "x": ["near", "far"]}
    layout = Layout.of(Problem.of(graph, machine, start=start), np.arange(1), rounds=2)
    assert pb.check(layout.plan()).energy == 3
    solved = pb.solve(graph, machine, start=start, time_limit=2, threads=1)
    assert (solved.energy, solved.status, solved.start) == (3, "optimal", start)


def test_what_waits_where_it_starts_is_not_shut_out_by_shorter_lives() -> None:
    machine = over(Level("near", 1, 1, capacity=2), Level("far", 5, 5))
    graph = Graph("g").tensor("late", 2, "input")
    for i in range(4):
        graph.tensor(f"t{i}", 1).tensor(f"u{i}", 1).op(f"a{i}", [], [f"t{i}"]).op(f"b{i}", [f"t{i}"], [f"u{i}"])
    graph.tensor("y", 1, "output").op("end", ["late"], ["y"])
    problem = Problem.of(graph, machine, start={"late": "near"})
    layout = Layout.of(problem, np.arange(len(graph.ops)), rounds=5)
    assert pb.check(layout.plan()).legal


def test_a_steady_param_that_ends_smaller_than_it_starts() -> None:
    """The last copy of such a param is not the same as a copy in the next step, so the exact search tries every copy."""
    levels = (Level("near", 2, 0, capacity=3), Level("far", 10, 5))
    graph = (
        Graph("g", "float32").tensor("s", 4, "param").tensor("t", 1, "output", overwrites="s").tensor("y", 2, "output")
    )
    graph.op("a", ["s"], ["t"]).op("b", [], ["t"]).op("c", ["t"], ["y"])
    moves = [("compute", "a"), ("compute", "b"), ("copy", "t", "near", "far"), ("compute", "c"), ("drop", "t", "near")]
    for machine in (Machine("apart", "float32", levels, operands="any"), over(*levels)):
        assert pb.check(Plan(graph, machine, moves, {"s": "far"}, True)).energy == 49
        plan = pb.solve(graph, machine, steady=True, time_limit=5, threads=1)
        assert (plan.energy, plan.status) == (49, "optimal")


def test_program_order_puts_a_param_home_only_where_there_is_room() -> None:
    graph = Graph("g").tensor("s", 1, "param").tensor("t", 1, overwrites="s").tensor("u", 1).tensor("v", 1, "output")
    graph.op("a", ["s"], ["t", "u"]).op("b", ["t", "u"], ["v"]).op("c", ["t", "u"], ["t"], once=True)
    levels = (Level("near", 2, 1, capacity=1), Level("far", 5, 3))
    for machine in (Machine("apart", "float32", levels, operands="any"), over(*levels)):
        plan = pb.solve(graph, machine, steady=True, time_limit=5, threads=1)
        assert plan.status == "optimal"
