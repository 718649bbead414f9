"""A checkpointing schedule for user-written adjoint code, as a sequence of actions: run, keep, forget."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pebbler.game.moves import Compute, Copy
from pebbler.solver.chain import solve_chain

__all__ = ["Action", "schedule"]


@dataclass(frozen=True, repr=False)
class Action:
    """One action. State `i` is the input of step `i`, and step `i` makes state `i + 1` from it.

    - `advance i`: run step i forward from state i, which stays, and keep state i + 1.
    - `reverse i`: from state i, run step i with everything that its gradient needs, then its gradient.
    - `store i`, `load i`: copy state i to slow memory, or back.
    - `free i`: forget state i; `slow` says of which memory.
    """

    kind: Literal["advance", "reverse", "store", "load", "free"]
    index: int
    slow: bool = False

    def __repr__(self) -> str:
        return f"{self.kind} {self.index}{' in slow memory' if self.slow else ''}"


def schedule(steps: int, checkpoints: int, *, compute: float = 1.0, io: float = math.inf) -> Iterator[Action]:
    """Yield the actions of the cheapest forward and backward pass over `steps` steps of equal size.

    At most `checkpoints` states are kept in fast memory, the first one included, beside the two that a running step reads and
    makes. A step costs `compute`; a store or load costs `io`, and there is no slow memory by default. The schedule is optimal:
    `pb.solve_chain(steps, checkpoints, io=io, adjoint=True)` is the same as a plan, with its cost and proof.

    >>> list(schedule(3, checkpoints=2))
    [advance 0, advance 1, reverse 2, free 2, reverse 1, free 1, reverse 0]
    >>> sum(action.kind == "advance" for action in schedule(100, checkpoints=10))  # the extra forward steps of revolve
    222
    """
    plan = solve_chain(steps, checkpoints, compute, io, adjoint=True)
    for move in plan.moves:
        if isinstance(move, Compute):
            index = int(move.op[1:])
            yield Action("advance", index - 1) if move.op[0] == "c" else Action("reverse", index)
        elif isinstance(move, Copy):
            yield Action("store" if move.source == "fast" else "load", int(move.tensor[1:]))
        elif move.tensor[0] == "N":
            yield Action("free", int(move.tensor[1:]), slow=move.level == "slow")
