"""Inductor's hook for what forward saves: everything but the decision is torch's own partitioner."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial, wraps
from typing import Any

from torch import fx
from torch._functorch import partitioners
from torch._inductor.custom_graph_pass import CustomPartitionerFn

from pebbler.run.torch.backend.compiled_program import CompiledNode, read_joint, read_split
from pebbler.run.torch.backend.graph_frontier import GraphFrontier, joint_key
from pebbler.run.torch.backend.joint_step import JointStep
from pebbler.run.torch.backend.sent_graphs import send_values
from pebbler.run.torch.backend.sent_values import host_room
from pebbler.run.torch.backend.spare_gradients import refuse_unrepeatable
from pebbler.run.torch.backend.torch_choices import Choose, cuts_remembered, torch_choices
from pebbler.run.torch.backend.weight_watch import inputs_read_again
from pebbler.run.torch.cost.costs import Device
from pebbler.version import VERSION

__all__ = ["HostShare", "SavedValuesPartitioner", "WantsOtherForm"]


@dataclass(frozen=True)
class HostShare:
    """The number of a pool of the host's memory, and how many bytes of it a graph may take: None for any number."""

    pool: int
    limit: int | None


class WantsOtherForm(Exception):
    """A graph's form that is not compiled: another one computes the same and holds less."""


# What decides instead of torch, in the thread that partitions for us.
_DECISION: ContextVar[Callable[[fx.Graph, Any, Choose], list[fx.Node]] | None] = ContextVar("decision", default=None)


@cache
def _listen() -> None:
    """Let torch's partitioner ask what to save, once and for all threads; wherever nobody decides, its own choice stands."""
    choose = partitioners.choose_saved_values_set

    @wraps(choose)
    def ask(joint_graph: fx.Graph, node_info: Any, *args: Any, **more: Any) -> list[fx.Node]:
        decide = _DECISION.get()
        if decide is not None:
            return decide(joint_graph, node_info, partial(choose, joint_graph, node_info))
        theirs: list[fx.Node] = choose(joint_graph, node_info, *args, **more)
        return theirs

    partitioners.choose_saved_values_set = ask


class SavedValuesPartitioner(CustomPartitionerFn):  # type: ignore[misc]
    """Splits joint graphs as torch does, and saves what a frontier's choice says; `start` picks the first choice of a graph."""

    def __init__(
        self,
        device: Device,
        time_limit: float,
        start: Callable[[GraphFrontier], int],
        objective: str = "time",
        host: Callable[[], HostShare] | None = None,
    ) -> None:
        self.device, self.time_limit, self.start, self.objective = device, time_limit, start, objective
        self.host = host  # asked for a graph's share of the host's memory, where values may go there
        self.frontier: GraphFrontier | None = None
        self.read_again: list[int] = []  # places of inputs that the last backward graph computes values of forward from
        self.programs: tuple[list[CompiledNode], list[CompiledNode]] | None = (
            None  # what runs, and that without a budget
        )
        self.repeatable = False  # whether a graph that does not do the same twice is to be refused
        # Whether another form of the graph is wanted.
        self.refuses: Callable[[GraphFrontier], bool] = lambda frontier: False

    def __deepcopy__(self, memo: Any) -> SavedValuesPartitioner:
        """Return itself: Inductor copies its settings, and every copy is to decide for the same graph."""
        return self

    def __reduce__(self) -> Any:
        """Stand for the key in what Inductor's caches hash of its settings."""
        return str, (self.uuid(),)

    def uuid(self) -> str:
        """Return a key for Inductor's caches: they hold kernels of forward and backward, after the decision was made."""
        return f"pebbler {VERSION}"

    def search_to_the_end(self) -> bool:
        """Look for choices once more, for as long as that takes, where time has ended it; return whether it has not been so yet."""
        again = math.isfinite(self.time_limit)
        self.time_limit = math.inf
        self.frontier = None if again else self.frontier
        return again

    def __call__(self, gm: fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any) -> Any:
        """Return the graphs of forward and backward."""
        if self.repeatable:
            refuse_unrepeatable(gm.graph)
        outputs = kwargs["num_fwd_outputs"]
        joint = read_joint(gm.graph, self.device)
        _listen()
        told = _DECISION.set(lambda graph, info, choose: self._saved(graph, info, outputs, choose))
        try:
            forward, backward = partitioners.min_cut_rematerialization_partition(gm, joint_inputs, **kwargs)
        finally:
            _DECISION.reset(told)
        frontier = self.frontier
        if self.host is not None and frontier is not None and frontier.choice.sent:
            send_values(forward, backward, outputs, frontier.names, frontier.choice.sent, self.host().pool)
        self.read_again = inputs_read_again(backward.graph)
        self.programs = read_split(forward.graph, backward.graph, outputs, self.device), joint
        return forward, backward

    def _saved(self, graph: fx.Graph, info: Any, outputs: int, choose: Choose) -> list[fx.Node]:
        key = joint_key(graph)
        if self.frontier is None or self.frontier.key != key:
            step = JointStep.read(graph, info, outputs, self.device, self.objective)
            room = None
            if self.host is not None:
                timed = JointStep.read(graph, info, outputs, self.device) if self.objective != "time" else step
                room = host_room(self.device, self.objective, self.host().limit, timed)
            number = {node: i for i, node in enumerate(step.nodes)}
            with cuts_remembered():
                theirs = [[number[node] for node in saved] for saved in torch_choices(choose, self.time_limit)]
            self.frontier = GraphFrontier.plan(step, theirs, key, self.time_limit, room)
            self.frontier.place = self.start(self.frontier)
        if self.refuses(self.frontier):
            raise WantsOtherForm
        if self.frontier.place == 0:
            return choose(1.0)
        nodes = [node for node in graph.nodes if node.op != "output"]
        return [nodes[i] for i in self.frontier.choice.saved]
