"""The program of a compiled graph for the report page: the plan that its schedule is, beside the same graph without a budget."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Protocol

import torch

from pebbler.errors import InputError
from pebbler.game.moves import Compute
from pebbler.game.plan import Plan
from pebbler.run.torch.backend.scheduled_step import ScheduledStep
from pebbler.run.torch.plan.launch_fusion import held_between
from pebbler.run.torch.plan.torch_plan import SCALE

__all__ = ["CompiledProgram", "HasProgram", "keep_graph", "programs_of"]


@dataclass
class CompiledProgram:
    """A compiled graph as its last compilation made it; `unlimited` is the same graph as torch compiles it without a budget."""

    step: ScheduledStep
    unlimited: ScheduledStep
    device: str
    budget: int | None = None
    curve: Sequence[tuple[int, float]] = ()  # peaks and seconds of the choices that there were
    held: int | None = None  # bytes, measured
    trained: list[weakref.ref[Any]] = field(default_factory=list)  # the parameters that it was called with

    def as_plan(self) -> Plan:
        """Return the program as a plan, with what a report shows beside it."""
        plan, free = self.step.plan, self.unlimited.plan
        memory = held_between(free, free.machine.level[0].name)
        runs = [i for i, move in enumerate(free.moves) if isinstance(move, Compute)]
        about = {
            "device": self.device, "budget": self.budget, "headroom": 0, "objective": "time", "kernels": "compiled",
            "unplanned": self.unlimited.seconds, "held": self.held,
            "unlimited": {"held": [memory[i + 1] for i in runs], "cost": [op.cost for op in free.graph.ops]},
            "curve": [{"peak": peak, "cost": seconds * SCALE["time"]} for peak, seconds in self.curve],
        }  # fmt: skip
        return replace(plan, meta={**plan.meta, "torch": about})


class HasProgram(Protocol):
    """A compiled graph."""

    def program(self) -> CompiledProgram | None: ...


# Compiled graphs that are alive, in the order in which they were made.
_GRAPHS: weakref.WeakValueDictionary[int, HasProgram] = weakref.WeakValueDictionary()
_NUMBERS = count()


def keep_graph(graph: HasProgram) -> None:
    """Remember a compiled graph as long as it lives."""
    _GRAPHS[next(_NUMBERS)] = graph


def programs_of(model: Any) -> list[CompiledProgram]:
    """Return the programs of a compiled model's graphs; for a function, of all compiled graphs of the process.

    Raises `InputError` where there are none: the model was not compiled by this backend with a budget, or not called yet.
    """
    own = getattr(model, "_orig_mod", model)
    ids = {id(p) for p in own.parameters()} if isinstance(own, torch.nn.Module) else None
    found = [
        program
        for program in (graph.program() for _, graph in sorted(_GRAPHS.items()))
        if program is not None
        and (ids is None or any(id(ref()) in ids for ref in program.trained if ref() is not None))
    ]
    if not found:
        raise InputError(
            "no program of this model is known: compile it with backend='pebbler' and a budget, and train one step"
        )
    return found
