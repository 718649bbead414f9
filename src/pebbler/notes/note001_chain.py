"""Note 001: a chain of 100 layers with 11 red pebbles. Its own program breaks its own rules; recomputation alone wins."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise

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
_EVEN, _UNEVEN = tuple(range(0, 100, 10)), (0, 12, 25, 37, 50, 62, 75, 87)
_CLAIMED, _CLAIMED_TRANSFERS = 30, 18  # recomputed nodes, and stores and loads, of the note's uneven spacing
_TRANSFER_PRICES = (0, 0.25, 0.5, 1, 2, 3, 4, 5, 6)
_OPTIMAL = (
    "The least energy under the note's rules, proven; it needs no store and no load, because recomputing is cheaper."
)
_PLACES = "The note gives places and no program; here each stretch between two places is done the best way."
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


def stored_at(places: Sequence[int], length: int = LENGTH, red: int = RED) -> Iterator[ChainMove]:
    """Yield a pebbling that stores these nodes and no others, and recomputes little in between.

    Every stretch between two of them is done like a chain of its own, the best way there is without stores; N_0 needs none.

    >>> moves = list(stored_at([0, 2], length=4, red=3))
    >>> [node for kind, node in moves if kind == "store"], [node for kind, node in moves if kind == "load"]
    ([0], [0])
    """
    bases = sorted({0, *places} - {length})
    for base, top in pairwise(bases):
        yield "store", base
        for node in range(base + 1, top + 1):
            yield "compute", node
            yield "drop", node - 1
    for top, base in pairwise([length, *reversed(bases)]):
        # The first stretch has all pebbles and its last node to compute; others begin with their last node red.
        first = top == length
        size = top - base if first else top - base - 1
        if not first:
            yield "load", base
        moves: Iterable[ChainMove] = [("backward", 0)]
        if size:
            moves = solve_uniform(size, red - (not first), io=math.inf).moves()
        reds = {0}
        for kind, node in moves:
            yield kind, base + node
            reds = reds | {node} if kind == "compute" else reds - {node} if kind == "drop" else reds
            if not first and (kind, node) == ("backward", size):
                yield "drop", top
        for node in sorted(reds - {0}):
            yield "drop", base + node


def fewest_recomputes(transfers: int) -> int:
    """Return a number of recomputed nodes that no pebbling with so many stores and loads undercuts.

    At any price of a store or load, the optimum costs no more than such a pebbling.

    >>> fewest_recomputes(0), fewest_recomputes(18)
    (135, 81)
    """
    fixed = 2 * LENGTH + 1  # every node is computed once, and has its backward step
    return max(math.ceil(_least_energy(io) - fixed - io * transfers) for io in _TRANSFER_PRICES)


@cache
def _least_energy(io: float) -> float:
    return optimum(RED, io).energy


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
    """Return the moves of note 001's program, and the true optimum beside them."""
    moves = list(note_program())
    theirs, roomy = (judge("note 001's program", LENGTH, red, 1, IO, moves) for red in (RED, LENGTH + 2))
    backward_steps = sum(kind == "backward" for kind, _ in moves)
    best = optimum(RED)
    even, uneven = (
        judge(name, LENGTH, RED, 1, IO, stored_at(at)) for name, at in (("even", _EVEN), ("uneven", _UNEVEN))
    )
    dear = {red: optimum(red, math.inf) for red in _DEAR_OPTIMA}
    priced = {red: optimum(red) for red in _DEAR_OPTIMA}
    return Experiment(
        name="chain",
        note="001",
        question="What does it cost to run a chain of 100 layers forward and backward with 11 red pebbles?",
        config={"length": LENGTH, "red": RED, "compute": 1, "io": IO},
        seeds=(),
        rows=(
            *_note_rows(theirs, backward_steps, best),
            *_spacing_rows(even, uneven, best),
            *_optimum_rows(best, dear),
        ),
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
            ClaimVerdict(
                claim="Uneven spacing reduces recomputation by 40 %.",
                truth=(
                    f"It adds {100 * (_again(uneven) / _again(even) - 1):.0f} %: with the note's uneven checkpoints, each stretch "
                    f"done the best way, {_again(uneven)} nodes are recomputed, with even ones every 10 {_again(even)}. With nine "
                    f"stores and nine loads, which the note counts, no spacing recomputes fewer than "
                    f"{fewest_recomputes(_CLAIMED_TRANSFERS)}; the note claims {_CLAIMED}."
                ),
                evidence="The referee on both; the optimum at several prices of a store and load bounds every pebbling.",
            ),
        ),
        questions=(_red_question(priced, dear), _price_question()),
        plots=(
            _spacing_plot(even, uneven),
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


def _again(played: StrategyResult) -> int:
    return played.computes - LENGTH


def _spacing_rows(even: StrategyResult, uneven: StrategyResult, best: ChainSolution) -> tuple[NoteFigure, ...]:
    fewest = fewest_recomputes(_CLAIMED_TRANSFERS)
    why = (
        f"The note's places leave stretches of 12 and 13 nodes, too long for {RED} pebbles. With nine stores and nine loads no "
        f"spacing recomputes fewer than {fewest} nodes, and even spacing needs no more."
    )

    def saved(count: int) -> float:
        return 100 * (1 - count / _again(even))

    return (
        compare(
            "uneven spacing: energy",
            uneven.energy,
            "2,030",
            corrected=best.energy,
            unit="units",
            wrong=True,
            why=f"{_PLACES} {_OPTIMAL}",
        ),
        compare("even spacing: recomputed nodes", _again(even), reference=81),
        compare(
            "uneven spacing: recomputed nodes", _again(uneven), str(_CLAIMED), corrected=fewest, wrong=True, why=why
        ),
        compare(
            "uneven spacing: saved",
            saved(_again(uneven)),
            "40",
            corrected=saved(fewest),
            unit="%",
            wrong=True,
            why=why,
        ),
    )


def _spacing_plot(even: StrategyResult, uneven: StrategyResult) -> Plot:
    def point(label: str, transfers: int, recomputed: int) -> Series:
        return Series(label=label, x=(transfers,), y=(recomputed,))

    transfers = tuple(range(0, 25, 2))
    return Plot(
        name="uneven-spacing",
        title="Recomputed nodes by stores and loads, 100 layers, 11 red pebbles",
        x_label="stores and loads",
        y_label="recomputed nodes",
        series=(
            Series(label="no pebbling is below", x=transfers, y=tuple(map(fewest_recomputes, transfers))),
            point("every 10, claimed", 20, 50),
            point("every 10, played", even.stores + even.loads, _again(even)),
            point("uneven, claimed", _CLAIMED_TRANSFERS, _CLAIMED),
            point("uneven, played", uneven.stores + uneven.loads, _again(uneven)),
        ),
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
