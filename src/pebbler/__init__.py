"""pebbler finds, proves and runs low-energy schedules for neural-network training steps."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pebbler.game.rich_repr import show_with
from pebbler.version import VERSION

if TYPE_CHECKING:
    from pebbler import torch as torch
    from pebbler import trace as trace
    from pebbler import workloads as workloads
    from pebbler.errors import IllegalPlan as IllegalPlan
    from pebbler.errors import InputError as InputError
    from pebbler.errors import PebblerError as PebblerError
    from pebbler.game.graph import Graph as Graph
    from pebbler.game.graph import Op as Op
    from pebbler.game.graph import Tensor as Tensor
    from pebbler.game.machine import Level as Level
    from pebbler.game.machine import Machine as Machine
    from pebbler.game.machine import machine as machine
    from pebbler.game.moves import Compute as Compute
    from pebbler.game.moves import Copy as Copy
    from pebbler.game.moves import Drop as Drop
    from pebbler.game.plan import Plan as Plan
    from pebbler.game.transform import fuse as fuse
    from pebbler.game.transform import tile as tile
    from pebbler.joules.meter import meter as meter
    from pebbler.referee.judgement import check as check
    from pebbler.run.numbers import execute as execute
    from pebbler.run.numbers import verify as verify
    from pebbler.show.export import export as export
    from pebbler.show.report import report as report
    from pebbler.solver import solve as solve
    from pebbler.solver.chain import solve_chain as solve_chain
    from pebbler.solver.chain.actions import schedule as schedule
    from pebbler.sweeps.sweep import sweep as sweep

# Modules load when first used, so that `import pebbler` and `pebbler --help` stay quick.
_HOME = {
    "Compute": "game.moves",
    "Copy": "game.moves",
    "Drop": "game.moves",
    "Graph": "game.graph",
    "IllegalPlan": "errors",
    "InputError": "errors",
    "Level": "game.machine",
    "Machine": "game.machine",
    "Op": "game.graph",
    "PebblerError": "errors",
    "Plan": "game.plan",
    "Tensor": "game.graph",
    "check": "referee.judgement",
    "execute": "run.numbers",
    "export": "show.export",
    "fuse": "game.transform",
    "machine": "game.machine",
    "meter": "joules.meter",
    "report": "show.report",
    "schedule": "solver.chain.actions",
    "solve": "solver",
    "solve_chain": "solver.chain",
    "sweep": "sweeps.sweep",
    "tile": "game.transform",
    "verify": "run.numbers",
}
_MODULES = ("torch", "trace", "workloads")

__all__ = sorted([*_HOME, *_MODULES])
__version__ = VERSION


def _html(thing: object) -> str | None:
    html: str | None = import_module("pebbler.show.notebook").html(thing)
    return html


show_with(_html)  # what a notebook shows is drawn by a room that the things shown do not know


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"pebbler.{name}")
    if name in _HOME:
        value = getattr(import_module(f"pebbler.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'pebbler' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
