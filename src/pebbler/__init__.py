"""pebbler finds, proves and runs low-energy schedules for neural-network training steps."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pebbler import notes as notes
    from pebbler import torch as torch
    from pebbler import workloads as workloads
    from pebbler.analysis import analyse as analyse
    from pebbler.analysis import roles as roles
    from pebbler.analysis import trace_plan as trace_plan
    from pebbler.bytedmd import bytedmd as bytedmd
    from pebbler.bytedmd import trace_scalars as trace_scalars
    from pebbler.cache import WriteBacks as WriteBacks
    from pebbler.cache import hierarchy as hierarchy
    from pebbler.cache import level_hits as level_hits
    from pebbler.cache import opt_misses as opt_misses
    from pebbler.cache import set_associative as set_associative
    from pebbler.clock import Events as Events
    from pebbler.clock import buffer_lru as buffer_lru
    from pebbler.errors import IllegalPlan as IllegalPlan
    from pebbler.errors import InputError as InputError
    from pebbler.errors import PebblerError as PebblerError
    from pebbler.execute import execute as execute
    from pebbler.execute import verify as verify
    from pebbler.export import export as export
    from pebbler.graph import Graph as Graph
    from pebbler.graph import Op as Op
    from pebbler.graph import Tensor as Tensor
    from pebbler.lru import lru_energy as lru_energy
    from pebbler.machine import Level as Level
    from pebbler.machine import Machine as Machine
    from pebbler.machine import machine as machine
    from pebbler.plan import Plan as Plan
    from pebbler.record import Recorder as Recorder
    from pebbler.record import record as record
    from pebbler.referee import check as check
    from pebbler.report import report as report
    from pebbler.reuse import StackDistance as StackDistance
    from pebbler.reuse import reuse_distances as reuse_distances
    from pebbler.sampling import sample_miss_ratio as sample_miss_ratio
    from pebbler.solve import solve as solve
    from pebbler.solve.chain import solve_chain as solve_chain
    from pebbler.trace import Trace as Trace
    from pebbler.tracked import Tracked as Tracked
    from pebbler.tracked import tracked as tracked
    from pebbler.transform import fuse as fuse
    from pebbler.transform import tile as tile

# Modules load when first used, so that `import pebbler` and `pebbler --help` stay quick.
_HOME = {
    "Events": "clock",
    "Graph": "graph",
    "IllegalPlan": "errors",
    "InputError": "errors",
    "Level": "machine",
    "Machine": "machine",
    "Op": "graph",
    "PebblerError": "errors",
    "Plan": "plan",
    "Recorder": "record",
    "StackDistance": "reuse",
    "Tensor": "graph",
    "Trace": "trace",
    "Tracked": "tracked",
    "WriteBacks": "cache",
    "analyse": "analysis",
    "buffer_lru": "clock",
    "bytedmd": "bytedmd",
    "check": "referee",
    "execute": "execute",
    "export": "export",
    "fuse": "transform",
    "hierarchy": "cache",
    "level_hits": "cache",
    "lru_energy": "lru",
    "machine": "machine",
    "opt_misses": "cache",
    "record": "record",
    "report": "report",
    "reuse_distances": "reuse",
    "roles": "analysis",
    "sample_miss_ratio": "sampling",
    "set_associative": "cache",
    "solve": "solve",
    "solve_chain": "solve.chain",
    "tile": "transform",
    "trace_plan": "analysis",
    "trace_scalars": "bytedmd",
    "tracked": "tracked",
    "verify": "execute",
}
_PACKAGES = ("notes", "torch", "workloads")

__all__ = sorted([*_HOME, *_PACKAGES])
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"pebbler.{name}")
    if name in _HOME:
        value = getattr(import_module(f"pebbler.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'pebbler' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # Importing pebbler.machine would otherwise hide the function pb.machine behind the module of that name.
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
