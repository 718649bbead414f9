"""Inductor's hook for what forward saves: everything but the decision is torch's own partitioner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from torch import fx
from torch._functorch import partitioners
from torch._inductor.custom_graph_pass import CustomPartitionerFn

from pebbler.run.torch.backend.joint_step import JointStep
from pebbler.run.torch.backend.saved_frontier import saved_frontier
from pebbler.run.torch.backend.spare_gradients import refuse_unrepeatable
from pebbler.run.torch.backend.step_memory import SavedChoice, StepMemory, eager_peak
from pebbler.run.torch.cost.costs import Device
from pebbler.version import VERSION

__all__ = ["GraphFrontier", "SavedValuesPartitioner"]


class GraphFrontier:
    """The choices of one joint graph from fast to small, and which one is taken: `place`."""

    def __init__(self, step: JointStep, fastest: Sequence[int], time_limit: float) -> None:
        memory = StepMemory(step)
        self.names = [node.name for node in step.nodes]
        self.choices = saved_frontier(memory, [fastest], time_limit)
        self.eager = eager_peak(memory)
        self.inputs = memory.resident
        # Inductor's pass that pads the operands of products names its copies so.
        self.padded = any(name.startswith("constant_pad_nd_default") for name in self.names)
        self.work = sum(t for t, runs in zip(step.seconds, step.required, strict=True) if runs)
        self.place = 0
        self.fastest = 0  # the first place that is not known to be over the budget

    @property
    def choice(self) -> SavedChoice:
        """What is taken now."""
        return self.choices[self.place]

    def within(self, target: int) -> int:
        """Return the place of the fastest choice whose simulated peak is at most `target`, or the last place."""
        return next(
            (i for i, c in enumerate(self.choices) if i >= self.fastest and c.peak <= target), len(self.choices) - 1
        )


class SavedValuesPartitioner(CustomPartitionerFn):  # type: ignore[misc]
    """Splits joint graphs as torch does, and saves what a frontier's choice says; `start` picks the first choice of a graph."""

    def __init__(self, device: Device, time_limit: float, start: Callable[[GraphFrontier], int]) -> None:
        self.device, self.time_limit, self.start = device, time_limit, start
        self.frontier: GraphFrontier | None = None
        self.repeatable = False  # whether a graph that does not do the same twice is to be refused

    def __deepcopy__(self, memo: Any) -> SavedValuesPartitioner:
        """Return itself: Inductor copies its settings, and every copy is to decide for the same graph."""
        return self

    def __reduce__(self) -> Any:
        """Stand for the key in what Inductor's caches hash of its settings."""
        return str, (self.uuid(),)

    def uuid(self) -> str:
        """Return a key for Inductor's caches: they hold kernels of forward and backward, after the decision was made."""
        return f"pebbler {VERSION}"

    def __call__(self, gm: fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any) -> Any:
        """Return the graphs of forward and backward."""
        if self.repeatable:
            refuse_unrepeatable(gm.graph)
        outputs = kwargs["num_fwd_outputs"]
        choose = partitioners.choose_saved_values_set

        def chosen(joint_graph: fx.Graph, node_info: Any, *args: Any, **more: Any) -> list[fx.Node]:
            fastest: list[fx.Node] = choose(joint_graph, node_info, *args, **more)
            return self._saved(joint_graph, node_info, outputs, fastest)

        with mock.patch.object(partitioners, "choose_saved_values_set", chosen):
            return partitioners.min_cut_rematerialization_partition(gm, joint_inputs, **kwargs)

    def _saved(self, graph: fx.Graph, info: Any, outputs: int, fastest: list[fx.Node]) -> list[fx.Node]:
        names = [node.name for node in graph.nodes if node.op != "output"]
        if self.frontier is None or self.frontier.names != names:
            step = JointStep.read(graph, info, outputs, self.device)
            number = {node: i for i, node in enumerate(step.nodes)}
            self.frontier = GraphFrontier(step, [number[node] for node in fastest], self.time_limit)
            self.frontier.place = self.start(self.frontier)
        if self.frontier.place == 0:
            return fastest
        nodes = [node for node in graph.nodes if node.op != "output"]
        return [nodes[i] for i in self.frontier.choice.saved]
