"""One budget for all graphs of a step: first steps are measured, and graphs told to save less where the step held too much.

A step begins with the first call of a graph that will have a backward, and ends with the end of that backward. What the
graphs hold is known from their schedules, and so is how it adds up over the graphs of a step. What a schedule cannot know (eager
code between and after graphs, workspaces, optimizer state) is what a measured step holds besides; graphs get what that leaves.
"""

from __future__ import annotations

import logging
import warnings
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer

from pebbler.game.byte_sizes import named_bytes, shown_bytes
from pebbler.run.torch.backend.backend_options import BackendOptions
from pebbler.run.torch.backend.graph_frontier import GraphFrontier, PlannedCall, fit_step, step_peak
from pebbler.run.torch.backend.host_operators import HostPool
from pebbler.run.torch.backend.step_meter import (
    StepMeter,
    can_watch,
    compiled_node,
    held_now,
    most_since_reset,
    optimizer_meter,
    step_meter,
)
from pebbler.run.torch.backend.step_timeline import StepTimeline
from pebbler.run.torch.backend.step_watch import TrainedLeaves, watch_steps
from pebbler.run.torch.run.verification import OverBudget

__all__ = ["StepBudget", "shared_budget"]

_LOG = logging.getLogger(__name__)
_TRIALS = 3  # steps measured after a change; optimizers make their state at the end of the first
_NO_TASK = -1
_MARGIN = (
    0.002  # of the budget, by which a step aims below it: a device's allocator rounds, and libraries take workspaces
)
_UNKNOWN = 0.015  # of the budget: what a CUDA device may hold besides, where no step has been measured yet
_WORTH = 0.05  # of the cost: what sharing the room anew among graphs must promise
_LONGEST_GAP = 1024  # settled steps between two measurements, where the device holds too much and it is not the step


@dataclass(frozen=True)
class _FirstStep:
    """The first step of new graphs: what was held when it began, and in each part of it; a CUDA device's bytes."""

    graphs: list[PlannedCall]
    held: int
    step: StepTimeline


class StepBudget:
    """The budget of the graphs on one device, and the peak of the step that is being measured."""

    def __init__(self, device: str, options: BackendOptions) -> None:
        self.device, self.options = device, options
        self.peak: int | None = None  # of the last step that was measured
        self.steps = 0  # that have begun
        self.compilations = 0  # of graphs
        self.predicted: int | None = None  # the peak of the last step that was measured, by the schedules of its graphs
        self.held: int | None = None  # what forward and backward of that step held
        self._outside = 0  # bytes that steps have held besides what their graphs' schedules say
        self._trials = 0  # a graph that is new begins the trials
        self._most: int | None = 0  # bytes in the steps of the trials; None before a step that compiles
        self._gap = self._wait = 0  # settled steps between two measurements, and until the next
        self._new = False  # whether a graph has not been in a measured step yet
        self._first: _FirstStep | None = None  # of new graphs, until the next step begins
        self._settled: set[int] = set()  # graphs that know that nothing will change
        self._alike: Counter[str] = Counter()  # graphs by their key
        self._given: dict[int, int] = {}  # bytes that each graph was given last
        self._meter: StepMeter | None = None
        self._held = 0  # bytes, when the step that is measured began
        self._running: list[PlannedCall] = []
        self._called = 0  # which of them was called last
        self._nodes: list[weakref.ref[Any]] = []  # of autograd, one for every call in this step
        self._task = _NO_TASK  # autograd's, while the backward of a graph runs
        self._ends = False  # whether the backward that runs now ends a step
        self._kept: int | None = None  # the budget of the last step, where that was measured and kept
        self._trained = TrainedLeaves()  # that the graphs of the last step were given
        self.host = HostPool(device, options.host_budget) if options.offload else None
        watch_steps(self)

    @property
    def in_backward(self) -> bool:
        """Whether a graph's backward runs now: calls within it are part of it, such as those that a user's checkpoint repeats."""
        return self._task != _NO_TASK and self._task == torch._C._current_graph_task_id()

    @property
    def _is_gone(self) -> bool:
        """Whether all that the step has called is gone without a backward.

        Reentrant checkpoints call a graph and its backward within the backward of the step: one block's is gone when the next
        begins.
        """
        within_backward = self._ends and torch._C._current_graph_task_id() != _NO_TASK
        return not within_backward and all(node() is None for node in self._nodes)

    def room(self, frontier: GraphFrontier) -> int:
        """Return the bytes that a new graph may hold, given the other memory held now; 0 asks for as little as there is."""
        self._trials, self._most, self._new = _TRIALS, None, True
        if self.options.least:
            return 0
        others = self._frontiers()
        frontier.shared = bool(others)
        limit = self.limit([*others, frontier])
        margin = _MARGIN + (_UNKNOWN if self.device.startswith("cuda") and not self._outside else 0.0)
        frontier.slack = int(limit * margin)
        return max(1, int(limit * (1 - margin)) - self.options.reserve - self._besides(frontier) - self._outside)

    def compiled(self) -> None:
        """Count a compilation."""
        self.compilations += 1

    def host_left(self) -> int | None:
        """Return the bytes of the host's memory that the graphs of the same step leave to a new one; None without a limit."""
        limit = self.options.host_budget
        taken = sum(frontier.choice.host for frontier in self._frontiers())
        return None if limit is None else max(0, limit - taken)

    def numbered(self, key: str) -> str:
        """Return a key that differs where graphs are alike: blocks that are compiled apart may get different choices."""
        self._alike[key] += 1
        return f"{self._alike[key]}-{key}"

    def limit(self, frontiers: Iterable[GraphFrontier]) -> int:
        """Return the budget in bytes of a step of these graphs; a share is one of their peaks together as eager would run them."""
        if self.options.budget is not None:
            return self.options.budget
        return int((self.options.share or 1.0) * sum(graph.eager for graph in frontiers))

    def expect(self, graph: PlannedCall) -> None:
        """Note that a graph will be called in the same step as those that are compiled with it."""
        if graph not in self._running:
            self._running.append(graph)

    def foresee(self) -> None:
        """Have graphs save less where the step that is about to begin would hold too much.

        Optimizers make their state at the end of the first step, so the second holds that much more.
        """
        first, self._first = self._first, None
        if first is None or self._running:
            return
        frontiers = [graph.frontier for graph in first.graphs if graph.frontier]
        more = max(0, held_now(self.device) - first.held)
        budget = self.limit(frontiers)
        # What is held now may be let go before the peak, so this refuses nothing: the step is measured.
        if first.step.peak(frontiers, first.step.places) + more > budget:
            self._tighten(first.graphs, first.step, int(budget * (1 - _MARGIN)) - more, None)
        else:
            self._balance(first.graphs, first.step, int(budget * (1 - _MARGIN)) - more)

    def enter(self, graph: PlannedCall, args: Sequence[Any]) -> None:
        """Note that a graph with a backward is called, and measure the step if it is one of the first after a change."""
        if self._is_gone:
            self.abandon()
        first = not self._running
        self._kept = None
        if first:
            self.steps += 1
            self._trained.clear()
        self._trained.add(args)
        if graph not in self._running:
            self._running.append(graph)
        self._given[id(graph)] = sum(x.nbytes for x in args if isinstance(x, torch.Tensor))
        if graph.frontier is not None and self._given[id(graph)] > graph.frontier.largest:
            self._trials = max(self._trials, 1)  # shapes have grown
        if first and self._trials and can_watch():
            self._held = held_now(self.device)
            self._meter = step_meter(self.device)
            self._meter.note(args)
            self._meter.open()
        elif self._meter is not None:
            self._meter.note(args)
        self._called = self._running.index(graph)
        self._mark("forward", self._called)

    def leave(self, outputs: Sequence[Any]) -> Any:
        """Note that the call has ended, and ask to be told of the backward through its outputs; return autograd's node."""
        graph = self._called
        nodes = (compiled_node(x.grad_fn) for x in outputs if isinstance(x, torch.Tensor))
        node = next((node for node in nodes if node is not None), None)
        if node is not None:
            self._nodes.append(weakref.ref(node, self._forget))
            node.register_prehook(partial(self._before_backward, graph))
            node.register_hook(partial(self._after_backward, graph))
        else:
            self._forget()
        self._mark("forward ends", graph)
        return node

    def _mark(self, kind: str, graph: int, given: int = 0) -> None:
        """Note a moment of the step that is measured, if it is this thread's."""
        if self._meter is not None and not self._meter.elsewhere:
            self._meter.mark(kind, graph, given)

    def _forget(self, _node: Any = None) -> None:
        """Measure no longer where nothing is left of the step: there will be no backward."""
        if self._meter is not None and self._is_gone:
            self.abandon()

    def _before_backward(self, graph: int, gradients: Sequence[Any]) -> None:
        self._task, self._ends = torch._C._current_graph_task_id(), True
        # Gradients that nobody gives are filled with zeros after this, so all of them count to backward.
        self._mark("backward", graph, sum(x.nbytes for x in gradients if isinstance(x, torch.Tensor)))

    def _after_backward(self, graph: int, _results: Any, _gradients: Any) -> None:
        self._task = _NO_TASK
        self._mark("backward ends", graph)

    def backward_begins(self, roots: Sequence[Any]) -> None:
        """Count the parameters of eager code, such as a loss outside of the graphs, to the step that is measured."""
        if self._meter is not None and self._running and not self._meter.elsewhere:
            self._meter.note_trained(roots)

    def backward_ends(self) -> None:
        """End the step, if this backward went through its graphs."""
        if self._ends:
            self._ends = False
            self.finish()

    def backward_fails(self) -> None:
        """Forget the step, if this backward went through its graphs."""
        if self._ends:
            self._task, self._ends = _NO_TASK, False
            self.abandon()

    def optimizer_begins(self, optimizer: Optimizer) -> None:
        """Measure the memory of an optimizer of these graphs' parameters, after a step that was measured."""
        if self._kept is not None and self._trained.are_changed_by(optimizer) and can_watch():
            self._meter = optimizer_meter(self.device, optimizer)
            self._meter.open()

    def optimizer_ends(self) -> None:
        """Count it to the step's peak, and say so where it is over the budget: saving less would not help."""
        meter, budget, self._meter = self._meter, self._kept, None
        if meter is None or budget is None:
            return
        whole = meter.peak()
        if whole > budget >= (self.peak or 0):
            warnings.warn(
                f"the optimizer's step holds {shown_bytes(whole)}, the budget is {shown_bytes(budget)}: forward and backward keep "
                "it. Optimizers with foreach=True hold copies of all that they change; pt.step_in_backward holds one parameter's",
                stacklevel=3,
            )
        self.peak = max(self.peak or 0, whole)

    def abandon(self) -> None:
        """Forget the step that is being measured."""
        if self._meter is not None:
            self._meter.close()
        self._meter, self._running, self._nodes = None, [], []

    def finish(self) -> None:
        """Compare the step that ended with the budget; refuse it, or have graphs save less, where it is over."""
        running, meter = self._running, self._meter
        self._running, self._nodes, self._meter = [], [], None
        if not running:
            return  # a second backward of the same step
        if meter is None:
            self._look_again(running)
            self._settle(running)
            return
        self._trials -= 1
        if meter.elsewhere:
            meter.close()
            return
        for graph in running:
            if graph.frontier is not None:
                graph.frontier.largest = max(graph.frontier.largest, self._given.get(id(graph), 0))
        aside = self.options.reserve if self.device == "cpu" else 0
        self.peak = meter.peak() + aside
        # What a compiler holds is measured with the first step, so no budget is refused or named by that.
        compiles = self._most is None
        self._most = 0 if self._most is None else max(self._most, self.peak)
        frontiers = [graph.frontier for graph in running if graph.frontier]
        places = [frontier.place for frontier in frontiers]
        step = StepTimeline.of(meter.there, meter.marks, places)
        self.predicted, self.held = aside + step.peak(frontiers, places, corrected=False), self.peak
        if not compiles:
            self._outside = max(self._outside, self.peak - aside - meter.there - step_peak(frontiers, places))
        budget = self.limit(frontiers)
        told = "; ".join(map(str, frontiers))
        said = "as little as is known" if self.options.least else f"the budget is {shown_bytes(budget)}"
        which = f"measuring step {_TRIALS - self._trials} of {_TRIALS}" if self._trials >= 0 else "measuring a step"
        _LOG.info(
            "%s: held %s, predicted %s, %s: %s", which, shown_bytes(self.peak), shown_bytes(self.predicted), said, told
        )
        if self.options.least:
            self._fit_least(running, step)
            self._settle(running)
            return
        self._kept = budget if self.peak <= budget else None
        new, self._new = self._new, False
        room = int(budget * (1 - _MARGIN)) - aside
        if new and self.device.startswith("cuda"):
            self._first = _FirstStep(running, self._held, step)  # judged when it is known what stays of it
        elif self.peak > budget:
            self._tighten(running, step, room, None if compiles else budget)
        elif new:
            self._balance(running, step, room)
        self._settle(running)

    def _look_again(self, running: list[PlannedCall]) -> None:
        """Have the next step measured where the device has held more than the budget since its record was reset."""
        if self.options.least or not self.device.startswith("cuda"):
            return
        self._wait = max(0, self._wait - 1)
        budget = self.limit(graph.frontier for graph in running if graph.frontier)
        if not self._wait and most_since_reset(self.device) > budget:
            self._trials = 1
            # What others hold, such as an evaluation between steps, is found to be theirs; so the next look may be later.
            self._gap = min(max(1, 2 * self._gap), _LONGEST_GAP)
            self._wait = self._gap + 1

    def _settle(self, running: list[PlannedCall]) -> None:
        """Tell the graphs that nothing will change any more, once that is so; not all are in every step."""
        if self._trials:
            self._settled.clear()
            return
        for graph in running:
            if id(graph) not in self._settled:
                self._settled.add(id(graph))
                graph.settle(self._most or 0)

    def _tighten(self, running: list[PlannedCall], step: StepTimeline, room: int, budget: int | None) -> None:
        """Have the graphs of a step hold `room` bytes together with all else in it, or refuse a budget where they cannot."""
        frontiers = [graph.frontier for graph in running if graph.frontier]
        places = fit_step(frontiers, room, step)
        most = step.peak(frontiers, places)
        self._trials = _TRIALS
        self._gap = self._wait = 0
        if most <= room:
            self._move(running, places, room - most)
            return
        least = [graph.compile_least() for graph in running]  # all are asked
        if any(least) or self._fit_least(running, step):
            self._trials, self._most = _TRIALS, None
        elif budget is not None:
            raise OverBudget(
                f"the step holds {shown_bytes(self._most or 0)} with as little saved as is known, the budget is "
                f"{shown_bytes(budget)}; the least budget that is known to work is {named_bytes(self._most or 0)}"
            )

    def _balance(self, running: list[PlannedCall], step: StepTimeline, room: int) -> None:
        """Share the room among several graphs anew where that is worth compiling again: the first took what it found."""
        frontiers = [graph.frontier for graph in running if graph.frontier]
        if len(frontiers) < 2:
            return
        places = fit_step(frontiers, room, step)
        now, then = (
            sum(frontier.cost(place) for frontier, place in zip(frontiers, some, strict=True))
            for some in (step.places, places)
        )
        if step.peak(frontiers, places) <= room and then < now * (1 - _WORTH):
            self._move(running, places, 0)

    def _fit_least(self, running: list[PlannedCall], step: StepTimeline) -> bool:
        """Have the graphs of a step hold as little together as is known, and return whether that is a change."""
        frontiers = [graph.frontier for graph in running if graph.frontier]
        if len(frontiers) < 2:
            return False  # a graph alone has been brought to its own least
        places = fit_step(frontiers, 0, step)
        if step.peak(frontiers, places) >= step.peak(frontiers, [frontier.place for frontier in frontiers]):
            return False
        self._move(running, places, 0)
        return True

    def _move(self, running: list[PlannedCall], places: Sequence[int], spare: int) -> None:
        """Have graphs compiled again with other choices; a graph alone may use the bytes that are left over."""
        graphs = [graph for graph in running if graph.frontier]
        for graph, place in zip(graphs, places, strict=True):
            frontier = graph.frontier
            assert frontier is not None
            if place != frontier.place:
                frontier.room = frontier.peak(place) + spare if len(graphs) == 1 else None
                frontier.place = place
                graph.compile_again()
                self._trials, self._most = _TRIALS, None

    def _frontiers(self) -> list[GraphFrontier]:
        return [graph.frontier for graph in self._running if graph.frontier is not None]

    def _besides(self, frontier: GraphFrontier) -> int:
        """Return the bytes that are held now besides what a new graph is given."""
        if self.device.startswith("cuda"):
            return max(0, held_now(self.device) - frontier.inputs)
        return sum(other.choice.bytes for other in self._frontiers())


_BUDGETS: dict[tuple[str, BackendOptions], StepBudget] = {}


def shared_budget(device: str, options: BackendOptions) -> StepBudget:
    """Return the one budget of all graphs on a device that were compiled with the same options."""
    return _BUDGETS.setdefault((device, options), StepBudget(device, options))
