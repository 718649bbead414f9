"""Energy savings beyond note 000's model: the same step in tiles, priced by the referee."""

from __future__ import annotations

import math
from collections.abc import Callable

from pebbler.game.graph import Graph
from pebbler.game.machine import Machine, machine
from pebbler.game.plan import Plan
from pebbler.game.tile_meta import tile_of
from pebbler.game.transform import fuse, tile
from pebbler.notes.experiment import ClaimVerdict, Question, Value, show, table
from pebbler.notes.reference_orders import note_order
from pebbler.referee.judgement import require_legal
from pebbler.run.numbers import verify
from pebbler.workloads import mlp

__all__ = ["NEEDS_SOLVER", "PJ_PER_UJ", "Solver", "savings", "tile_by_tile"]

NEEDS_SOLVER = "needs the solver: pebbler reproduce"
PJ_PER_UJ = 1e6
_TILES = (10, 20, 50, 100, 250)

_PROGRAM, _NOTE, _SOLVED = "program order", "the note's best order", "the solver's plan"

# Finds plans; None for what it was not asked to solve.
Solver = Callable[[Graph, Machine], Plan | None]


def tile_by_tile(graph: Graph, loss: str = "bwd_loss") -> list[str]:
    """Return an order of a tiled step: forward tile by tile, the loss, then backward and updates tile by tile in reverse.

    >>> order = tile_by_tile(tile(mlp(n=2, hidden=4), "hidden", 2))
    >>> order[:2], order[-2:]
    (['fwd_linear1[0]', 'fwd_relu[0]'], ['upd_b1[0]', 'upd_W2[0]'])
    """
    cut = graph.op_index(loss)
    ranked = []
    for i, op in enumerate(graph.ops):
        found = tile_of(op)
        # Ops that belong to no tile come last before the loss and first after it.
        at = math.inf if found is None else next(iter(found.at.values()))[0]
        ranked.append(((0, at, i) if i <= cut else (1, -at, i), op.name))
    return [name for _, name in sorted(ranked)]


def savings(solve: Solver | None) -> tuple[Question, ClaimVerdict]:
    """Return the cost of a step in program order, in the note's order, in tiles, and as planned by the solver."""
    step, lru = mlp(n=20, hidden=1000), machine("notes")
    plans = {_PROGRAM: Plan.in_order(step, lru, steady=True)}
    plans[_NOTE] = Plan.in_order(step, lru, note_order("optimal"), steady=True)
    for size in _TILES:
        tiled = tile(fuse(step, "dW1"), "hidden", size)
        order = tile_by_tile(tiled)
        plans[f"tiles of {size}, reversed, dW1 fused"] = Plan.in_order(tiled, lru, order, steady=True, source=step)
    solved = None if solve is None else solve(step, lru)
    if solved is not None:
        plans[_SOLVED] = solved
    energies = {name: require_legal(plan).energy / PJ_PER_UJ for name, plan in plans.items()}
    program, best = energies[_PROGRAM], min(energies, key=lambda name: energies[name])
    times = program / energies[best]
    rows: list[tuple[Value, ...]] = [
        (name, energies[name], program / energies[name], _difference(plan)) for name, plan in plans.items()
    ]
    if solved is None:
        rows.append((_SOLVED, NEEDS_SOLVER, None, None))
    question = Question(
        question="How much energy can a plan save beyond reordering?",
        answer=(
            f"{show(program, 3)} µJ in program order fall to {show(energies[best], 3)} µJ ({best}): {times:.2f}x cheaper. "
            f"The note's best order gives {show(energies[_NOTE], 3)} µJ."
        ),
        tables=(
            table(
                "One step on the notes' LRU machine, steady state",
                ["schedule", "µJ", "cheaper by", "relative difference of results"],
                rows,
            ),
        ),
    )
    return question, ClaimVerdict(
        claim="The improvement window is very narrow: 3 % between the best and the worst order.",
        truth=(
            f"For orders of whole tensors. With {best}, the step costs {show(energies[best], 3)} µJ against "
            f"{show(program, 3)} µJ in program order, {times:.2f}x cheaper."
        ),
        evidence=_evidence(solved),
    )


def _evidence(solved: Plan | None) -> str:
    sure = "Priced by the referee on the note's machine with LRU caches, one step of an endless loop."
    if solved is None or solved.bound is None:
        return sure
    return f"{sure} No schedule of the plan's graph costs less than {show(solved.bound / PJ_PER_UJ, 3)} µJ ({solved.status})."


def _difference(plan: Plan) -> str:
    """Return a description of the difference between a plan's results and program order's."""
    found = verify(plan).largest_difference
    return "none" if found == 0 else f"{found:.0e}"
