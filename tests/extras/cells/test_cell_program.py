"""Programs on numbered cells: read, run, priced and written, against a second interpreter."""

from __future__ import annotations

import random

import pytest

from naive_cells import product_cost, run
from pebbler.errors import InputError
from pebbler.extras.cells.cell_program import CellProgram, WrongProgram, product_sizes
from pebbler.extras.cells.cell_writer import cell_program
from pebbler.game.graph import Graph
from pebbler.game.machine import machine
from pebbler.game.plan import Plan
from pebbler.game.sums import Sums
from pebbler.solver import solve
from pebbler.solver.paging.demand_paging import program_order_plan
from pebbler.solver.problem import Problem
from pebbler.workloads import matmul

TWO = "1,2,3,4,5,6,7,8\n" + "\n".join(
    f"mul 9,{1 + 2 * i},{5 + j}\nmul 10,{2 + 2 * i},{7 + j}\nadd {11 + 2 * i + j},9,10" for i in (0, 1) for j in (0, 1)
)  # a 2 x 2 product with nothing clever in it
WHOLE = TWO + "\n11,12,13,14\n"


def test_the_rule() -> None:
    program = CellProgram.parse(WHOLE)
    assert program.matching_sizes() == (2, 2, 2)
    assert program.cost() == product_cost(WHOLE, 2, 2, 2)
    # The same by hand: per sum two reads of A, two of B, of cells 9 and 10; then the results.
    reads = [1, 5, 2, 7, 9, 10, 1, 6, 2, 8, 9, 10, 3, 5, 4, 7, 9, 10, 3, 6, 4, 8, 9, 10, 11, 12, 13, 14]
    assert program.reads() == reads


def test_short_forms_and_separators_mean_the_same() -> None:
    long = "1,2,3\nmul 2,2,3\nadd 1,1,2\ncopy 4,1\n4\n"
    short = " 1, 2,3 ;mul 2,3;; add 1,2 # in place\n copy 4,1;4"
    assert CellProgram.parse(long).cost() == CellProgram.parse(short).cost() == 2 + 2 + 1 + 2 + 1 + 2
    assert CellProgram.parse(short).run([5, 6, 7]) == [47]
    assert CellProgram.parse(long).text() == long


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\nmul 1,2\nadd 1,9\n1", "line 3: reads cell 9, which holds nothing"),
        ("1,2\nmul 1,2\n7", "line 3: reads cell 7, which holds nothing"),
        ("1,2\nadd 1,2\n1", "line 3: element [0, 0] of the product, in cell 1, is wrong"),
        ("1,2\n" + "mul 1,1\n" * 40 + "1", "the result has more than 4096 bits"),
    ],
)
def test_what_is_no_product_is_refused_with_the_line(text: str, message: str) -> None:
    with pytest.raises(WrongProgram) as caught:
        CellProgram.parse(text).matching_sizes()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected at least two lines"),
        ("1,2", "expected at least two lines"),
        ("1,1\n1", "line 1: inputs must be in different cells; 1 is there twice"),
        ("1,0\n1", "line 1: expected the cells of the inputs"),
        ("1,2\nmul 0,1\n1", "line 2: expected add d,s,t"),
        ("1,2\nmul 1\n1", "line 2: expected"),
        ("1,2\ncopy 1,2,3\n1", "line 2: expected"),
        ("1,2\ndiv 1,2,3\n1", "line 2: expected"),
        ("1,2\nmul 1,2,-3\n1", "line 2: expected"),
        ("1,2\nmul 1,2\nmul\n1", "line 3: expected"),
        ("1,2\nmul 1,²\n1", "line 2: expected"),
        ("1,2\nmul 1,99999999999999\n1", "line 2: expected"),
    ],
)
def test_what_is_no_program_is_refused_with_the_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        CellProgram.parse(text)
    assert message in str(caught.value)


def test_sizes_follow_or_are_given() -> None:
    assert product_sizes(32, 16) == [(4, 4, 4)]
    assert (1, 4, 2) in product_sizes(10, 4)
    assert product_sizes(7, 5) == []
    with pytest.raises(InputError, match="has 12 inputs and 9 outputs; the program has 8 and 4"):
        CellProgram.parse(WHOLE).matching_sizes((3, 3, 2))


def test_one_changed_number_is_noticed() -> None:
    rng = random.Random(3)
    lines = WHOLE.strip().split("\n")
    changed = 0
    for _ in range(200):
        at = rng.randrange(len(lines))
        words = lines[at].replace(" ", ",").split(",")
        place = rng.randrange(1 if not words[0].isdigit() else 0, len(words))
        words[place] = str(rng.randint(1, 14))
        text = (words[0] + " " if not words[0].isdigit() else words[0] + ",") + ",".join(words[1:])
        mutant = "\n".join([*lines[:at], text, *lines[at + 1 :]])
        try:
            expected: int | None = product_cost(mutant, 2, 2, 2)
        except (AssertionError, KeyError):
            expected = None
        try:
            program = CellProgram.parse(mutant)
            program.matching_sizes((2, 2, 2))
            found: int | None = program.cost()
        except (InputError, WrongProgram, ValueError):
            found = None
        assert found == expected, mutant
        changed += expected is None
    assert changed > 50


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 2, 2), (1, 3, 2), (3, 2, 1), (2, 3, 4)])
def test_a_plan_becomes_a_program_of_the_same_cost(sizes: tuple[int, int, int]) -> None:
    grid = machine("grid")
    plans = [program_order_plan(Problem.of(matmul(*sizes), grid)), solve(matmul(*sizes), grid, time_limit=0)]
    sums = Sums.of(matmul(*sizes))
    if sums is not None:
        order = random.Random(1).sample(range(len(sums.makers)), len(sums.makers))
        plans.append(program_order_plan(Problem.of(sums.in_order(order), grid)))
    for plan in plans:
        assert plan is not None
        text = cell_program(plan).text()
        priced = solve_energy(plan)
        assert product_cost(text, *sizes) == priced == CellProgram.parse(text).cost()


def solve_energy(plan: Plan) -> float:
    """Return what the referee says of a plan."""
    from pebbler.referee.judgement import check

    judgement = check(plan)
    assert judgement.legal, judgement.error
    return judgement.energy


def test_only_sums_and_products_of_elements_become_programs() -> None:
    graph = Graph("g", unit="element").tensor("a", 1, "input").tensor("b", 1, "output").op("f", ["a"], ["b"])
    with pytest.raises(InputError, match="op f: a program adds or multiplies two elements"):
        cell_program(Plan.in_order(graph, machine("grid")))
    graph = Graph("g", unit="element").tensor("a", 2, "input").tensor("b", 1, "output").op("f", ["a"], ["b"])
    with pytest.raises(InputError, match="tensor a: a cell holds one unit, its size is 2"):
        cell_program(Plan.in_order(graph, machine("grid")))


def test_the_second_interpreter_can_fail() -> None:
    with pytest.raises(KeyError):
        run("1,2\nmul 3,4\n1", [1, 2])
