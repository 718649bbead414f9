"""Plans of compiled graphs on disk: a job that is started again plans nothing, and measures nothing that was measured before.

A plan was made for Dynamo's graph with its shapes, the device, the versions of torch and pebbler, and the options. One that is
not what its file's name says is left aside like one that cannot be read.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import fx

from pebbler.errors import InputError
from pebbler.files import read_json, write_json
from pebbler.run.torch.backend.backend_options import BackendOptions
from pebbler.run.torch.backend.graph_frontier import GraphFrontier, nodes_key
from pebbler.run.torch.backend.step_memory import END
from pebbler.run.torch.plan.plan_folder import PlanFolder
from pebbler.version import VERSION

__all__ = ["GraphPlan", "PlanCache", "graph_key"]

_FORMAT = "pebbler compiled graph 7"


class GraphPlan(msgspec.Struct, forbid_unknown_fields=True):
    """The cached data of a graph after its first steps: its choices, the choice that keeps the budget, and its compiled form."""

    format: str
    key: str
    padding: bool  # whether operands of products may be copied to round sizes
    spare: bool  # whether gradients of outputs besides the loss are left out
    level: int  # of the graph's form: losses in chunks, MLPs in tiles
    peak: int  # measured, of the whole step
    frontier: GraphFrontier


def graph_key(gm: fx.GraphModule, device: str, options: BackendOptions) -> str:
    """Return a key of all that a plan depends on and that is known before the graph is compiled."""
    kind = torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"
    casts = [str(torch.get_autocast_dtype(k)) for k in ("cpu", "cuda") if torch.is_autocast_enabled(k)]
    needs = [bool(getattr(node.meta.get("example_value"), "requires_grad", False)) for node in gm.graph.nodes]
    nodes = nodes_key(gm.graph, "example_value"), needs
    about = _FORMAT, VERSION, torch.__version__, kind, casts, options.planning, nodes
    return hashlib.sha256(repr(about).encode()).hexdigest()


class PlanCache:
    """The plans of compiled graphs in a folder."""

    def __init__(self, folder: str) -> None:
        self._plans = PlanFolder(folder)

    def load(self, key: str) -> GraphPlan | None:
        """Return the plan of a graph, or None where there is none that can be used."""

        def checked(path: Path) -> GraphPlan:
            plan = read_json(path, GraphPlan)
            _check(plan, key)
            return plan

        return self._plans.read(key, checked)

    def store(self, key: str, **known: Any) -> None:
        """Write the plan of a graph."""
        self._plans.write(key, lambda path: write_json(path, GraphPlan(format=_FORMAT, key=key, **known)))


def _check(plan: GraphPlan, key: str) -> None:
    """Refuse a plan that is not the one that its name promises, or that points nowhere."""
    frontier = plan.frontier
    places = range(len(frontier.choices))
    count = len(frontier.names)
    if plan.format != _FORMAT or plan.key != key:
        raise InputError(f"{key[:32]}.json: it is not the plan that its name says")
    if frontier.place not in places or any(i not in places for i in (*frontier.scheduled, *frontier.own)):
        raise InputError(
            f"{key[:32]}.json: frontier.place: expected one of {len(places)} choices, got {frontier.place}"
        )
    if any(not 0 <= i < count for choice in frontier.choices for i in choice.saved):
        raise InputError(f"{key[:32]}.json: frontier.choices: a value that is saved is not in the graph")
    for choice in frontier.choices:
        if any(
            v.node not in choice.saved or not END <= v.left < count or not 0 <= v.fetched < count for v in choice.sent
        ):
            raise InputError(
                f"{key[:32]}.json: frontier.choices: a value that is sent is not saved, or its place not in the graph"
            )
