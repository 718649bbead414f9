"""Inductor's hook for what forward saves: everything but the decision is torch's own partitioner."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial, wraps
from typing import Any

from torch import fx
from torch._functorch import partitioners
from torch._inductor.custom_graph_pass import CustomPartitionerFn

from pebbler.game.byte_sizes import shown_bytes
from pebbler.run.torch.backend.graph_frontier import GraphFrontier, Scheduled, nodes_key, settle_place
from pebbler.run.torch.backend.host_operators import HostPool
from pebbler.run.torch.backend.joint_step import JointStep
from pebbler.run.torch.backend.scheduled_graph import NotScheduled, WrittenGraph
from pebbler.run.torch.backend.scheduled_step import ScheduledStep, copied, schedule_step
from pebbler.run.torch.backend.sent_graphs import send_values
from pebbler.run.torch.backend.sent_values import host_room
from pebbler.run.torch.backend.spare_gradients import refuse_unrepeatable
from pebbler.run.torch.backend.weight_watch import inputs_read_again
from pebbler.run.torch.cost.costs import Device
from pebbler.version import VERSION

__all__ = [
    "SavedValuesPartitioner",
    "TorchsOwnSchedule",
    "WantsOtherForm",
    "cuts_remembered",
    "torch_choices",
]

_LOG = logging.getLogger(__name__)
# Torch's own choices are asked for at these values of `activation_memory_budget`.
_BUDGETS = (0.5, 0.3, 0.1)  # each takes torch one more minimum cut and a knapsack
_ALL = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)  # where there is time for all
_SHARE = 10  # part of the time limit that they may take

Choose = Callable[[float], list[fx.Node]]  # torch's choice for its budget


class WantsOtherForm(Exception):
    """A graph's form that is not compiled: another one computes the same and holds less."""


@dataclass(frozen=True)
class _PlannedForm:
    """The choice that a form of a graph would be compiled with: its graphs as Inductor has lowered them, and its schedule."""

    place: int
    written: list[WrittenGraph]
    step: ScheduledStep | None


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
    """Splits joint graphs as torch does, and saves the values of a frontier's choice; `room` limits the bytes of a graph."""

    def __init__(
        self,
        device: Device,
        time_limit: float,
        room: Callable[[GraphFrontier], int],
        objective: str = "time",
        host: HostPool | None = None,
        host_left: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.device, self.time_limit, self.room, self.objective = device, time_limit, room, objective
        self.host, self.host_left = (
            host,
            host_left,
        )  # where values may go there, and the bytes of it that a graph may take
        self.frontier: GraphFrontier | None = None
        self.plans_anew = False  # whether what is known of a graph is to be left aside
        self.program: ScheduledStep | None = None  # of what was partitioned last
        self.written: list[WrittenGraph] = []  # its graphs as Inductor has lowered them
        self.planned: dict[str, _PlannedForm] = {}  # by the keys of joint graphs, while forms of a graph are compared
        self.read_again: list[int] = []  # places of inputs that the last backward graph computes values of forward from
        self.looks = False  # whether the schedule alone is wanted
        self.repeatable = False  # whether a graph that does not do the same twice is to be refused
        # Whether another form of the graph is wanted, once it is known what this one holds.
        self.refuses: Callable[[GraphFrontier], bool] = lambda frontier: False
        self.below: Callable[[], float] = lambda: math.inf  # what another form of the graph holds

    def __deepcopy__(self, memo: Any) -> SavedValuesPartitioner:
        """Return itself: Inductor copies its settings, and every copy is to decide for the same graph."""
        return self

    def __reduce__(self) -> Any:
        """Stand for the key in what Inductor's caches hash of its settings."""
        return str, (self.uuid(),)

    def uuid(self) -> str:
        """Return a key for Inductor's caches: they hold kernels of forward and backward, after the decision was made."""
        return f"pebbler {VERSION}"

    @property
    def late(self) -> bool:
        """Whether values are computed again as late as they can be: torch's own choices are compiled as torch does."""
        return self.frontier is not None and self.frontier.place not in self.frontier.own

    def __call__(self, gm: fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any) -> Any:
        """Return the graphs of forward and backward."""
        if self.repeatable:
            refuse_unrepeatable(gm.graph)
        outputs = kwargs["num_fwd_outputs"]
        static = kwargs.get("static_lifetime_input_indices") or ()
        made: dict[int, tuple[fx.GraphModule, fx.GraphModule, ScheduledStep | None]] = {}
        written: dict[int, list[WrittenGraph]] = {}

        def partition(
            decide: Callable[[fx.Graph, Any, Choose], list[fx.Node]],
        ) -> tuple[fx.GraphModule, fx.GraphModule]:
            _listen()
            told = _DECISION.set(decide)
            try:
                both = partitioners.min_cut_rematerialization_partition(copied(gm), joint_inputs, **kwargs)
            finally:
                _DECISION.reset(told)
            forward, backward = both
            frontier = self.frontier
            if self.host is not None and frontier is not None and frontier.choice.sent:
                send_values(forward, backward, outputs, frontier.names, frontier.choice.sent, self.host.number)
            return forward, backward

        def schedule(place: int) -> Scheduled:
            assert self.frontier is not None
            self.frontier.place = place
            if place not in made:
                made[place] = (*partition(self._chosen), None)
            forward, backward, _ = made[place]
            began = time.monotonic()
            simulated = shown_bytes(self.frontier.choices[place].peak)
            _LOG.info(
                "planning: scheduling choice %d of %d, simulated %s", place, len(self.frontier.choices), simulated
            )
            try:
                program, written[place] = schedule_step(forward, backward, outputs, self.device, self.late, static)
            except NotScheduled as error:
                _LOG.warning("%s: peaks are simulated", error)
                return Scheduled(self.frontier.choice.peak)
            made[place] = forward, backward, program
            _LOG.info(
                "planning: choice %d holds %s, %.1f s", place, shown_bytes(program.peak), time.monotonic() - began
            )
            taken = program.seconds + self.frontier.choice.copying if self.objective == "time" else None
            return Scheduled(program.peak, taken, program.above)

        first = partition(lambda graph, info, choose: self._saved(graph, info, outputs, choose))
        frontier = self.frontier
        if frontier is None:
            forward, backward, self.program = *first, None
        else:
            made[frontier.place] = (*first, None)
            if frontier.room is not None:
                settle_place(frontier, frontier.room, schedule, self.below())
                if frontier.place in written:
                    step = made[frontier.place][2]
                    self.planned[frontier.key] = _PlannedForm(frontier.place, written[frontier.place], step)
                if self.refuses(frontier):
                    raise WantsOtherForm
                frontier.room = None
            if self.looks or frontier.place not in frontier.scheduled:
                frontier.scheduled[frontier.place] = schedule(frontier.place)
            known = self.planned.get(frontier.key)
            if frontier.place not in written and known is not None and known.place == frontier.place:
                forward, backward, self.program, self.written = *partition(self._chosen), known.step, known.written
            else:
                forward, backward, self.program = made.get(frontier.place) or (*partition(self._chosen), None)
                self.written = written.get(frontier.place, [])
            if self.looks:
                raise WantsOtherForm
        self.read_again = inputs_read_again(backward.graph)
        return forward, backward

    def _saved(self, graph: fx.Graph, info: Any, outputs: int, choose: Choose) -> list[fx.Node]:
        """Plan a graph that is new, and return what its first choice saves."""
        key = nodes_key(graph)
        if self.frontier is None or self.frontier.key != key or self.plans_anew:
            self.plans_anew = False
            began = time.monotonic()
            _LOG.info("planning: what a graph of %d nodes saves", len(graph.nodes))
            step = JointStep.read(graph, info, outputs, self.device, self.objective)
            room = None
            if self.host is not None:
                timed = JointStep.read(graph, info, outputs, self.device) if self.objective != "time" else step
                room = host_room(self.device, self.objective, self.host_left(), timed)
            number = {node: i for i, node in enumerate(step.nodes)}
            with cuts_remembered():
                theirs = [[number[node] for node in saved] for saved in torch_choices(choose, self.time_limit)]
            self.frontier = GraphFrontier.plan(step, theirs, key, self.time_limit, room)
            self.frontier.room = self.room(self.frontier)
            self.frontier.place = self.frontier.within(self.frontier.room)
            _LOG.info("planning: %d choices, %.1f s", len(self.frontier.choices), time.monotonic() - began)
        return self._chosen(graph, info, choose)

    def _chosen(self, graph: fx.Graph, _info: Any, choose: Choose) -> list[fx.Node]:
        """Return the values that the taken choice saves."""
        assert self.frontier is not None
        if self.frontier.place == 0:
            return choose(1.0)
        nodes = [node for node in graph.nodes if node.op != "output"]
        return [nodes[i] for i in self.frontier.choice.saved]


class TorchsOwnSchedule(CustomPartitionerFn):  # type: ignore[misc]
    """Partitions and schedules a graph as torch does without a budget, and then ends its compilation: `step` is the schedule."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.step: ScheduledStep | None = None

    def uuid(self) -> None:
        """Return that nothing is to be cached."""

    def __call__(self, gm: fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any) -> Any:
        """Raise `WantsOtherForm`, with the step known."""
        forward, backward = partitioners.min_cut_rematerialization_partition(gm, joint_inputs, **kwargs)
        static = kwargs.get("static_lifetime_input_indices") or ()
        self.step, _ = schedule_step(forward, backward, kwargs["num_fwd_outputs"], self.device, static=static)
        raise WantsOtherForm


# Torch's own choices of saved values, as candidates of the search -----------------------------------------------------------

_CUTS: ContextVar[dict[str, Any] | None] = ContextVar("cuts", default=None)


def torch_choices(choose: Choose, time_limit: float) -> list[list[fx.Node]]:
    """Return the values that torch saves without a budget, then with some budgets; fewer where it takes long or torch fails."""
    deadline = time.monotonic() + time_limit / _SHARE
    found = [choose(1.0)]
    for budget in _ALL if math.isinf(time_limit) else _BUDGETS:
        if time.monotonic() > deadline:
            break
        try:
            found.append(choose(budget))
        except Exception as error:  # its knob is not needed: ours is searched for anyway
            _LOG.info("torch has no choice of its own at activation_memory_budget=%s: %s", budget, error)
            break
    return found


@contextlib.contextmanager
def cuts_remembered() -> Iterator[None]:
    """Have torch compute every minimum cut once while it chooses for one graph: those without a knapsack are always the same."""
    _remember()
    told = _CUTS.set({})
    try:
        yield
    finally:
        _CUTS.reset(told)


@cache
def _remember() -> None:
    solve = partitioners.solve_min_cut

    @wraps(solve)
    def recall(joint_graph: fx.Graph, node_info: Any, *options: Any, **more: Any) -> Any:
        known = _CUTS.get()
        if known is None:
            return solve(joint_graph, node_info, *options, **more)
        key = repr((options, sorted(more.items())))  # nodes are told by their names
        if key not in known:
            known[key] = solve(joint_graph, node_info, *options, **more)
        saved, banned = known[key]
        return list(saved), banned

    partitioners.solve_min_cut = recall
