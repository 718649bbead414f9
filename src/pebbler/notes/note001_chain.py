"""Note 001: a chain of 100 layers with 11 red pebbles. Its own program breaks its own rules; recomputation alone wins."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from pebbler.game.machine import Machine, machine
from pebbler.game.moves import Moves
from pebbler.game.plan import Move, Plan
from pebbler.notes.experiment import (
    ClaimVerdict,
    Experiment,
    NoteFigure,
    Plot,
    Question,
    Series,
    Value,
    compare,
    show,
    table,
)
from pebbler.referee.judgement import Judgement, check, require_legal
from pebbler.solver.chain import ChainSolution, solve_uniform
from pebbler.workloads import chain

__all__ = ["note_program", "optimum", "run"]

LENGTH, RED, IO = 100, 11, 100
# Red pebbles: the least energy without stores and loads.
_DEAR_OPTIMA = {
    3: 5149,
    4: 1019,
    5: 627,
    6: 490,
    7: 423,
    8: 388,
    9: 357,
    10: 347,
    11: 336,
    12: 324,
    13: 311,
    14: 297,
    15: 287,
}
_OPTIMAL = (
    "The least energy under the note's rules, proven; it needs no store and no load, because recomputing is cheaper."
)


def note_program(length: int = LENGTH, interval: int = 10, red_limit: int = RED) -> tuple[list[Move], int]:
    """Return the moves of the note's program, exactly as it makes them, and the red pebbles that it ends with.

    >>> moves, red = note_program()
    >>> len(moves), moves[:2], moves[-1], red
    (381, [('compute', 'c1'), ('compute', 'c2')], ('compute', 'b0'), 101)
    """
    moves: list[Move] = []
    red, blue, checkpoints = {0}, set[int](), range(0, length + 1, interval)

    def make(node: int) -> None:
        moves.append(("compute", f"c{node}"))
        red.add(node)

    for node in range(1, length + 1):
        make(node)
        behind = node - red_limit
        if len(red) > red_limit and behind not in checkpoints:
            moves.append(("drop", f"N{behind}", "fast"))
            red.remove(behind)
        if node in checkpoints:
            moves.append(("copy", f"N{node}", "fast", "slow"))
            blue.add(node)
    for node in range(length, -1, -1):
        if node not in red:
            # N0 is never stored, so below the first checkpoint the loop finds nothing and goes on without the node.
            for base in sorted(blue & set(range(node + 1)))[-1:]:
                moves.append(("copy", f"N{base}", "slow", "fast"))
                red.add(base)
                for again in range(base + 1, node + 1):
                    make(again)
        if node < length and node + 1 not in red:
            make(node + 1)
        moves.append(("compute", f"b{node}"))
    return moves, len(red)


def optimum(red: int, io: float = IO, length: int = LENGTH) -> ChainSolution:
    """Return the best pebbling of the chain, accepted by the referee.

    >>> best = optimum(RED)
    >>> best.energy, best.status, best.stores, best.loads
    (336, 'optimal', 0, 0)
    """
    best = solve_uniform(length, red, io=io)
    require_legal(best.plan())
    return best


def _levels(red: int, io: float) -> Machine:
    base = machine("red-blue")
    fast, slow = base.level
    levels = (msgspec.structs.replace(fast, capacity=red), msgspec.structs.replace(slow, read=io, write=io))
    return msgspec.structs.replace(base, name=f"red-blue {red}/{io:g}", level=levels)


def _count(moves: Sequence[Move]) -> Counter[str]:
    """Return how many moves of each kind there are, loads and stores told apart."""
    return Counter(map(_kind, moves))


def _kind(move: Move) -> str:
    if move[0] == "compute":
        return "computes" if move[1].startswith("c") else "backwards"
    if move[0] == "copy":
        return "stores" if move[2] == "fast" else "loads"
    return "drops"


def run() -> Experiment:
    """Return what note 001's program does, and the true optimum beside it."""
    moves, last_red = note_program()
    graph = chain(LENGTH)

    def judge(machine: Machine) -> Judgement:
        return check(Plan(graph, machine, Moves.of(graph, machine, moves), start={"N0": "fast"}, steady=False))

    judged, roomy = judge(_levels(RED, IO)), judge(_levels(LENGTH + 2, IO))
    best = optimum(RED)
    dear = {red: optimum(red, math.inf) for red in _DEAR_OPTIMA}
    priced = {red: optimum(red) for red in _DEAR_OPTIMA}
    theirs = _count(moves)
    spent = theirs["computes"] + theirs["backwards"] + IO * (theirs["stores"] + theirs["loads"])
    return Experiment(
        name="chain",
        note="001",
        question="What does it cost to run a chain of 100 layers forward and backward with 11 red pebbles?",
        config={"length": LENGTH, "red": RED, "compute": 1, "io": IO},
        seeds=(),
        rows=(*_note_rows(spent, theirs, best, judged.move, last_red), *_optimum_rows(best, dear)),
        verdicts=(
            ClaimVerdict(
                claim="Checkpointing every 10 nodes is energy-optimal: 2,250 units, or 2,030 with uneven spacing.",
                truth=(
                    f"The optimum is {show(best.energy)} units, with {best.stores} stores and {best.loads} loads. The "
                    f"note's own program spends {show(spent)} in {len(moves)} moves, and it is not legal: {judged.error}."
                ),
                evidence="The referee on both; the optimum is proven for every legal schedule of this game.",
            ),
            ClaimVerdict(
                claim="Only 11 nodes are in SRAM at any time.",
                truth=(
                    f"The program breaks that limit at its {judged.move}th move and ends with {last_red} red pebbles. Even with "
                    f"room for all it goes wrong at {roomy.error}."
                ),
                evidence="The referee names the first illegal move on a machine of 11 and of 102 red pebbles.",
            ),
        ),
        questions=(_red_question(priced, dear), _price_question()),
        plots=(
            Plot(
                name="red-pebbles",
                title="Least energy of a chain of 100 layers",
                x_label="red pebbles",
                y_label="units",
                log_y=True,
                series=tuple(
                    Series(label=label, x=tuple(plans), y=tuple(float(plan.energy) for plan in plans.values()))
                    for label, plans in (("load and store 100", priced), ("recomputation only", dear))
                ),
            ),
        ),
    )


def _note_rows(
    spent: int, theirs: Counter[str], best: ChainSolution, illegal: int | None, last_red: int
) -> tuple[NoteFigure, ...]:
    again = theirs["computes"] - LENGTH
    program = (
        f"The note's table does not count what its program does: it loads {theirs['loads']} times, recomputes {again} nodes "
        f"and runs {theirs['backwards']} backward steps."
    )
    forward = LENGTH + IO * theirs["stores"]

    def wrong(
        name: str, measured: Value, published: str, corrected: Value, why: str = program, unit: str = ""
    ) -> NoteFigure:
        return compare(name, measured, published, corrected=corrected, unit=unit, wrong=True, why=why)

    return (
        wrong("total energy", spent, "2,250", best.energy, _OPTIMAL, "units"),
        wrong(
            "total energy, uneven spacing",
            None,
            "2,030",
            best.energy,
            "The note gives no program for it; " + _OPTIMAL,
            "units",
        ),
        wrong("moves", sum(theirs.values()), "320", best.count),
        compare("forward: computes", LENGTH, "100"),
        compare("forward: stores", theirs["stores"], "10", corrected=best.stores, why=_OPTIMAL),
        compare("forward: energy", forward, "1,100", corrected=LENGTH, unit="units", why=_OPTIMAL),
        wrong("backward: loads", theirs["loads"], "10", best.loads),
        wrong("backward: recomputed nodes", again, "50", best.computes - LENGTH),
        wrong(
            "backward: gradients",
            theirs["backwards"],
            "100",
            LENGTH + 1,
            "There are 101 nodes, and each has its step.",
        ),
        wrong("backward: energy", spent - forward, "1,150", best.energy - LENGTH, unit="units"),
        wrong(
            "red pebbles in use",
            last_red,
            "11",
            best.peak_red,
            "The program never removes its checkpoints nor what it recomputes.",
        ),
        compare("energy of the note's program", spent, reference=2082, unit="units"),
        compare("moves of the note's program", sum(theirs.values()), reference=381),
        compare("first illegal move", illegal, reference=12),
    )


def _optimum_rows(best: ChainSolution, dear: dict[int, ChainSolution]) -> tuple[NoteFigure, ...]:
    return (
        compare("optimum, 11 red", best.energy, reference=336, unit="units", why=_OPTIMAL),
        compare("optimum: stores and loads", best.stores + best.loads, reference=0),
        compare("optimum, 102 red", optimum(LENGTH + 2).energy, reference=201, unit="units"),
        *(
            compare(f"optimum without io, {red} red", plan.energy, reference=_DEAR_OPTIMA[red], unit="units")
            for red, plan in dear.items()
        ),
    )


def _red_question(priced: dict[int, ChainSolution], dear: dict[int, ChainSolution]) -> Question:
    rows = [
        (red, plan.energy, plan.computes, plan.stores, plan.loads, dear[red].energy, plan.status)
        for red, plan in priced.items()
    ]
    using = [red for red, plan in priced.items() if plan.stores]
    return Question(
        question="How does the optimum depend on the number of red pebbles?",
        answer=(
            f"At 100 units per load or store, stores pay with {show(tuple(using)) if using else 'no number of'} red pebbles "
            "only; with more, recomputation alone is cheaper than a single store and load."
        ),
        tables=(
            table(
                "Least energy of the chain, compute 1, load and store 100",
                ["red", "units", "computes", "stores", "loads", "without io", "status"],
                rows,
            ),
        ),
    )


def _price_question() -> Question:
    rows: list[tuple[Value, ...]] = []
    for io in (1, 2, 5, 10, 20, 50, 100):
        plan = optimum(RED, io)
        rows.append((io, plan.energy, plan.computes, plan.stores, plan.loads, plan.status))
    never = next((row[0] for row in rows if not row[3]), None)
    return Question(
        question="At what price of a load and store is checkpointing to DRAM worth it?",
        answer=(
            f"Not at the note's 100:1, for which it recommends one every 10 nodes: with {RED} red pebbles no store is worth it "
            f"from {show(never)} units on."
        ),
        tables=(
            table(
                "11 red pebbles, by price of a load or store",
                ["io", "units", "computes", "stores", "loads", "status"],
                rows,
            ),
        ),
    )
