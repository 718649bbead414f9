"""Note 001: a chain of 100 layers with 11 red pebbles. Its own program breaks its own rules; recomputation alone wins."""

from __future__ import annotations

import math
from collections.abc import Iterator

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
from pebbler.referee.judgement import require_legal
from pebbler.solver.chain import ChainSolution, solve_uniform
from pebbler.solver.chain.chain_moves import ChainMove
from pebbler.solver.chain.strategies import StrategyResult, judge

__all__ = ["note_program", "optimum", "run"]

LENGTH, RED, IO = 100, 11, 100
# Red pebbles: the least energy without stores and loads.
_DEAR_OPTIMA = dict(enumerate((5149, 1019, 627, 490, 423, 388, 357, 347, 336, 324, 311, 297, 287), start=3))
_OPTIMAL = (
    "The least energy under the note's rules, proven; it needs no store and no load, because recomputing is cheaper."
)
_NO_PROGRAM = "The note gives no program for it"
_NEVER_REMOVES = "The program never removes its checkpoints nor what it recomputes."


def note_program(length: int = LENGTH, red: int = RED, interval: int = 10) -> Iterator[ChainMove]:
    """Yield the moves of note 001's own program: a checkpoint stored every `interval` nodes.

    It is followed to the letter, faults included: it counts its pebbles after putting one down, deletes by age only, and never
    deletes in the backward pass.

    >>> moves = list(note_program())
    >>> len(moves), moves[11]
    (381, ('compute', 11))
    """
    reds, blues = {0}, set[int]()
    checkpoints = range(0, length + 1, interval)
    for i in range(1, length + 1):
        yield "compute", i
        reds.add(i)
        oldest = i - red
        if len(reds) > red and oldest not in checkpoints and oldest in reds:
            yield "drop", oldest
            reds.remove(oldest)
        if i in checkpoints:
            yield "store", i
            blues.add(i)
    for i in range(length, -1, -1):
        if i not in reds:
            for checkpoint in reversed(checkpoints):
                if checkpoint <= i and checkpoint in blues:
                    yield "load", checkpoint
                    reds.add(checkpoint)
                    for j in range(checkpoint + 1, i + 1):
                        yield "compute", j
                        reds.add(j)
                    break
        if i < length and i + 1 not in reds:
            yield "compute", i + 1
            reds.add(i + 1)
        yield "backward", i


def optimum(red: int, io: float = IO, length: int = LENGTH) -> ChainSolution:
    """Return the best pebbling of the chain, accepted by the referee.

    >>> best = optimum(RED)
    >>> best.energy, best.status, best.stores, best.loads
    (336, 'optimal', 0, 0)
    """
    best = solve_uniform(length, red, io=io)
    require_legal(best.plan())
    return best


def run() -> Experiment:
    """Return what note 001's program does, and the true optimum beside it."""
    moves = list(note_program())
    theirs, roomy = (judge("note 001's program", LENGTH, red, 1, IO, moves) for red in (RED, LENGTH + 2))
    backward_steps = sum(kind == "backward" for kind, _ in moves)
    best = optimum(RED)
    dear = {red: optimum(red, math.inf) for red in _DEAR_OPTIMA}
    priced = {red: optimum(red) for red in _DEAR_OPTIMA}
    return Experiment(
        name="chain",
        note="001",
        question="What does it cost to run a chain of 100 layers forward and backward with 11 red pebbles?",
        config={"length": LENGTH, "red": RED, "compute": 1, "io": IO},
        seeds=(),
        rows=(*_note_rows(theirs, backward_steps, best), *_optimum_rows(best, dear)),
        verdicts=(
            ClaimVerdict(
                claim="Checkpointing every 10 nodes is energy-optimal: 2,250 units, or 2,030 with uneven spacing.",
                truth=(
                    f"The optimum is {show(best.energy)} units, with {best.stores} stores and {best.loads} loads. The "
                    f"note's own program spends {show(theirs.energy)} in {len(moves)} moves, and it is not legal: {theirs.error}."
                ),
                evidence="The referee on both; the optimum is proven for every legal schedule of this game.",
            ),
            ClaimVerdict(
                claim="Only 11 nodes are in SRAM at any time.",
                truth=(
                    f"The program breaks that limit at its {theirs.move}th move and ends with {theirs.peak_red} red pebbles. Even "
                    f"with room for all it goes wrong at {roomy.error}."
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


def _note_rows(theirs: StrategyResult, backward_steps: int, best: ChainSolution) -> tuple[NoteFigure, ...]:
    again, spent = theirs.computes - LENGTH, theirs.energy
    program = (
        f"The note's table does not count what its program does: it loads {theirs.loads} times, recomputes {again} nodes "
        f"and runs {backward_steps} backward steps."
    )
    forward = LENGTH + IO * theirs.stores

    def wrong(
        name: str, measured: Value, published: str, corrected: Value, why: str = program, unit: str = ""
    ) -> NoteFigure:
        return compare(name, measured, published, corrected=corrected, unit=unit, wrong=True, why=why)

    return (
        wrong("total energy", spent, "2,250", best.energy, _OPTIMAL, "units"),
        wrong("total energy, uneven spacing", None, "2,030", best.energy, f"{_NO_PROGRAM}; {_OPTIMAL}", "units"),
        wrong("moves", theirs.moves, "320", best.count),
        compare("forward: computes", LENGTH, "100"),
        compare("forward: stores", theirs.stores, "10", corrected=best.stores, why=_OPTIMAL),
        compare("forward: energy", forward, "1,100", corrected=LENGTH, unit="units", why=_OPTIMAL),
        wrong("backward: loads", theirs.loads, "10", best.loads),
        wrong("backward: recomputed nodes", again, "50", best.computes - LENGTH),
        wrong("backward: gradients", backward_steps, "100", LENGTH + 1, "There are 101 nodes, and each has its step."),
        wrong("backward: energy", spent - forward, "1,150", best.energy - LENGTH, unit="units"),
        wrong("red pebbles in use", theirs.peak_red, "11", best.peak_red, _NEVER_REMOVES),
        compare("energy of the note's program", spent, reference=2082, unit="units"),
        compare("moves of the note's program", theirs.moves, reference=381),
        compare("first illegal move", theirs.move, reference=12),
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
